"""Metrics of a whole set: those that are no mean over samples, as RMSE, AUC or perplexity."""

import copy
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor


@runtime_checkable
class WholeMetric(Protocol):
    """What torchmetrics calls a metric: it takes in batch after batch and then gives its value."""

    def update(self, *batch: Any) -> Any:
        """Takes in outputs and targets of a batch."""

    def compute(self) -> Any:
        """One number, or several by name."""

    def reset(self) -> Any:
        """Forgets everything taken in so far."""


class OfWholeSet:
    """A function of all outputs and all targets, one below the other, to one number. For example
    `OfWholeSet(lambda outputs, targets: F.mse_loss(outputs, targets).sqrt(), higher_is_better=False)`."""

    def __init__(
        self, function: Callable[[Tensor, Tensor], Any], *, higher_is_better: bool = True
    ) -> None:
        self._function, self.higher_is_better = function, higher_is_better
        self.reset()

    def update(self, outputs: Tensor, targets: Tensor) -> None:
        """Keeps a batch, in the host's memory."""
        self._outputs.append(outputs.detach().cpu())
        self._targets.append(targets.detach().cpu())

    def compute(self) -> Any:
        """What the function gives for all that was kept."""
        return self._function(torch.cat(self._outputs), torch.cat(self._targets))

    def reset(self) -> None:
        """Drops what was kept."""
        self._outputs: list[Tensor] = []
        self._targets: list[Tensor] = []


Metrics = Mapping[str, Any]


def of_samples(metrics: Metrics) -> Metrics:
    """Those that give a value for each sample."""
    return {name: one for name, one in metrics.items() if not isinstance(one, WholeMetric)}


def of_whole_set(metrics: Metrics, device: torch.device) -> Mapping[str, WholeMetric]:
    """Copies of the others, on the device."""
    copies = {n: copy.deepcopy(one) for n, one in metrics.items() if isinstance(one, WholeMetric)}
    return {n: one.to(device) if hasattr(one, "to") else one for n, one in copies.items()}


def directions(metrics: Metrics) -> dict[str, bool]:
    """Whether higher is better, of the metrics that say so."""
    told = {name: getattr(one, "higher_is_better", None) for name, one in metrics.items()}
    return {name: value for name, value in told.items() if isinstance(value, bool)}
