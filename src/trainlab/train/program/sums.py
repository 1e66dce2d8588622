"""Sample-weighted means of loss and metrics of many trials, added up where the step runs."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from trainlab.train.steps.meter import Means, explosion_limit


class LaneSums:
    """Sums and losses of the steps since the last reading; read by the host once per point."""

    def __init__(
        self, num_trials: int, metrics: Sequence[str], num_steps: int, device: torch.device
    ) -> None:
        self._names = ("loss", *metrics)
        self._totals = torch.zeros(len(self._names), num_trials, dtype=torch.float64, device=device)
        self._losses = torch.zeros(num_steps, num_trials, dtype=torch.float64, device=device)
        self.limits: dict[int, float] = {}
        """Of every trial, set by the first loss there ever was."""

    @property
    def tensors(self) -> list[Tensor]:
        """All that a step changes."""
        return [self._totals, self._losses]

    def add(self, position: Tensor, losses: Tensor, metrics: Sequence[Tensor], count: int) -> None:
        """A step at a place of the epoch: the mean loss and the metrics' values of every trial."""
        losses = losses.detach().to(torch.float64)
        self._losses.index_copy_(0, position, losses.unsqueeze(0))
        sums = [values.to(torch.float64).sum(dim=1) for values in metrics]
        self._totals.add_(torch.stack([losses * count, *sums]))

    def means(self, first: int, num_steps: int, num_samples: int) -> list[Means]:
        """Over the steps from that place of the epoch on; starts anew."""
        losses = self._losses[first : first + num_steps]
        numbers = torch.cat([self._totals / num_samples, losses[:1]]).T.tolist()
        self._totals.zero_()
        return [
            self._means_of(trial, row, losses, num_samples, num_steps)
            for trial, row in enumerate(numbers)
        ]

    def _means_of(
        self, trial: int, row: Sequence[float], losses: Tensor, num_samples: int, num_steps: int
    ) -> Means:
        *values, first_loss = row
        limit = self.limits.setdefault(trial, explosion_limit(first_loss))
        means = dict(zip(self._names, values, strict=True))
        step, loss = None, None
        if not (math.isfinite(means["loss"]) and means["loss"] <= limit):
            step, loss = _first_bad(losses[:, trial].tolist(), limit)
        return Means(means, num_samples, num_steps, step, loss)


def _first_bad(losses: Sequence[float], limit: float) -> tuple[int | None, float | None]:
    for step, loss in enumerate(losses, start=1):
        if not math.isfinite(loss) or loss > limit:
            return step, loss if math.isfinite(loss) else None
    return None, None
