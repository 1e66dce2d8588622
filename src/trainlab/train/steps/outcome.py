"""What a step gave, and how it is read from what the user's own function returns."""

from collections.abc import Mapping
from numbers import Real
from typing import Any, NamedTuple

import torch
from torch import Tensor

from trainlab.data.nesting import count_of
from trainlab.errors import WorkloadError

FOR_METRICS = ("outputs", "targets")
"""Of a mapping that a step returns: what the metrics get. All else is logged."""


class Outcome(NamedTuple):
    """Of one batch."""

    loss: Tensor
    outputs: Any
    targets: Any
    """With the outputs, for the metrics; None where there are none."""
    num_samples: int
    """Means are weighted by it."""
    logged: Mapping[str, Tensor] = {}
    """Further values, one number each."""
    before: tuple["Outcome", ...] = ()
    """Those of the earlier batches of the same update."""


def outcome_of(given: Any, batch: Any, where: str) -> Outcome:
    """What the user's `where` returned for a batch: its loss, or a mapping with the loss and more."""
    if isinstance(given, Tensor):
        return Outcome(_number(given, where), None, None, count_of(batch))
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
    return Outcome(loss, outputs, targets, count_of(batch), logged)


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
