"""The forward pass of a step: model and loss as the workload puts them, or its own function for both."""

from collections.abc import Callable
from typing import Any

from trainlab.errors import WorkloadError
from trainlab.train.batches.batches import Batch
from trainlab.train.moments import Moments
from trainlab.train.setup import Setup
from trainlab.train.steps.outcome import Outcome, check_mean, outcome_of, pair_of
from trainlab.workloads.user_code import (
    EVALUATE,
    LOSS,
    MODEL,
    PREPARE,
    STEP,
    gave,
    told_place,
)
from trainlab.workloads.workload import line_of, takes_carried

CallModel = Callable[[Any], Any]
"""The model, or a way to call it."""
Carried = dict[str, Any]
"""What a workload's own step hands on from batch to batch; empty at the start of an epoch and of a test."""


class Forward:
    """In two halves, since a step resets the gradients in between. `call_model`: in place of calling the
    model itself."""

    def __init__(
        self,
        setup: Setup,
        moments: Moments,
        call_model: CallModel | None = None,
        carried: Carried | None = None,
        *,
        in_test: bool = False,
    ) -> None:
        self._moments, self._autocast = moments, setup.autocast
        # A compiled model has no truth value: its length is that of what it wraps.
        workload, model = setup.workload, setup.model if call_model is None else call_model
        own = (workload.evaluate if in_test else None) or workload.step
        if own is None:
            self.prepare, self.run = self._by_loss(setup, model)
        else:
            name = "evaluate" if in_test and workload.evaluate is not None else "step"
            self.prepare, self.run = self._by_own(
                setup, own, name, {} if carried is None else carried
            )

    prepare: Callable[[Batch], Batch]
    """A batch on the device to what `run` takes."""
    run: Callable[[Batch], Outcome]

    def __call__(self, batch: Batch) -> Outcome:
        return self.run(self.prepare(batch))

    def _by_loss(
        self, setup: Setup, model: CallModel
    ) -> tuple[Callable[[Batch], Batch], Callable[[Batch], Outcome]]:
        phase_ends, forward_begins = self._moments.phase_ends, self._moments.forward_begins
        batch_ready, autocast = self._moments.batch_ready, self._autocast
        prepare_inputs, loss_of = setup.workload.prepare, setup.loss

        def prepare(batch: Batch) -> Batch:
            stored, targets = pair_of(batch)
            with PREPARE:
                inputs = prepare_inputs(stored)
            if inputs is None:
                raise _none("prepare", prepare_inputs)
            phase_ends("prepare")
            batch_ready(inputs, targets)
            return inputs, targets

        def run(batch: Batch) -> Outcome:
            inputs, targets = batch
            forward_begins()
            with autocast():
                with MODEL:
                    outputs = model(inputs)
                if outputs is None:
                    raise _none("model", type(setup.model).forward)
                phase_ends("forward")
                with LOSS:
                    loss = loss_of(outputs, targets)
            check_mean(loss)
            phase_ends("loss")
            return Outcome(loss, outputs, targets, len(targets))

        return prepare, run

    def _by_own(
        self, setup: Setup, own: Callable[..., Any], name: str, carried: Carried
    ) -> tuple[Callable[[Batch], Batch], Callable[[Batch], Outcome]]:
        phase_ends, forward_begins = self._moments.phase_ends, self._moments.forward_begins
        batch_ready, autocast, model = self._moments.batch_ready, self._autocast, setup.model
        more = (carried,) if takes_carried(own) else ()
        running = EVALUATE if name == "evaluate" else STEP

        def prepare(batch: Batch) -> Batch:
            phase_ends("prepare")
            batch_ready(batch, ())
            return batch

        def run(batch: Batch) -> Outcome:
            forward_begins()
            with autocast():
                with running:
                    given = own(model, batch, *more)
                phase_ends("forward")
            outcome = outcome_of(given, batch, name)
            phase_ends("loss")
            return outcome

        return prepare, run


def _none(field: str, part: Callable[..., Any]) -> WorkloadError:
    """That a function of the user's gave nothing, with the line where it begins."""
    called = getattr(part, "__qualname__", type(part).__name__)
    return WorkloadError(
        f"{told_place(line_of(part))}{field}: {called} gave {gave(None)}, must give a tensor"
    )
