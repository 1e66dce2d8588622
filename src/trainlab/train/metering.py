"""Sample-weighted means of loss and metrics, gathered without slowing the steps they measure."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from trainlab.data.nesting import detached
from trainlab.errors import WorkloadError
from trainlab.train.step import StepOutcome, check_mean
from trainlab.workloads.user_code import Running
from trainlab.workloads.workload import WholeMetric, accuracy

Metric = Callable[[Any, Any], Tensor]

EXPLODED = 1e6
"""A training loss, as the mean over the updates of a point, that is more than so many times the larger of
1 and the first update's loss has diverged, though it is finite: a regression's may start large, another's
near 0. No loss that is learned from gets there and back."""


@dataclass(frozen=True)
class Means:
    """Loss and metrics of some steps, each step weighted by its samples."""

    values: Mapping[str, float]
    """`loss`, each metric, and what else a step of the user's own logs."""
    num_samples: int
    num_steps: int
    first_bad_step: int | None
    """Which of the steps, from 1, was the first whose loss was not finite or beyond the limit."""
    bad_loss: float | None = None
    """Its loss; None where that is not finite."""
    samples_of: Mapping[str, int] = field(default_factory=dict)
    """Of values that only some of the steps logged: the samples of those, over which they are means."""


MOST_PENDING_BYTES = 1 << 20
"""Of outputs that no accuracy was computed of yet."""


class Meter:
    """Adds up loss and metrics over steps; reads the device only when asked for means. The losses of steps,
    and their outputs where accuracy is the one metric, are kept and reduced together: fewer, larger
    operations. Other metrics are computed step by step: they may depend on what else is in the batch."""

    def __init__(
        self,
        metrics: Mapping[str, Metric],
        device: torch.device,
        *,
        stops_explosions: bool = False,
        per_step: int = 1,
        whole: Mapping[str, WholeMetric] | None = None,
        needs_outputs: bool = True,
        max_pending_steps: int = 64,
    ) -> None:
        """`per_step`: batches of a step, fewer perhaps of the last one; `whole`: metrics that are no means
        over samples, computed of all that was added; `needs_outputs`: False where steps may give none for
        the metrics, which are then left out."""
        self._whole = whole or {}
        self.metrics, self._per_step, self._needs_outputs = metrics, per_step, needs_outputs
        # float64 sums are exact to far below what is shown; Apple GPUs have only float32.
        self._dtype = torch.float32 if device.type == "mps" else torch.float64
        self._device, self._max_pending_steps = device, max_pending_steps
        self._stops_explosions, self._joins = stops_explosions, [*metrics.values()] == [accuracy]
        self.limit: float | None = None
        """The loss beyond which training has exploded; None before the first was read."""
        self.reset()

    def reset(self) -> None:
        for name, metric in self._whole.items():
            with Running(f"metrics.{name}"):
                metric.reset()
        self._drop_pending()
        # The loss comes first.
        self._sums = {"loss": torch.zeros((), dtype=self._dtype, device=self._device)}
        self._samples = {"loss": 0}
        """Over which each sum goes: not all, of what only some of the steps log."""
        self._losses: list[Tensor] = []
        self._counts: list[Tensor] = []
        self._num_batches = 0

    def add(self, outcome: StepOutcome) -> None:
        for earlier in outcome.before:
            self.add(earlier)
        loss, outputs, targets, count, logged, _ = outcome
        check_mean(loss)
        self._num_batches += 1
        self._pending.append((loss.detach() if loss.requires_grad else loss, count))
        for name, value in logged.items():
            self._logged.setdefault(name, []).append((value, count))
        if outputs is None:
            if self._num_batches == 1 and not self._needs_outputs:
                self.metrics = {}
            if self.metrics or self._whole:
                raise WorkloadError(
                    "metrics: the step gave no outputs for them; let it give `outputs` and `targets` too"
                )
        for name, whole in self._whole.items():
            with Running(f"metrics.{name}"):
                whole.update(detached(outputs), targets)
        if self.metrics:
            outputs = detached(outputs)
        if self._joins and isinstance(outputs, Tensor) and isinstance(targets, Tensor):
            self._outputs.append((outputs, targets, count, _version(outputs)))
            # The storage, not the view: a pending slice keeps all of it alive.
            self._pending_bytes += outputs.untyped_storage().nbytes() + targets.nbytes
        else:
            self._measure(outputs, targets, count)
        is_much = self._pending_bytes >= MOST_PENDING_BYTES
        if is_much or len(self._pending) >= self._max_pending_steps:
            self._reduce()

    def means(self) -> Means:
        """Over the steps since the last reset. Waits for the device."""
        self._reduce()
        totals = torch.stack(list(self._sums.values())).tolist()
        samples = self._samples
        means = {n: one / max(samples[n], 1) for n, one in zip(self._sums, totals, strict=True)}
        for name, metric in self._whole.items():
            means |= _computed(name, metric)
        if self._stops_explosions and self.limit is None:
            self.limit = explosion_limit(float(self._losses[0][0]))
        limit = math.inf if self.limit is None else self.limit
        bad = first_bad(means["loss"], self._losses, limit, self._per_step)
        num_steps = -(-self._num_batches // self._per_step)
        fewer = {name: count for name, count in samples.items() if count != samples["loss"]}
        return Means(means, samples["loss"], num_steps, *bad, fewer)

    def _reduce(self) -> None:
        if not self._pending:
            return
        self._losses.append(self._stacked([loss for loss, _ in self._pending]))
        self._counts.append(self._add_up("loss", self._losses[-1], [n for _, n in self._pending]))
        self._measure_together()
        for name, logged in self._logged.items():
            self._add_up(name, self._stacked([one for one, _ in logged]), [n for _, n in logged])
        self._drop_pending()

    def _stacked(self, values: Sequence[Tensor]) -> Tensor:
        return torch.stack([one.to(self._device) for one in values]).to(self._dtype)

    def _add_up(self, name: str, values: Tensor, counts: Sequence[int]) -> Tensor:
        """Each value counts as often as its step has samples; returns how often, on the device."""
        weights = torch.tensor(counts, dtype=self._dtype).to(self._device, non_blocking=True)
        self._add(name, (values * weights).sum(), sum(counts))
        return weights

    def _add(self, name: str, total: Tensor, count: int) -> None:
        self._sums[name] = self._sums[name] + total if name in self._sums else total
        self._samples[name] = self._samples.get(name, 0) + count

    def _measure(self, outputs: Any, targets: Any, count: int) -> None:
        for name, metric in self.metrics.items():
            with Running(f"metrics.{name}"):
                found = metric(outputs, targets)
            self._add(name, per_sample(name, found, count).to(self._dtype).sum(), count)

    def _measure_together(self) -> None:
        """The accuracy of all pending steps, one below the other where their outputs have one form."""
        for outputs, _, _, version in self._outputs:
            if _version(outputs) != version:
                raise WorkloadError(
                    "model: a later step overwrote the outputs of an earlier one; return a copy"
                )
        forms = {(outputs.shape[1:], targets.shape[1:]) for outputs, targets, _, _ in self._outputs}
        if len(forms) == 1:
            every, of_targets, counts, _ = zip(*self._outputs, strict=True)
            self._measure(torch.cat(every), torch.cat(of_targets), sum(counts))
        else:
            for outputs, targets, count, _ in self._outputs:
                self._measure(outputs, targets, count)

    def _drop_pending(self) -> None:
        self._pending: list[tuple[Tensor, int]] = []
        self._outputs: list[tuple[Tensor, Tensor, int, int]] = []
        """With their targets, samples and version."""
        self._logged: dict[str, list[tuple[Tensor, int]]] = {}
        self._pending_bytes = 0


def _computed(name: str, metric: WholeMetric) -> dict[str, float]:
    """The value of a metric of a whole set, or its values by name."""
    with Running(f"metrics.{name}"):
        given = metric.compute()
    several = isinstance(given, Mapping)
    values = {f"{name}_{n}": v for n, v in given.items()} if several else {name: given}
    for place, value in values.items():
        if torch.as_tensor(value).numel() != 1:
            shape = tuple(torch.as_tensor(value).shape)
            raise WorkloadError(f"metrics.{place}: computed shape {shape}, must be one number")
    return {place: float(value) for place, value in values.items()}


def _version(tensor: Tensor) -> int:
    """Grows with every change in place; tensors made in inference mode have none."""
    return 0 if tensor.is_inference() else tensor._version


def explosion_limit(first_loss: float) -> float:
    """The loss beyond which training has exploded, by that of the first update."""
    return EXPLODED * max(1.0, abs(first_loss)) if math.isfinite(first_loss) else math.inf


def first_bad(
    mean: float, losses: Sequence[Tensor], limit: float, per_step: int = 1
) -> tuple[int | None, float | None]:
    """The first step, from 1, whose loss is not finite or beyond the limit, and that loss where it is
    finite. Looked for where the mean over the steps is not sound."""
    if (math.isfinite(mean) and mean <= limit) or not losses:
        return None, None
    every = torch.cat(list(losses))
    bad_steps = (~torch.isfinite(every) | (every > limit)).nonzero()
    if not len(bad_steps):
        return None, None
    place = int(bad_steps[0])
    loss = float(every[place])
    return place // per_step + 1, loss if math.isfinite(loss) else None


def per_sample(name: str, values: Any, count: int) -> Tensor:
    """Refuses a metric that averages, or broadcasts odd targets: its mean would be silently wrong."""
    if not isinstance(values, Tensor) or values.shape != (count,):
        is_tensor = isinstance(values, Tensor)
        got = f"shape {tuple(values.shape)}" if is_tensor else f"a {type(values).__name__}"
        rule = f"must be one value per sample: a tensor of shape ({count},)"
        raise WorkloadError(f"metrics.{name}: gave {got} for {count} samples, {rule}")
    return values
