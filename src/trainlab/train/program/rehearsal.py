"""Rehearsal: one step run from Python before it is made into a program, to learn what it does.

A model that keeps state of its own between steps, or draws random numbers elsewhere than from torch,
would do something else when it is replayed; it is found here.
"""

import copy
import random
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from trainlab.train.meter import check_mean, per_sample
from trainlab.train.program.noise import Draw, DropoutRecorder
from trainlab.train.program.unsuited import Unsuited
from trainlab.train.seeds import seeded
from trainlab.train.setup import Setup

_TORCH_OWN = frozenset(vars(nn.Module())) - {"training"}
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
MOST_ITEMS = 1000


@dataclass(frozen=True)
class Rehearsal:
    """What a step gave and did."""

    loss: float
    gradients: Mapping[str, Tensor]
    """Of the parameters that get one."""
    draws: tuple[Draw, ...]


def rehearse(
    setup: Setup, rows: Tensor, watching: AbstractContextManager[None] | None = None
) -> Rehearsal:
    """One step of the first epoch on these rows of the data, by a copy of the model.

    `watching` is entered around the model and the loss; the model itself is then run, whose layers it
    knows, and its buffers are changed.
    """
    batches, workload = setup.train_batches, setup.workload
    model = (_copy_of(setup.model) if watching is None else setup.model).train()
    dropout = DropoutRecorder()
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    buffers = dict(model.named_buffers())
    with (
        seeded(setup.trial.seed_of("dropout"), "dropout", 1, setup.device),
        _unchanged(model, setup.device),
    ):
        inputs, targets = batches.gather(rows)
        inputs = workload.prepare(inputs)
        with setup.autocast(), dropout, watching or nullcontext():
            outputs = model(inputs)
            loss = workload.loss(outputs, targets)
        check_mean(loss)
        for name, metric in workload.metrics.items():
            per_sample(name, metric(outputs.detach(), targets), len(targets))
        found: tuple[Tensor | None, ...] = torch.autograd.grad(
            loss, list(parameters.values()), allow_unused=True
        )
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


def _copy_of(model: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(model)
    except Exception as error:
        raise Unsuited("not_copied") from error


@contextmanager
def _unchanged(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Raises where this block changed attributes of the model or drew random numbers on the host."""
    before, drawn = _state_of(model), _host_draws(device)
    yield
    if (changed := _difference(before, _state_of(model))) is not None:
        raise Unsuited("not_stateless", what=changed)
    if drawn != _host_draws(device):
        raise Unsuited("not_drawn_by_torch")


def _state_of(model: nn.Module) -> dict[str, Any]:
    return {
        f"{path}.{name}".lstrip("."): _fingerprint(value)
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if name not in _TORCH_OWN
    }


def _difference(before: dict[str, Any], after: dict[str, Any]) -> str | None:
    names = [name for name in after if name not in before or before[name] != after[name]]
    return names[0] if names else next((name for name in before if name not in after), None)


def _fingerprint(value: Any) -> Any:
    """Equal for a value that did not change, as far as one can tell from outside."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, Tensor):
        return id(value), value._version
    if isinstance(value, list | tuple | deque | set | frozenset) and len(value) < MOST_ITEMS:
        return type(value).__name__, tuple(map(_fingerprint, value))
    if isinstance(value, dict) and len(value) < MOST_ITEMS:
        return tuple((str(key), _fingerprint(one)) for key, one in value.items())
    return id(value)


def _host_draws(device: torch.device) -> tuple[Any, ...]:
    """The states of the host's random numbers that a replay would not advance."""
    numpy_state = np.random.get_state()
    assert isinstance(numpy_state, tuple)
    of_torch = torch.get_rng_state().numpy().tobytes() if device.type != "cpu" else b""
    return random.getstate(), numpy_state[1].tobytes(), numpy_state[2], of_torch
