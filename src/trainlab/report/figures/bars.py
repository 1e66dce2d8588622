"""Bars: what a step's time and memory are made of, a stack per cell."""

from collections import defaultdict

from trainlab.analysis.charts import OUTSIDE, REST, Bars, bars_of
from trainlab.analysis.evidence import Evidence
from trainlab.analysis.finding import MOST_CELLS
from trainlab.analysis.measurement import Measurement
from trainlab.analysis.operators import is_on_device, outside_us, ranked
from trainlab.words.numbers import MIB, bare_operator

MOST_OPERATORS = 9
"""Operators with a part of their own in a chart of shares; all others are one part."""


def phase_bars(evidence: Evidence, mode: str) -> Bars | None:
    """Where the time of a step goes, in milliseconds."""
    measured = evidence.measured_in(mode)[:MOST_CELLS]
    return bars_of(mode, [(m.trial.cell, m.summary.phases_ms) for m in measured])


def memory_bars(evidence: Evidence, mode: str) -> Bars | None:
    """What the memory at its peak holds, in MiB; the parts add up to the peak."""
    rows = []
    for measurement in evidence.measured_in(mode)[:MOST_CELLS]:
        if (memory := measurement.memory) is not None:
            parts = {kind: held / MIB for kind, held in memory.at_peak.items() if held}
            parts["other"] = memory.other_bytes / MIB
            rows.append((measurement.trial.cell, parts))
    return bars_of(mode, rows)


def operator_bars(evidence: Evidence, mode: str) -> Bars | None:
    """What share of a profiled step each operator takes, in per cent; the small ones together."""
    shares = [
        (measurement.trial.cell, _operator_shares(measurement))
        for measurement in evidence.measured_in(mode)[:MOST_CELLS]
        if measurement.operators is not None
    ]
    largest: dict[str, float] = {}
    for _, by_name in shares:
        for name, share in by_name.items():
            largest[name] = max(share, largest.get(name, 0.0))
    largest.pop(OUTSIDE, None)
    top = sorted(largest, key=lambda name: -largest[name])[:MOST_OPERATORS]
    rows = []
    for cell, by_name in shares:
        parts = {name: by_name.get(name, 0.0) for name in top}
        parts[REST] = sum(v for name, v in by_name.items() if name not in (*top, OUTSIDE))
        if OUTSIDE in by_name:
            parts[OUTSIDE] = by_name[OUTSIDE]
        rows.append((cell, parts))
    return bars_of(mode, rows)


def _operator_shares(measurement: Measurement) -> dict[str, float]:
    record = measurement.operators
    assert record is not None
    shares: dict[str, float] = defaultdict(float)
    for operator in ranked(record):
        shares[bare_operator(operator.name)] += 100 * operator.share
    if not is_on_device(record):
        shares[OUTSIDE] = 100 * max(0.0, outside_us(record) / record.profiled_step_us)
    return shares
