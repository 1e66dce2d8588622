"""Operators: what ran inside a step, ranked, and how it grows with the batch."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import Literal

from trainlab.analysis.finding import Finding
from trainlab.analysis.scaling import BatchSeries
from trainlab.record.cost_record import OperatorRow, OperatorsRecord
from trainlab.words import Words
from trainlab.words.numbers import bare_operator

Sort = Literal["self", "total", "calls", "memory"]


@dataclass(frozen=True)
class Operator:
    """One operator over all phases. Times are of profiled steps: shares and ratios, not speeds."""

    name: str
    shapes: str
    """Of its inputs, where the profile was taken by shape and shapes are kept apart."""
    calls: int
    """Of a whole pass over the test set, or of all profiled training steps."""
    calls_per_step: float
    self_us: float
    """Per step, on the CPU or, where the step ran on a GPU, on the device."""
    share: float
    """Of the profiled step's wall time (CPU), or of all kernel time (GPU)."""
    total_us: float
    average_us: float
    """Total time of one call."""
    memory_bytes: int
    """Allocated less freed, per step."""
    outermost_calls_per_step: float
    """Calls that no other operator made; 0 in records that do not tell."""


def ranked(
    record: OperatorsRecord,
    sort: Sort = "self",
    *,
    by_shape: bool = True,
    phases: Collection[str] | None = None,
) -> list[Operator]:
    """Operators, the costliest first. By self time, so that wrappers do not count twice.

    Not `by_shape`: the calls of all shapes together. `phases`: what ran in these alone.
    """
    on_device = is_on_device(record)
    all_us = record.num_steps * (device_us(record) if on_device else record.profiled_step_us)
    groups: dict[tuple[str, str], list[OperatorRow]] = {}
    for row in record.rows:
        if row.kind == "operator" and (phases is None or row.phase in phases):
            groups.setdefault((row.name, row.shapes if by_shape else ""), []).append(row)
    operators = [
        _operator(name, shapes, rows, record, all_us, on_device)
        for (name, shapes), rows in groups.items()
    ]
    fields = {"self": "self_us", "total": "total_us", "calls": "calls", "memory": "memory_bytes"}
    return sorted(operators, key=attrgetter(fields[sort]), reverse=True)


def is_on_device(record: OperatorsRecord) -> bool:
    """Whether operators ran kernels on a GPU: their times and shares are then those of the device."""
    return any(row.self_device_us for row in record.rows)


def device_us(record: OperatorsRecord) -> float:
    """Time of all kernels of a step, by the operators that launched them."""
    return sum(r.self_device_us for r in record.rows if r.kind == "operator") / record.num_steps


def outside_us(record: OperatorsRecord) -> float:
    """Wall time of a profiled step, on the host, that no operator accounts for: Python, the profiler."""
    inside = sum(row.self_cpu_us for row in record.rows if row.kind == "operator")
    return record.profiled_step_us - inside / record.num_steps


def classic_table(record: OperatorsRecord, top: int = 10) -> str:
    """The seven columns people know from PyTorch, to compare with an old report."""
    sums: dict[str, list[float]] = {}
    for row in record.rows:
        if row.kind == "operator":
            self_total_calls = sums.setdefault(row.name, [0.0, 0.0, 0])
            self_total_calls[0] += row.self_cpu_us * record.whole
            self_total_calls[1] += row.total_cpu_us * record.whole
            self_total_calls[2] += row.calls * record.whole
    all_us = sum(self_us for self_us, _, _ in sums.values()) or 1.0
    ranked_sums = sorted(sums.items(), key=lambda item: -item[1][0])[:top]
    width = max([4, *(len(name) for name, _ in ranked_sums)])
    headings = ("Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg", "# of Calls")
    lines = [f"{'Name':>{width}}  " + "  ".join(f"{heading:>12}" for heading in headings)]
    for name, (self_us, total_us, calls) in ranked_sums:
        cells = (
            f"{self_us / all_us:.2%}",
            _time(self_us),
            f"{total_us / all_us:.2%}",
            _time(total_us),
            _time(total_us / calls),
            f"{calls:.0f}",
        )
        lines.append(f"{name:>{width}}  " + "  ".join(f"{cell:>12}" for cell in cells))
    lines.append(f"Self CPU time total: {_time(all_us)}")
    return "\n".join(lines)


def _operator(
    name: str,
    shapes: str,
    rows: Sequence[OperatorRow],
    record: OperatorsRecord,
    all_us: float,
    on_device: bool,
) -> Operator:
    num_steps = record.num_steps
    calls = sum(row.calls for row in rows)
    self_us = sum(row.self_device_us if on_device else row.self_cpu_us for row in rows)
    total_us = sum(row.total_device_us if on_device else row.total_cpu_us for row in rows)
    memory = sum(row.self_device_bytes if on_device else row.self_cpu_bytes for row in rows)
    return Operator(
        name=name,
        shapes=shapes,
        calls=round(calls * record.whole),
        calls_per_step=calls / num_steps,
        self_us=self_us / num_steps,
        share=self_us / all_us if all_us else 0.0,
        total_us=total_us / num_steps,
        average_us=total_us / calls,
        memory_bytes=round(memory / num_steps),
        outermost_calls_per_step=sum(row.outermost_calls for row in rows) / num_steps,
    )


def _time(us: float) -> str:
    if us >= 1e6:
        return f"{us / 1e6:.3f}s"
    return f"{us / 1e3:.3f}ms" if us >= 1e3 else f"{us:.3f}us"


DOMINATES = 0.5
"""An operator that takes at least this share dominates; below it, it only comes first."""
FORWARD = ("forward", "loss")
PER_SAMPLE = (*FORWARD, "backward")
"""The phases whose work grows with the batch; that of an optimizer depends on the parameters alone."""


@dataclass(frozen=True, kw_only=True)
class OperatorFinding(Finding):
    """A finding about one operator between two batch sizes."""

    section = "operators"

    of_mode: str
    """`train` or `inference`."""

    @property
    def weight(self) -> float:
        return float(self.of_mode == "train")

    def phrases(self, words: Words) -> dict[str, object]:
        own = {"mode_word": words.mode(self.of_mode), "operator": bare_operator(self.subject)}
        return super().phrases(words) | own


@dataclass(frozen=True, kw_only=True)
class TopOperator(OperatorFinding):
    """The operator that takes most of the step at the largest batch, and its share at the smallest."""

    kind = "top_operator"
    rank = 8

    share_a: float
    share_b: float
    first_a: str
    """The operator that takes most at the smallest batch."""
    first_share_a: float
    share_of: Literal["step", "device"]
    """What shares are of: the time of the profiled step, or that of all kernels on a GPU."""

    def statement(self, words: Words) -> str:
        whole = words("share_of_device" if self.share_of == "device" else "share_of_step")
        return self.fill(words, self._text, whole=whole, other=bare_operator(self.first_a))

    @property
    def _text(self) -> str:
        if self.first_a != self.subject:
            return "first_at_one"
        return "dominates" if min(self.share_a, self.share_b) >= DOMINATES else "first_at_both"


@dataclass(frozen=True, kw_only=True)
class OperatorGrowth(OperatorFinding):
    """How many times longer one call takes from one batch size to the next."""

    kind = "operator_growth"
    text = "growth"

    time: float
    samples: float
    average_us_a: float
    average_us_b: float


def operator_findings(series: BatchSeries) -> Iterator[Finding]:
    """Where two or more of the batch sizes were profiled."""
    by_size = {
        size: measurement.operators
        for size, measurement in series.by_size.items()
        if measurement.operators is not None
    }
    if len(by_size) > 1:
        yield _top(series, by_size)
        yield from _growth(series, by_size)


def _top(series: BatchSeries, by_size: Mapping[int, OperatorsRecord]) -> Finding:
    smallest, largest = min(by_size), max(by_size)
    small, large = (ranked(by_size[size], by_shape=False) for size in (smallest, largest))
    top = large[0]
    return TopOperator(
        subject=top.name,
        factor="batch_size",
        levels=(smallest, largest),
        cells=series.cells,
        of_mode=series.mode,
        share_a=next((op.share for op in small if op.name == top.name), 0.0),
        share_b=top.share,
        first_a=small[0].name,
        first_share_a=small[0].share,
        share_of="device" if is_on_device(by_size[largest]) else "step",
        n=1,
    )


def _growth(series: BatchSeries, by_size: Mapping[int, OperatorsRecord]) -> Iterator[Finding]:
    calls = _compared_calls(by_size)
    for small, large in pairwise(calls):
        a, b = calls[small], calls[large]
        if a.average_us <= 0:
            continue
        yield OperatorGrowth(
            subject=a.name,
            factor="batch_size",
            levels=(small, large),
            cells=series.cells,
            of_mode=series.mode,
            time=b.average_us / a.average_us,
            samples=large / small,
            average_us_a=a.average_us,
            average_us_b=b.average_us,
            n=1,
        )


def _compared_calls(by_size: Mapping[int, OperatorsRecord]) -> dict[int, Operator]:
    """One operator at every size: that which takes most of the forward and backward pass at the largest.

    torch may run the same layer by other operators at another size. Where the calls per step differ,
    it is the operator that the model's code called itself and that takes most; nothing where those
    differ too.
    """
    inner = {size: ranked(r, by_shape=False, phases=PER_SAMPLE) for size, r in by_size.items()}
    if inner[max(inner)] and (same := _at_every_size(inner, inner[max(inner)][0].name)):
        return same
    written = {
        size: [op for op in ranked(r, "total", by_shape=False, phases=FORWARD) if _is_written(op)]
        for size, r in by_size.items()
    }
    largest = written[max(written)]
    return _at_every_size(written, largest[0].name) if largest else {}


def _is_written(operator: Operator) -> bool:
    """Whether no other operator called it, in any of its calls."""
    return math.isclose(operator.outermost_calls_per_step, operator.calls_per_step)


def _at_every_size(by_size: Mapping[int, Sequence[Operator]], name: str) -> dict[int, Operator]:
    """The operator at every size; empty unless it is called equally often at all of them."""
    found = {size: op for size, ops in by_size.items() for op in ops if op.name == name}
    calls = [op.calls_per_step for op in found.values()]
    is_same = len(found) == len(by_size) and math.isclose(min(calls), max(calls))
    return found if is_same else {}
