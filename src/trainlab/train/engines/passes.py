"""RecordedPasses: forward and backward of a training step, recorded once and run again.

A model whose step depends on more than its batch and its parameters is not recorded (`rehearse` finds it),
and neither is one whose recording gives other numbers than its Python, in any bit.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from trainlab.errors import TrainlabError
from trainlab.train.batches.batches import Batch
from trainlab.train.moments import Moments
from trainlab.train.operators import FEWEST_UPDATES, Operators, are_same
from trainlab.train.program.rehearsal import rehearse
from trainlab.train.program.suited import check_model
from trainlab.train.program.unsuited import Unsuited, reason_of
from trainlab.train.seeds import seeded
from trainlab.train.setup import Setup
from trainlab.train.steps.forward import CallModel, Forward
from trainlab.train.steps.outcome import Outcome

COMPARED = 2
"""Batches on which the recording must give what Python gives."""


class RecordedPasses:
    """Of batches of one shape. Afterwards the parameters have their gradients, as after `backward`."""

    def __init__(self, setup: Setup, call_model: CallModel) -> None:
        """Raises Unsuited where the passes cannot be recorded; leaves the trial as it was."""
        check_model(setup.model)
        rows = setup.split_batches.first_rows()
        learning = rehearse(setup, rows).gradients
        named = dict(setup.model.named_parameters())
        self._parameters = [named[name] for name in learning]
        self._forward = Forward(setup, Moments([]), call_model)
        stored, targets = setup.split_batches.samples(rows)
        self._shapes = stored.shape, targets.shape
        with _unharmed(setup):
            try:
                self._operators = Operators(self._from_python, (stored, targets))
                for number in range(1, COMPARED + 1):
                    others = (rows + number * len(rows)) % setup.split_batches.num_stored
                    self._compare(setup, *setup.split_batches.samples(others))
            except (TrainlabError, Unsuited, torch.OutOfMemoryError):
                raise
            except Exception as error:
                raise Unsuited("not_recorded", reason=reason_of(error)) from error

    def __call__(self, batch: Batch) -> Outcome | None:
        """None where the batch has another shape, or an operator failed: Python will say better why."""
        stored, targets = batch
        if (stored.shape, targets.shape) != self._shapes:
            return None
        for parameter in self._parameters:
            parameter.grad = None
        try:
            loss, outputs, *gradients = self._operators(stored, targets)
        except Exception:  # noqa: BLE001  whatever it is, Python will raise it too
            return None
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient
        return Outcome(loss, outputs, targets, len(targets))

    def _from_python(self, stored: Tensor, targets: Tensor) -> list[Tensor]:
        """Loss, outputs and gradients."""
        loss, outputs, *_ = self._forward((stored, targets))
        if not isinstance(outputs, Tensor):
            raise Unsuited("not_one_output", what=type(outputs).__name__)
        found = torch.autograd.grad(loss, self._parameters)
        return [loss.detach(), outputs.detach(), *_each_its_own(found, self._parameters)]

    def _compare(self, setup: Setup, stored: Tensor, targets: Tensor) -> None:
        """Refuses a recording that does not do what Python does, to numbers, buffers and random draws."""
        states = []
        for way in (self._from_python, self._operators):
            with _unharmed(setup):
                found = way(stored.clone(), targets.clone())
                buffers = [one.clone() for one in setup.model.buffers()]
                states.append([*found, *buffers, torch.get_rng_state()])
        if not are_same(*states):
            raise Unsuited("not_the_same")


def can_be_recorded(setup: Setup, moments: Moments) -> bool:
    """Whether the settings are such that passes are worth recording, and nobody looks inside them."""
    settings = setup.settings
    return (
        setup.device.type == "cpu"
        and settings.precision == "fp32"
        and settings.zero_grad
        and settings.accumulate == 1
        and setup.num_steps >= FEWEST_UPDATES
        and moments.grain == "point"
    )


def _each_its_own(gradients: Sequence[Tensor], parameters: Sequence[nn.Parameter]) -> list[Tensor]:
    """In the order in memory that their parameters have, no two in the same place: an optimizer or clipping
    may change them."""
    places: set[int] = set()
    found = []
    for gradient, parameter in zip(gradients, parameters, strict=True):
        place = gradient.untyped_storage().data_ptr()
        if gradient.stride() != parameter.stride() or place in places:
            gradient = torch.empty_like(parameter).copy_(gradient)
        places.add(place)
        found.append(gradient.detach())
    return found


@contextmanager
def _unharmed(setup: Setup) -> Iterator[None]:
    """In training mode; afterwards buffers, mode and random numbers are as before."""
    modes = [(module, module.training) for module in setup.model.modules()]
    buffers = list(setup.model.buffers())
    kept = [buffer.clone() for buffer in buffers]
    try:
        with seeded(setup.trial.seed_of("dropout"), "dropout", 1, setup.device):
            setup.model.train()
            yield
    finally:
        for module, was_training in modes:
            module.training = was_training
        with torch.no_grad():
            for buffer, before in zip(buffers, kept, strict=True):
                buffer.copy_(before)
