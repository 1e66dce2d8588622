"""Operators ranked, from the profiler's raw sums; and the old seven-column table."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

from trainlab.record.cost import OperatorRow, OperatorsRecord

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
