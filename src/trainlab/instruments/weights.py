"""checkpoint/model.pt: the trained weights, as a state_dict that plain torch loads."""

import os

import torch

from trainlab.record.files import writing
from trainlab.train.bench import Bench
from trainlab.train.moments import Instrument, Progress


class Weights(Instrument):
    """Keeps the weights as they are when the trial ends, however it ends."""

    def trial_begins(self, bench: Bench) -> None:
        self._bench = bench

    def trial_ends(self, progress: Progress) -> None:
        path = self._bench.folder.model_file
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        state = {name: value.cpu() for name, value in self._bench.model.state_dict().items()}
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            torch.save(state, part)
            part.replace(path)
