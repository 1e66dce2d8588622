"""Rehearsal: one step run from Python before it is made into a program, to learn what it does.

A model that keeps state of its own between steps, or draws random numbers elsewhere than from torch,
would do something else when it is replayed; it is found here.
"""

import copy
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from trainlab.train.program.noise import Draw, DropoutRecorder
from trainlab.train.program.python.fingerprint import state_of
from trainlab.train.program.python.outside import outside_of
from trainlab.train.program.unsuited import Unsuited
from trainlab.train.seeds import seeded
from trainlab.train.setup import Setup
from trainlab.train.steps.meter import per_sample
from trainlab.train.steps.outcome import check_gradient, check_mean
from trainlab.workloads.user_code import BACKWARD, LOSS, MODEL, PREPARE, Running

Part = TypeVar("Part")


class _ValuesRead(TorchDispatchMode):
    """Refuses a step that reads a number from a tensor: a replay would not read it again."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.has_read = False
        """The step may have caught what was raised."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            self.has_read = True
            raise Unsuited("not_blind")
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True)
class Rehearsal:
    """What a step gave and did."""

    loss: float
    gradients: Mapping[str, Tensor]
    """Of the parameters that get one."""
    draws: tuple[Draw, ...]


def rehearse(
    setup: Setup,
    rows: Tensor,
    watching: AbstractContextManager[None] | None = None,
    *,
    with_metrics: bool = True,
) -> Rehearsal:
    """One step of the first epoch on these rows of the data, by a copy of the model.

    `watching` is entered around the model and the loss; the model itself is then run, whose layers it
    knows, and its buffers are changed.
    """
    batches, workload = setup.split_batches, setup.workload
    model = (_copy_of(setup.model) if watching is None else setup.model).train()
    loss_of, prepare = _copy_of(setup.loss), _copy_of(workload.prepare)
    dropout, reading = DropoutRecorder(), _ValuesRead()
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    buffers = dict(model.named_buffers())
    with (
        seeded(setup.trial.seed_of("dropout"), "dropout", 1, setup.device),
        _unchanged((model, loss_of, prepare), setup.device),
    ):
        inputs, targets = batches.gather(rows)
        with PREPARE:
            inputs = prepare(inputs)
        with setup.autocast(), dropout, watching or reading:
            with MODEL:
                outputs = model(inputs)
            if not isinstance(outputs, Tensor):
                raise Unsuited("not_one_output", what=type(outputs).__name__)
            with LOSS:
                loss = loss_of(outputs, targets)
        check_mean(loss)
        check_gradient(loss, "loss")
        for name, metric in workload.sample_metrics.items() if with_metrics else ():
            with Running(f"metrics.{name}"):
                values = metric(outputs.detach(), targets)
            per_sample(name, values, len(targets))
        with BACKWARD:
            found: tuple[Tensor | None, ...] = torch.autograd.grad(
                loss, list(parameters.values()), allow_unused=True
            )
    if reading.has_read:
        raise Unsuited("not_blind")
    for name, buffer in model.named_buffers():
        if buffers.get(name) is not buffer:
            raise Unsuited("not_stateless", what=name)
    gradients = {
        name: gradient
        for name, gradient in zip(parameters, found, strict=True)
        if gradient is not None
    }
    if any(gradient.layout != torch.strided for gradient in gradients.values()):
        raise Unsuited("not_dense")
    if not gradients:
        raise Unsuited("not_learning")
    return Rehearsal(float(loss.detach()), gradients, tuple(dropout.draws))


def _copy_of(part: Part) -> Part:
    try:
        return copy.deepcopy(part)
    except Exception as error:
        raise Unsuited("not_copied") from error


@contextmanager
def _unchanged(parts: Sequence[Any], device: torch.device) -> Iterator[None]:
    """Raises where this block changed what these keep, or drew random numbers on the host."""
    before, drawn, outside = _states_of(parts), _host_draws(device), outside_of(parts)
    yield
    for kept, now, part in zip(before, _states_of(parts), parts, strict=True):
        if (changed := _difference(kept, now)) is not None:
            raise Unsuited("not_stateless", what=changed or type(part).__name__)
    if (changed := _difference(outside, outside_of(parts))) is not None:
        raise Unsuited("not_stateless", what=changed)
    if drawn != _host_draws(device):
        raise Unsuited("not_drawn_by_torch")


def _states_of(parts: Sequence[Any]) -> list[dict[str, Any]]:
    """The model first: its buffers are part of the program, those of a loss are not."""
    return [state_of(part, with_buffers=number > 0) for number, part in enumerate(parts)]


def _difference(before: dict[str, Any], after: dict[str, Any]) -> str | None:
    names = [name for name in after if name not in before or before[name] != after[name]]
    return names[0] if names else next((name for name in before if name not in after), None)


def _host_draws(device: torch.device) -> tuple[Any, ...]:
    """The states of the host's random numbers that a replay would not advance."""
    numpy_state = np.random.get_state()
    assert isinstance(numpy_state, tuple)
    of_torch = torch.get_rng_state().numpy().tobytes() if device.type != "cpu" else b""
    return random.getstate(), numpy_state[1].tobytes(), numpy_state[2], of_torch
