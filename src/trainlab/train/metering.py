"""Sample-weighted means of loss and metrics, gathered without slowing the steps they measure."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from trainlab.data.nesting import detached
from trainlab.errors import WorkloadError
from trainlab.train.step import StepOutcome, check_mean
from trainlab.workloads.user_code import Running
from trainlab.workloads.workload import WholeMetric

Metric = Callable[[Any, Any], Tensor]

EXPLODED = 1e6
"""A training loss, as the mean over the updates of a point, that is more than so many times the larger of
1 and the first update's loss has diverged, though it is finite.

Relative to the first loss, so that a regression on large numbers, whose loss starts large, is not taken for
one that explodes; and to 1, so that a model whose loss starts near 0 may lose that. No loss that is learned
from gets there and back."""


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


class Meter:
    """Adds up loss and metrics over steps; reads the device only when asked for means.

    A step only leaves references to its loss and outputs. They are reduced together once
    `max_pending_bytes` of outputs are pending or a mean is asked for: far fewer, larger
    operations than reducing each step, and a bounded amount of memory.
    """

    def __init__(
        self,
        metrics: Mapping[str, Metric],
        device: torch.device,
        *,
        stops_explosions: bool = False,
        per_step: int = 1,
        whole: Mapping[str, WholeMetric] | None = None,
        needs_outputs: bool = True,
        max_pending_bytes: int = 1 << 20,
        max_pending_steps: int = 64,
    ) -> None:
        """`per_step`: batches of a step, fewer perhaps of the last one; `whole`: metrics that are no means
        over samples, computed of all that was added; `needs_outputs`: False where steps may give none for
        the metrics, which are then left out."""
        self._whole = whole or {}
        self.metrics, self._per_step, self._needs_outputs = metrics, per_step, needs_outputs
        # float64 sums are exact to far below what is shown; Apple GPUs have only float32.
        self._dtype = torch.float32 if device.type == "mps" else torch.float64
        self._device = device
        self._max_pending_bytes = max_pending_bytes
        self._max_pending_steps = max_pending_steps
        self._stops_explosions = stops_explosions
        self.limit: float | None = None
        """The loss beyond which training has exploded; None before the first was read."""
        self._joins: bool | None = None
        self._last_shape: torch.Size | None = None
        """Of the outputs of the last step, which with its targets keep so many bytes alive."""
        self._last_bytes = 0
        self.reset()

    def reset(self) -> None:
        """Forgets everything added so far."""
        self._drop_pending()
        for name, metric in self._whole.items():
            with Running(f"metrics.{name}"):
                metric.reset()
        self._sums = torch.zeros(1 + len(self.metrics), dtype=self._dtype, device=self._device)
        self._logged_sums: dict[str, Tensor | float] = {}
        self._logged_samples: dict[str, int] = {}
        self._num_samples = self._num_batches = 0
        self._reduced_losses: list[Tensor] = []
        self._reduced_counts: list[Tensor] = []

    def add(self, outcome: StepOutcome) -> None:
        """Takes in one step."""
        for earlier in outcome.before:
            self.add(earlier)
        loss, outputs, targets, count, logged, _ = outcome
        check_mean(loss)
        self._losses.append(loss.detach() if loss.requires_grad else loss)
        self._counts.append(count)
        for name, value in logged.items():
            self._logged.setdefault(name, []).append((value, count))
        are_tensors = isinstance(outputs, Tensor) and isinstance(targets, Tensor)
        if outputs is None:
            self._add_no_outputs()
        elif self._whole:
            for name, metric in self._whole.items():
                with Running(f"metrics.{name}"):
                    metric.update(detached(outputs), targets)
        if self.metrics:
            is_plain = are_tensors and not outputs.requires_grad
            self._outputs.append(outputs if is_plain else detached(outputs))
            self._targets.append(targets)
            if are_tensors:
                self._versions.append(_version(outputs))
                self._pending_bytes += self._bytes_of(outputs, targets)
        too_many = len(self._losses) >= self._max_pending_steps
        is_nested = bool(self.metrics) and not are_tensors
        if too_many or is_nested or self._pending_bytes >= self._max_pending_bytes:
            self._reduce()

    def _bytes_of(self, outputs: Tensor, targets: Tensor) -> int:
        shape = outputs.shape
        if shape != self._last_shape:
            # The storage, not the view: a pending slice keeps all of it alive.
            self._last_bytes = outputs.untyped_storage().nbytes() + targets.nbytes
            self._last_shape = shape
        return self._last_bytes

    def _add_no_outputs(self) -> None:
        is_first = self._num_batches + len(self._losses) == 1
        if is_first and not self._needs_outputs:
            self.metrics, self._sums = {}, self._sums[:1]
        if self.metrics or self._whole:
            raise WorkloadError(
                "metrics: the step gave no outputs for them; let it give `outputs` and `targets` too"
            )

    def means(self) -> Means:
        """Over the steps since the last reset. Waits for the device."""
        self._reduce()
        values = (self._sums / max(self._num_samples, 1)).tolist()
        means = dict(zip(("loss", *self.metrics), values, strict=True))
        of_logged = self._logged_samples
        means |= {n: float(s) / max(of_logged[n], 1) for n, s in self._logged_sums.items()}
        for name, metric in self._whole.items():
            means |= _computed(name, metric)
        bad = first_bad(means["loss"], self._reduced_losses, self._loss_limit(), self._per_step)
        num_steps = -(-self._num_batches // self._per_step)
        fewer = {n: count for n, count in of_logged.items() if count != self._num_samples}
        return Means(means, self._num_samples, num_steps, *bad, fewer)

    def _loss_limit(self) -> float:
        """Set by the first loss there ever was; read from the device once."""
        if not self._stops_explosions or not self._reduced_losses:
            return math.inf
        if self.limit is None:
            self.limit = explosion_limit(float(self._reduced_losses[0][0]))
        return self.limit

    def _reduce(self) -> None:
        if not self._losses:
            return
        losses = torch.stack(self._losses).to(self._dtype)
        weights = torch.tensor(self._counts, dtype=self._dtype).to(self._device, non_blocking=True)
        self._sums[0] += (losses * weights).sum()
        if self.metrics:
            for outputs, targets, count in self._pending():
                for index, (name, metric) in enumerate(self.metrics.items(), start=1):
                    with Running(f"metrics.{name}"):
                        found = metric(outputs, targets)
                    values = per_sample(name, found, count)
                    self._sums[index] += values.to(self._dtype).sum()
        for name, logged in self._logged.items():
            each = torch.stack([one.to(self._device) for one, _ in logged]).to(self._dtype)
            counts = [count for _, count in logged]
            of_each = weights
            if len(counts) != len(self._counts):
                of_each = torch.tensor(counts, dtype=self._dtype).to(self._device)
            sums, samples = self._logged_sums, self._logged_samples
            sums[name] = sums.get(name, 0.0) + (each * of_each).sum()
            samples[name] = samples.get(name, 0) + sum(counts)
        self._reduced_losses.append(losses)
        self._reduced_counts.append(weights)
        self._num_samples += sum(self._counts)
        self._num_batches += len(self._counts)
        self._drop_pending()

    def _pending(self) -> Iterator[tuple[Any, Any, int]]:
        """Outputs, targets and samples of the steps: together where that gives the same, else of each."""
        versions = [_version(one) for one in self._outputs if isinstance(one, Tensor)]
        if self._versions != versions[: len(self._versions)]:
            raise WorkloadError(
                "model: a later step overwrote the outputs of an earlier one; return a copy"
            )
        apart = list(zip(self._outputs, self._targets, self._counts, strict=True))
        if len(apart) == 1 or not self._is_joined(apart):
            yield from apart
        else:
            yield torch.cat(self._outputs), torch.cat(self._targets), sum(self._counts)

    def _is_joined(self, apart: Sequence[tuple[Any, Any, int]]) -> bool:
        """Whether metrics of some steps' outputs, one below the other, are those of each step: not where
        samples do not lie along the first dimension. Tried on the first two steps, once."""
        if self._joins is None:
            self._joins = all(len(outputs) == count for outputs, _, count in apart) and all(
                _gives_the_same(name, metric, apart[:2]) for name, metric in self.metrics.items()
            )
        return self._joins

    def _drop_pending(self) -> None:
        self._losses: list[Tensor] = []
        self._outputs: list[Any] = []
        self._versions: list[int] = []
        self._targets: list[Any] = []
        self._logged: dict[str, list[tuple[Tensor, int]]] = {}
        self._counts: list[int] = []
        self._pending_bytes = 0


def _computed(name: str, metric: WholeMetric) -> dict[str, float]:
    """The value of a metric of a whole set, or its values by name."""
    with Running(f"metrics.{name}"):
        given = metric.compute()
    values = (
        {f"{name}_{n}": v for n, v in given.items()}
        if isinstance(given, Mapping)
        else {name: given}
    )
    for place, value in values.items():
        if torch.as_tensor(value).numel() != 1:
            shape = tuple(torch.as_tensor(value).shape)
            raise WorkloadError(f"metrics.{place}: computed shape {shape}, must be one number")
    return {place: float(value) for place, value in values.items()}


def _gives_the_same(name: str, metric: Metric, apart: Sequence[tuple[Any, Any, int]]) -> bool:
    with Running(f"metrics.{name}"):
        each = [metric(outputs, targets) for outputs, targets, _ in apart]
    for values, (_, _, count) in zip(each, apart, strict=True):
        per_sample(name, values, count)
    try:
        outputs = torch.cat([outputs for outputs, _, _ in apart])
        targets = torch.cat([targets for _, targets, _ in apart])
        return torch.equal(metric(outputs, targets), torch.cat(each))
    except (RuntimeError, IndexError):
        return False


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
    if not isinstance(values, Tensor):
        raise WorkloadError(
            f"metrics.{name}: gave a {type(values).__name__} for {count} samples, "
            f"must be one value per sample: a tensor of shape ({count},)"
        )
    if values.shape != (count,):
        raise WorkloadError(
            f"metrics.{name}: gave shape {tuple(values.shape)} for {count} samples, "
            f"must be one value per sample: ({count},)"
        )
    return values
