"""Bars: what a step's time and memory are made of, a stack per cell."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainlab.analyse.cost.measurement import Measurement
from trainlab.analyse.cost.operators import outside_us, ranked
from trainlab.analyse.evidence import Evidence
from trainlab.report.run_data import MOST_CELLS
from trainlab.words.numbers import MIB, bare_operator

MOST_OPERATORS = 9
"""Operators told apart in a chart of shares; the rest is one part."""
REST = ""
"""The name of the part that is the rest."""
OUTSIDE = "outside"
"""The part of a step that no operator accounts for."""


@dataclass(frozen=True)
class Part:
    """One piece of one cell's bar."""

    cell: str
    name: str
    value: float
    """In the unit of the bars."""
    share: float


@dataclass(frozen=True)
class Bars:
    """Stacked bars, one per cell, whose parts add up to the whole."""

    mode: str
    names: tuple[str, ...]
    """The parts in the order of the stack."""
    parts: tuple[Part, ...]


def phase_bars(evidence: Evidence, mode: str) -> Bars | None:
    """Where the time of a step goes, in milliseconds."""
    found = evidence.measured_in(mode)[:MOST_CELLS]
    return _bars(mode, [(one.trial.cell, one.summary.phases_ms) for one in found])


def memory_bars(evidence: Evidence, mode: str) -> Bars | None:
    """What the memory at its peak holds, in MiB."""
    rows = [
        (one.trial.cell, memory_parts(one))
        for one in evidence.measured_in(mode)[:MOST_CELLS]
        if one.memory is not None
    ]
    return _bars(mode, rows)


def memory_parts(found: Measurement) -> dict[str, float]:
    """MiB of each kind alive at the peak; they add up to it."""
    assert found.memory is not None
    parts = {name: held / MIB for name, held in found.memory.at_peak.items() if held}
    return {**parts, "other": found.memory.other_bytes / MIB}


def operator_bars(evidence: Evidence, mode: str) -> Bars | None:
    """What share of a profiled step each operator takes, in per cent; the small ones together."""
    found = [one for one in evidence.measured_in(mode)[:MOST_CELLS] if one.operators is not None]
    shares = [(one.trial.cell, _operator_shares(one)) for one in found]
    most: dict[str, float] = {}
    for _, by_name in shares:
        for name, share in by_name.items():
            most[name] = max(share, most.get(name, 0.0))
    known = sorted((name for name in most if name != OUTSIDE), key=lambda name: -most[name])
    top = known[:MOST_OPERATORS]
    rows = []
    for cell, by_name in shares:
        parts = {name: by_name.get(name, 0.0) for name in top}
        parts[REST] = sum(v for name, v in by_name.items() if name not in (*top, OUTSIDE))
        if OUTSIDE in by_name:
            parts[OUTSIDE] = by_name[OUTSIDE]
        rows.append((cell, parts))
    return _bars(mode, rows)


def _operator_shares(found: Measurement) -> dict[str, float]:
    assert found.operators is not None
    shares: dict[str, float] = {}
    for one in ranked(found.operators):
        name = bare_operator(one.name)
        shares[name] = shares.get(name, 0.0) + 100 * one.share
    if not any(row.self_device_us for row in found.operators.rows):
        outside = outside_us(found.operators) / found.operators.profiled_step_us
        shares[OUTSIDE] = 100 * max(0.0, outside)
    return shares


def _bars(mode: str, rows: Sequence[tuple[str, Mapping[str, float]]]) -> Bars | None:
    names = tuple(dict.fromkeys(name for _, parts in rows for name in parts))
    found = [
        Part(cell, name, value, value / whole)
        for cell, parts in rows
        if (whole := sum(parts.values())) > 0
        for name, value in parts.items()
    ]
    return Bars(mode, names, tuple(found)) if found else None
