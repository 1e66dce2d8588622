"""What each instrument costs: the same step with it and without it, in the same process."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from trainlab.analyse.cost.measurement import Measurement
from trainlab.record.cost import CostRecord
from trainlab.stats.median import median_interval


@dataclass(frozen=True)
class LedgerRow:
    """One instrument's price: how much longer a watched step takes, as a share of a bare one."""

    instrument: str
    added: float
    low: float
    high: float
    """95 % interval of the median over pairs; the whole range where there are fewer than six."""
    num_pairs: int


def ledger(found: Measurement) -> list[LedgerRow]:
    """A row per instrument that watched this cell."""
    rows = [_row("phases", [ratio for record in found.costs for ratio in round_ratios(record)])]
    if found.layers is not None and found.layers.bare_ms:
        rows.append(_row("layers", _ratios(found.layers.bare_ms, found.layers.watched_ms)))
    if found.operators is not None and found.operators.bare_ms:
        bare, profiled = found.operators.bare_ms, found.operators.profiled_ms
        rows.append(_row("operators (torch's profiler)", _ratios(bare, profiled)))
    if found.probe_price is not None:
        price = found.probe_price
        rows.append(_row("probes of the study", _ratios(price.bare_ms, price.watched_ms)))
    return rows


def round_ratios(record: CostRecord) -> list[float]:
    """Marked over bare, per pair of neighbouring rounds: a machine that drifts hits both alike."""
    marked = [sum(parts) for parts in zip(*record.phases_ms.values(), strict=True)]
    size = record.round_steps
    return [
        statistics.median(marked[start : start + size])
        / statistics.median(record.step_ms[start : start + size])
        for start in range(0, len(marked), size)
    ]


def _ratios(bare_ms: Sequence[float], watched_ms: Sequence[float]) -> list[float]:
    return [watched / bare for bare, watched in zip(bare_ms, watched_ms, strict=False)]


def _row(instrument: str, ratios: Sequence[float]) -> LedgerRow:
    middle, low, high = median_interval(ratios)
    return LedgerRow(instrument, middle - 1, low - 1, high - 1, len(ratios))
