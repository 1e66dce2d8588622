"""What a step gave, and how it is read from what the user's own function returns."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Real
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from trainlab.data.nesting import count_of
from trainlab.errors import WorkloadError
from trainlab.train.batches import Batch
from trainlab.train.callbacks import Moments
from trainlab.train.setup import Setup
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

FOR_METRICS = ("outputs", "targets")
"""Of a mapping that a step returns: what the metrics get. All else is logged."""


class StepOutcome(NamedTuple):
    loss: Tensor
    outputs: Any
    targets: Any
    """With the outputs, for the metrics; None where there are none."""
    num_samples: int
    """Means are weighted by it."""
    logged: Mapping[str, Tensor] = {}
    """Further values, one number each."""
    before: tuple["StepOutcome", ...] = ()
    """Those of the earlier batches of the same update."""


def outcome_of(given: Any, batch: Any, where: str) -> StepOutcome:
    """What the user's `where` returned for a batch: its loss, or a mapping with the loss and more."""
    if isinstance(given, Tensor):
        return StepOutcome(_number(given, where), None, None, count_of(batch))
    if not isinstance(given, Mapping):
        raise WorkloadError(
            f"{where}: gave {_kind(given)}, must give the loss as a tensor, or a mapping with `loss`"
        )
    if isinstance(given.get("loss"), Real):
        rule = "must be a tensor, which has a gradient; leave out .item() or float()"
        raise WorkloadError(f"{where}.loss: is a {type(given['loss']).__name__}, {rule}")
    if not isinstance(given.get("loss"), Tensor):
        has = ", ".join(map(str, given)) or "nothing"
        raise WorkloadError(f"{where}: gave a mapping with {has}; it must have `loss`, a tensor")
    logged = {
        str(name): _number(value, f"{where}.{name}").detach()
        for name, value in given.items()
        if name != "loss" and name not in FOR_METRICS
    }
    outputs, targets = (given.get(name) for name in FOR_METRICS)
    loss = _number(given["loss"], f"{where}.loss")
    return StepOutcome(loss, outputs, targets, count_of(batch), logged)


def pair_of(batch: Any) -> tuple[Any, Any]:
    """Inputs and targets; WorkloadError where a batch is another thing."""
    if isinstance(batch, tuple | list) and len(batch) == 2:
        return batch[0], batch[1]
    of = f" of {len(batch)}" if isinstance(batch, tuple | list | Mapping) else ""
    raise WorkloadError(
        f"data: gave a batch that is {_kind(batch)}{of}; beside loss it must be a pair of inputs and "
        "targets: give a collate_fn that makes one, or a step in place of loss"
    )


def check_mean(loss: Any) -> None:
    """Refuses a loss that is not one number."""
    if not isinstance(loss, Tensor):
        raise WorkloadError(f"loss: gave {_kind(loss)}, must give the batch's mean as a tensor")
    if loss.dim() != 0:
        raise WorkloadError(f"loss: gave shape {tuple(loss.shape)}, must be the batch's mean")


def check_gradient(loss: Tensor, where: str) -> None:
    """Refuses a loss that nothing can be learned from."""
    if not loss.requires_grad:
        raise WorkloadError(
            f"{where}: gave a loss without gradient; it was detached, or made of numbers, or all "
            "parameters are frozen"
        )


def _number(value: Any, where: str) -> Tensor:
    if isinstance(value, Real):
        return torch.tensor(float(value))
    if not isinstance(value, Tensor) or value.numel() != 1:
        got = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else _kind(value)
        rule = "must be one number, as the mean over the batch"
        named = " (outputs and targets for metrics go by these names)" if "." in where else ""
        raise WorkloadError(f"{where}: gave {got}, {rule}{named}")
    return value.reshape(())


def _kind(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


# The forward pass of a step: model and loss as the workload puts them, or its own function for both.

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
        workload, self._moments, self._autocast = setup.workload, moments, setup.autocast
        evaluates = in_test and workload.evaluate is not None
        self._name, self._running = ("evaluate", EVALUATE) if evaluates else ("step", STEP)
        self._own = workload.evaluate if evaluates else workload.step
        # A compiled model has no truth value: its length is that of what it wraps.
        self._model = setup.model if call_model is None else call_model
        if self._own is not None:
            carried = {} if carried is None else carried
            self._more = (carried,) if takes_carried(self._own) else ()
        else:
            self._prepare_inputs, self._loss = workload.prepare, setup.loss
            self._model_class = type(setup.model)

    def __call__(self, batch: Batch) -> StepOutcome:
        return self.run(self.prepare(batch))

    def prepare(self, batch: Batch) -> Batch:
        """A batch on the device to what `run` takes."""
        if self._own is not None:
            self._moments.phase_ends("prepare")
            self._moments.batch_ready(batch, ())
            return batch
        stored, targets = pair_of(batch)
        with PREPARE:
            inputs = self._prepare_inputs(stored)
        if inputs is None:
            raise _none("prepare", self._prepare_inputs)
        self._moments.phase_ends("prepare")
        self._moments.batch_ready(inputs, targets)
        return inputs, targets

    def run(self, batch: Batch) -> StepOutcome:
        """The loss of a prepared batch, and what gave it."""
        phase_ends = self._moments.phase_ends
        self._moments.forward_begins()
        if self._own is not None:
            with self._autocast():
                with self._running:
                    given = self._own(self._model, batch, *self._more)
                phase_ends("forward")
            outcome = outcome_of(given, batch, self._name)
            phase_ends("loss")
            return outcome
        inputs, targets = batch
        with self._autocast():
            with MODEL:
                outputs = self._model(inputs)
            if outputs is None:
                raise _none("model", self._model_class.forward)
            phase_ends("forward")
            with LOSS:
                loss = self._loss(outputs, targets)
        check_mean(loss)
        phase_ends("loss")
        return StepOutcome(loss, outputs, targets, len(targets))


def _none(field: str, part: Callable[..., Any]) -> WorkloadError:
    """That a function of the user's gave nothing, with the line where it begins."""
    called = getattr(part, "__qualname__", type(part).__name__)
    return WorkloadError(
        f"{told_place(line_of(part))}{field}: {called} gave {gave(None)}, must give a tensor"
    )


# What a workload's own update gets to work with.


class Context:
    """Handed to `update(ctx, batch)`, which makes one update of everything."""

    def __init__(self, setup: Setup, moments: Moments, state: Carried) -> None:
        self.models = self.model = setup.model
        """The workload's models by name; where it has one, that one."""
        self.optimizers = setup.optimizers.by_name
        """By name; where there is one, as `optimizer` too."""
        self.settings, self.device = setup.settings, setup.device
        self.state = state
        """Handed on from batch to batch; empty at the start of an epoch."""
        self._moments = moments

    @property
    def optimizer(self) -> Optimizer:
        """The only one."""
        (one,) = self.optimizers.values()
        return one

    def backward(self, loss: Tensor, **options: Any) -> None:
        """As `loss.backward()`, seen by whoever watches the phases of a step."""
        self._moments.phase_ends("forward")
        self._moments.phase_ends("loss")
        loss.backward(**options)
        self._moments.phase_ends("backward")
        self._moments.passes_go_on()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """The steps of the optimizers in this block are seen too."""
        moments = self._moments

        def begins(optimizer: Optimizer, arguments: Any, named: dict[str, Any]) -> Any:
            """Gradients are whole here, or where the optimizer asks for them itself: behind its closure."""
            groups = optimizer.param_groups
            parameters = frozenset(id(one) for group in groups for one in group["params"])
            moments.update_begins(parameters)
            closure = named.get("closure", arguments[1] if len(arguments) > 1 else None)
            if closure is None:
                moments.gradients_ready(parameters)
                return None

            def answered() -> Any:
                loss = closure()
                moments.gradients_ready(parameters)
                return loss

            return arguments[:1], {**named, "closure": answered}

        optimizers = self.optimizers.values()
        hooks = [
            one.register_step_post_hook(lambda *_: moments.phase_ends("optimizer"))
            for one in optimizers
        ]
        if moments.is_watched("gradients_ready") or moments.is_watched("update_begins"):
            # Last among its hooks: the workload's own, which may clip, have run then.
            hooks += [one.register_step_pre_hook(begins) for one in optimizers]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
