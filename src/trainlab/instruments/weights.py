"""checkpoint/model.pt: the trained weights, as a state_dict that plain torch loads."""

import io

import torch

from trainlab.record.files import replacing, writing
from trainlab.train.bench import Bench
from trainlab.train.moments import Instrument, Progress


class Weights(Instrument):
    """Keeps the weights as they are when the trial ends, however it ends."""

    def trial_begins(self, bench: Bench) -> None:
        self._bench = bench

    def trial_ends(self, progress: Progress) -> None:
        path = self._bench.folder.model_file
        state = {name: value.cpu() for name, value in self._bench.model.state_dict().items()}
        # Through memory: torch.save turns a full disk into an error of its own.
        content = io.BytesIO()
        torch.save(state, content)
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as part:
            part.write_bytes(content.getbuffer())
