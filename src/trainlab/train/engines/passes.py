"""RecordedPasses: forward and backward of a training step, recorded once and run again.

A model whose Python does more than call torch is not recorded (`PlainPython` finds it, `rehearse` some of
the rest), and neither is one whose recording gives other numbers than its Python, in any bit.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from trainlab.train.batches.batches import Batch
from trainlab.train.moments import Moments
from trainlab.train.operators import FEWEST_UPDATES, FailedError, Operators, are_same, failed_alone
from trainlab.train.program.python.plainness import PlainPython
from trainlab.train.program.rehearsal import rehearse
from trainlab.train.program.suited import check_model
from trainlab.train.program.unsuited import Unsuited, reason_of
from trainlab.train.seeds import seeded
from trainlab.train.setup import Setup
from trainlab.train.steps.forward import CallModel, Forward
from trainlab.train.steps.outcome import Outcome

FromPython = Callable[[Batch], Outcome]
"""Forward and backward of a batch, as the model's own code does them."""
COMPARED = 2
"""Batches on which the recording must give what Python gives."""


class RecordedPasses:
    """Of batches of one shape. The first two are run from Python, and the second is watched (with the first
    torch may import much): only where that was plain is anything run that the trial would not run."""

    def __init__(
        self, setup: Setup, call_model: CallModel, told: Callable[[str], None] | None = None
    ) -> None:
        """`told` gets to know whether they are recorded: `recorded`, or why not and what keeps them."""
        self._setup, self._told = setup, told
        self._forward = Forward(setup, Moments([]), call_model)
        self._rows = setup.split_batches.first_rows()
        self._shapes = [one.shape for one in setup.split_batches.samples(self._rows)]
        self._num_samples = len(self._rows)
        self._every = list(setup.model.parameters())
        self._is_first = True
        self._watch: PlainPython | None = None
        self._operators: Operators | None = None
        self._is_due = False
        self.why: str | None = None
        """They are run from Python; None: they are recorded, or will be."""

    def __call__(self, batch: Batch, from_python: FromPython) -> Outcome:
        """Afterwards the parameters have their gradients, as after `from_python`."""
        stored, targets = batch
        if self.why is not None or [stored.shape, targets.shape] != self._shapes:
            return from_python(batch)
        if self._is_first:
            self._is_first = False
            return from_python(batch)
        if self._watch is None:
            return self._watched(batch, from_python)
        if self._operators is None and not self._record(self._watch):
            return from_python(batch)
        if self._is_due and not self._is_still_same(stored, targets):
            return from_python(batch)
        assert self._operators is not None
        for parameter in self._every:
            parameter.grad = None
        try:
            loss, outputs, *gradients = self._operators(stored, targets)
        except FailedError as failed:
            from_python(batch)  # tells what is wrong in the user's words
            raise failed_alone(failed) from failed
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient
        return Outcome(loss, outputs, targets, self._num_samples)

    def epoch_begins(self) -> None:
        """A test lies behind, in which the model may have changed more than its mode: with the next batch
        the recording is compared with Python again."""
        self._is_due = self._operators is not None

    def _is_still_same(self, stored: Tensor, targets: Tensor) -> bool:
        self._is_due = False
        assert self._operators is not None
        try:
            self._compare(self._operators, stored, targets)
        except (Unsuited, FailedError):
            self._tell("not_the_same")
        return self.why is None

    def _watched(self, batch: Batch, from_python: FromPython) -> Outcome:
        setup = self._setup
        self._watch = PlainPython((setup.model, setup.loss, setup.workload.prepare))
        with self._watch:
            return from_python(batch)

    def _record(self, watch: PlainPython) -> bool:
        """False where they cannot be; leaves the trial as it was."""
        try:
            if (harmful := watch.harmful) is not None:
                raise Unsuited("not_plain", what=harmful)
            check_model(self._setup.model)
            self._operators = self._traced()
            self._tell(None)
        except Unsuited as unsuited:
            self._tell(unsuited.why, *unsuited.values.values())
        except Exception as error:  # noqa: BLE001  training will say what is wrong, if anything is
            self._tell("not_recorded", reason_of(error))
        return self.why is None

    def _tell(self, why: str | None, *more: object) -> None:
        self.why = why
        # What Python gets is a batch by itself, of which a model may do with the memory what it likes.
        self._setup.split_batches.gather_in_blocks(why is None)
        if self._told is not None:
            self._told(": ".join([why or "recorded", *map(str, more)]))

    def _traced(self) -> Operators:
        setup, rows, batches = self._setup, self._rows, self._setup.split_batches
        rehearsed = rehearse(setup, rows, with_metrics=False)
        named = {name: one for name, one in setup.model.named_parameters() if one.requires_grad}
        self._parameters = [named[name] for name in rehearsed.gradients]
        given = batches.samples(rows)
        with _unharmed(setup):
            loss = self._forward(given).loss
            found: tuple[Tensor | None, ...] = torch.autograd.grad(
                loss, list(named.values()), allow_unused=True
            )
            learning = [name for name, one in zip(named, found, strict=True) if one is not None]
            if learning != list(rehearsed.gradients):
                raise Unsuited("not_copied")  # the copy uses tensors of the model itself
        with _unharmed(setup):
            operators = Operators(self._from_python, given)
        for number in range(1, COMPARED + 1):
            others = (rows.flip(0) + number * len(rows)) % batches.num_stored
            self._compare(operators, *batches.samples(others))
        return operators

    def _from_python(self, stored: Tensor, targets: Tensor) -> list[Tensor]:
        """Loss, outputs and gradients."""
        loss, outputs, *_ = self._forward((stored, targets))
        if not isinstance(outputs, Tensor):
            raise Unsuited("not_one_output", what=type(outputs).__name__)
        found = torch.autograd.grad(loss, self._parameters)
        return [loss.detach(), outputs.detach(), *_each_its_own(found, self._parameters)]

    def _compare(self, operators: Operators, stored: Tensor, targets: Tensor) -> None:
        """Refuses a recording that does not do what Python does, to numbers, buffers and random draws."""
        states, setup = [], self._setup
        for way in (self._from_python, operators):
            with _unharmed(setup):
                given = stored.clone(), targets.clone()
                found = way(*given)
                theirs = {_place(one) for one in (*operators.kept, *given)}
                if any(_place(one) in theirs for one in found[2:]):
                    raise Unsuited("not_apart", what="gradient")  # which an optimizer may change
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
        place = _place(gradient)
        if gradient.stride() != parameter.stride() or place in places:
            gradient = torch.empty_like(parameter).copy_(gradient)
        places.add(place)
        found.append(gradient.detach())
    return found


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


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
                buffer.resize_(before.shape).copy_(before)
