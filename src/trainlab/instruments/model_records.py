"""network.json: the calls of one forward pass, so that a report can draw the network without timing it."""

import contextlib
import io
import math
import warnings
from collections.abc import Mapping, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainlab.data.nesting import count_of, sized
from trainlab.errors import RecordError, reason_in
from trainlab.instruments.calls import CallRecorder, Observer
from trainlab.record.cost_record import CallRow, NetworkRecord
from trainlab.record.files import make_folder, replacing
from trainlab.record.learning_record import LONGEST_SIDE, ConfusionRecord, Mistake, Picture
from trainlab.record.run_folder import TrialFolder
from trainlab.record.schema import note
from trainlab.record.trial_record import FINISHED, Progress
from trainlab.train.callbacks import Instrument, TrialView
from trainlab.train.engines.engine import Member, Session
from trainlab.train.opaque import opaque_names, plain_name
from trainlab.train.seeds import seeded
from trainlab.train.setup import Setup

MOST_SAMPLES = 256
"""Of the batch that is run: a larger one would take time and memory and show the same network."""


class Network(Instrument):
    """Runs a copy of the model once, after the last update; what cannot be run so is noted."""

    goes_on = True

    def trial_ends(self, progress: Progress) -> None:
        if progress.state in FINISHED:
            self.record(self._view)

    def record(self, view: TrialView) -> None:
        """Writes the calls of one forward pass, in their order."""
        try:
            with (
                seeded(view.trial.seed, "network", device=view.device),
                warnings.catch_warnings(),
                contextlib.redirect_stdout(io.StringIO()),
            ):
                # What the model prints or warns about comes once, from the training.
                warnings.simplefilter("ignore")
                model, given = view.model_call(min(view.trial.settings.batch_size, MOST_SAMPLES))
                recorder, (arguments, named) = CallRecorder(model.train()), given
                with recorder.watching(Observer()) as calls:
                    recorder.forward_begins()
                    model(*arguments, **named)
                unseen = {id(one): one.numel() for one in sized(model.parameters())}
                rows = [CallRow(**one.facts(unseen), inputs=sorted(one.inputs)) for one in calls]
        except Exception as error:  # noqa: BLE001  the user's model may raise anything
            view.note("network_failed", kind=type(error).__name__, reason=reason_in(error))
            return
        if names := opaque_names(model):
            view.note("not_seen_inside", names=", ".join(names))
        if rows:
            view.folder.network.write(NetworkRecord(batch_size=count_of(given), rows=rows))


SHORTEST_SIDE = 4
"""Of what is taken for an image, in pixels."""
LOSSES = (F.cross_entropy, F.nll_loss, F.multi_margin_loss)
LOSS_MODULES = (nn.CrossEntropyLoss, nn.NLLLoss, nn.MultiMarginLoss)
NEARLY = 1e-6
"""Metrics may be means in float32."""


def record_confusion(session: Session, number: int, member: Member, folder: TrialFolder) -> None:
    """Writes it for a member of a session that is done; nothing where there are no classes. A trial whose
    training is over does not fail for it: why it is missing is noted."""
    setup, progress = member.setup, member.progress
    if progress.state != "done":
        return
    epoch = progress.best_epoch if setup.settings.keep_best else progress.epochs_done
    try:
        found = session.confusion(number, epoch)
        if found is not None and _is_of_classes(found, setup, progress.final):
            folder.confusion.write(_with_names(found, setup))
    except Exception as error:  # noqa: BLE001  a full disk, or the user's data, which may raise anything
        reason = reason_in(error)
        setup.notes.append(note("confusion_failed", kind=type(error).__name__, reason=reason))


def _is_of_classes(found: ConfusionRecord, setup: Setup, measured: Mapping[str, float]) -> bool:
    """Whether rows of numbers beside whole numbers are scores of classes: embeddings beside labels, or
    quantiles beside counts, look the same. They are where the data names as many classes, where the loss
    or a metric is one of classes, or where a metric is the share of those that are right."""
    loss, metrics = setup.workload.loss, setup.workload.metrics.values()
    loss = loss.func if isinstance(loss, partial) else loss
    share = found.num_right / found.num_samples
    tested = [value for name, value in measured.items() if name.startswith("test/")]
    return (
        len(setup.dataset.classes) == found.num_classes
        or loss in LOSSES
        or isinstance(loss, LOSS_MODULES)
        or (loss is None and not metrics)  # a step that gives outputs and targets for this alone
        or any(getattr(metric, "num_classes", None) == found.num_classes for metric in metrics)
        or any(math.isclose(value, share, abs_tol=NEARLY) for value in tested)
    )


def _with_names(found: ConfusionRecord, setup: Setup) -> ConfusionRecord:
    """With the names of the classes and the pictures of the mistakes, where the data has them."""
    names = tuple(map(str, setup.dataset.classes))
    places = [mistake.index for mistake in found.worst]
    inputs = setup.test_batches.inputs_of(places)
    drawn = dict(zip(sorted(places), pictures_of(list(inputs)), strict=False))
    worst = [one.model_copy(update={"picture": drawn.get(one.index)}) for one in found.worst]
    known = names if len(names) == found.num_classes else ()
    return found.model_copy(update={"classes": known, "worst": tuple[Mistake, ...](worst)})


def pictures_of(inputs: Sequence[object]) -> list[Picture]:
    """Inputs as they are stored, as images of 8 bits; none where they are no images of one kind. Bytes are
    taken as they are, numbers from 0 to 1 times 255, others from the lowest to the highest of all."""
    images = [image for one in inputs if (image := _channels_last(one)) is not None]
    if len(images) != len(inputs) or not images:
        return []
    values = torch.cat([image.double().flatten() for image in images])
    values = values[values.isfinite()]
    are_bytes = not any(image.is_floating_point() for image in images)
    if not len(values) or (are_bytes and not 0 <= values.min() <= values.max() <= 255):
        return []
    low, high = float(values.min()), float(values.max())
    if are_bytes or (low >= 0 and high <= 1):
        low, high = 0.0, 255.0 if are_bytes else 1.0
    scale = 255 / (high - low) if high > low else 0.0
    return [
        _picture(((image.double() - low) * scale).nan_to_num(0.0, 255.0, 0.0).float())
        for image in images
    ]


def _channels_last(one: object) -> Tensor | None:
    """(height, width, channels) of a tensor of one of the usual shapes; None of any other."""
    if not isinstance(one, Tensor) or one.is_complex() or one.dim() not in (2, 3):
        return None
    image = one.detach().cpu().float() if one.dtype == torch.bool else one.detach().cpu()
    if image.dim() == 2:
        # Rows of a table look the same but for this: a pixel is not below 0.
        image = image.unsqueeze(0) if bool((image >= 0).all()) else image
    if image.dim() != 3 or image.shape[0] not in (1, 3) or min(image.shape[1:]) < SHORTEST_SIDE:
        return None
    return image.permute(1, 2, 0)


def _picture(image: Tensor) -> Picture:
    height, width, _ = image.shape
    if (longest := max(height, width)) > LONGEST_SIDE:
        size = [max(1, round(side * LONGEST_SIDE / longest)) for side in (height, width)]
        image = F.interpolate(image.permute(2, 0, 1)[None], size, mode="area")[0].permute(1, 2, 0)
        height, width = size
    content = image.round().clamp(0, 255).to(torch.uint8).contiguous()
    return Picture.of(height, width, content.numpy().tobytes())


class Weights(Instrument):
    """Keeps the weights as they are when the trial ends, however it ends."""

    goes_on = True

    def trial_ends(self, progress: Progress) -> None:
        path, model = self._view.folder.model_file, self._view.model
        weights = {plain_name(name): one.cpu() for name, one in model.state_dict().items()}
        # Through memory: torch.save turns a full disk into an error of its own.
        content = io.BytesIO()
        torch.save(weights, content)
        make_folder(path.parent)
        with replacing(path) as part:
            part.write_bytes(content.getbuffer())


def load_weights(setup: Setup, source: TrialFolder) -> None:
    """Loads the weights that another trial of the run ended with into the setup's model."""
    path = source.model_file
    if not path.exists():
        state = source.read().state
        raise RecordError(f"{path}: is missing: trial {source.path.name} is {state}, not trained")
    weights = torch.load(path, map_location=setup.device, weights_only=True)
    names = {plain_name(name): name for name in setup.model.state_dict()}
    setup.model.load_state_dict({names.get(name, name): one for name, one in weights.items()})
