"""checkpoint/model.pt: the trained weights, as a state_dict that plain torch loads into the plain model."""

import io

import torch

from trainlab.errors import RecordError
from trainlab.record.files import replacing, writing
from trainlab.record.run_folder import TrialFolder
from trainlab.train.callbacks import Instrument, Progress, TrialView
from trainlab.train.opaque import plain_names
from trainlab.train.setup import Setup


class Weights(Instrument):
    """Keeps the weights as they are when the trial ends, however it ends."""

    goes_on = True

    def trial_begins(self, view: TrialView) -> None:
        self._view = view

    def trial_ends(self, progress: Progress) -> None:
        path, model = self._view.folder.model_file, self._view.model
        names = plain_names(model)
        weights = {names[name]: value.cpu() for name, value in model.state_dict().items()}
        # Through memory: torch.save turns a full disk into an error of its own.
        content = io.BytesIO()
        torch.save(weights, content)
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as part:
            part.write_bytes(content.getbuffer())


def load_weights(setup: Setup, source: TrialFolder) -> None:
    """Loads the weights that another trial of the run ended with into the setup's model."""
    path = source.model_file
    if not path.exists():
        state = source.read().state
        raise RecordError(f"{path}: is missing: trial {source.path.name} is {state}, not trained")
    weights = torch.load(path, map_location=setup.device, weights_only=True)
    names = {plain: name for name, plain in plain_names(setup.model).items()}
    setup.model.load_state_dict({names.get(name, name): one for name, one in weights.items()})
