"""What each instrument costs: the same step with it and without it, in the same process."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainlab.analysis.cost.measurement import Measurement
from trainlab.record.cost import CostRecord
from trainlab.stats.median import FEWEST_FOR_INTERVAL, median_interval


@dataclass(frozen=True)
class Overhead:
    """How much longer a watched step takes, as a share of a bare one."""

    instrument: str
    """`phases`, `layers`, `operators` or `probes`."""
    added: float
    low: float
    high: float
    """95% interval of the median over pairs; the whole range where there are fewer than six."""
    num_pairs: int

    @property
    def is_range(self) -> bool:
        """Whether there are too few pairs for an interval, so that the ends are those of the range."""
        return self.num_pairs < FEWEST_FOR_INTERVAL


def overheads(measurement: Measurement) -> list[Overhead]:
    """One per instrument that watched this cell and has bare steps to compare with."""
    ratios = {"phases": [r for record in measurement.costs for r in round_ratios(record)]}
    if (layers := measurement.layers) is not None:
        ratios["layers"] = _ratios(layers.bare_ms, layers.watched_ms)
    if (operators := measurement.operators) is not None:
        ratios["operators"] = _ratios(operators.bare_ms, operators.profiled_ms)
    if (probes := measurement.probe_price) is not None:
        ratios["probes"] = _ratios(probes.bare_ms, probes.watched_ms)
    return [_overhead(instrument, values) for instrument, values in ratios.items() if values]


def round_ratios(record: CostRecord) -> list[float]:
    """Marked over bare, per turn that has both: a machine that drifts hits both alike."""
    marked_ms = [sum(phases) for phases in zip(*record.phases_ms.values(), strict=True)]
    if record.turns:
        return list(_turn_ratios(record, marked_ms))
    size = record.round_steps
    return [
        statistics.median(marked_ms[start : start + size])
        / statistics.median(record.step_ms[start : start + size])
        for start in range(0, len(marked_ms), size)
    ]


def _turn_ratios(record: CostRecord, marked_ms: Sequence[float]) -> Iterator[float]:
    start = 0
    for turn, bare_ms in zip(record.turns, record.bare_turns_ms(), strict=True):
        if turn.num_marked:
            marked = statistics.median(marked_ms[start : start + turn.num_marked])
            yield marked / statistics.median(bare_ms)
        start += turn.num_marked


def _ratios(bare_ms: Sequence[float], watched_ms: Sequence[float]) -> list[float]:
    return [watched / bare for bare, watched in zip(bare_ms, watched_ms, strict=False)]


def _overhead(instrument: str, ratios: Sequence[float]) -> Overhead:
    middle, low, high = median_interval(ratios)
    return Overhead(instrument, middle - 1, low - 1, high - 1, len(ratios))
