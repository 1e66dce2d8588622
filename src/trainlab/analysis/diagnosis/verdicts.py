"""The decision rule: what the ratio of an update with a change to one without says about a limit."""

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from trainlab.record.cost import CostRecord
from trainlab.record.scripts.diagnosis import LimitName, LimitVerdict
from trainlab.stats.cost_ratio import CostComparison, Floats, compare_costs
from trainlab.stats.rounds import levels

MIN_GAIN = 0.10
"""Saving less of the time of an update does not make something a limit."""
LARGER_GAINS: Mapping[str, float] = {"batch_size": 0.40, "threads": 0.15}
"""A larger batch is nearly always cheaper per sample, and the best number of threads is rarely the one that
is used: only a large gain counts."""
SURE_GAIN = 0.03
"""The whole interval must lie beyond this."""
LEAK_SHARE = 0.5
"""A container holds what leaks if without it memory grows by less than this share."""
MIN_BENCHES = 2


def min_gain(limit: LimitName) -> float:
    """The share of time that a change must save to be called a limit."""
    return LARGER_GAINS.get(limit, MIN_GAIN)


def verdict_of(found: CostComparison, gain: float) -> LimitVerdict:
    """Confirmed: at least this gain, and surely some; refuted: surely less than this gain."""
    interval = found.ratio.interval
    if interval is None:
        return "cannot tell"
    if found.ratio.value <= 1 - gain and interval.high < 1 - SURE_GAIN:
        return "confirmed"
    return "refuted" if interval.low > 1 - gain else "cannot tell"


@dataclass(frozen=True)
class Timed:
    """A cell in one bench: what its process measured."""

    cell: str
    again: bool
    bench: str
    cost: CostRecord


def compared(
    timed: Sequence[Timed], base: str, rare: Collection[str] = ()
) -> dict[str, CostComparison]:
    """Every cell with the base, by time per sample, as one family.

    Cells of `rare` are compared by the mean over turns, which counts what happens now and then; the others
    by the level of their usual turns, which other programs disturb less.
    """
    members = list(dict.fromkeys((one.cell, one.again) for one in timed))
    cells = [cell for cell, again in members if cell != base and not again]
    if (base, False) not in members or not cells:
        return {}
    rows = [(cell, again, by_mean) for by_mean in (False, True) for cell, again in members]
    if not any(cell in rare for cell in cells):
        rows = [row for row in rows if not row[2]]
    elif all(cell in rare for cell in cells):
        rows = [row for row in rows if row[2]]
    figures, places = _figures(timed, rows), {row: place for place, row in enumerate(rows)}
    pairs = {
        cell: (places[base, False, cell in rare], places[cell, False, cell in rare])
        for cell in cells
    }
    twice = [
        (places[cell, False, by_mean], place)
        for (cell, again, by_mean), place in places.items()
        if again and (cell, False, by_mean) in places
    ]
    usable = {cell: pair for cell, pair in pairs.items() if _num_shared(figures, pair)}
    found = compare_costs(figures, list(usable.values()), twice)
    return dict(zip(usable, found, strict=True))


def _num_shared(figures: Floats, pair: tuple[int, int]) -> int:
    return int(np.isfinite(figures[pair[0]] + figures[pair[1]]).sum())


def _figures(timed: Sequence[Timed], rows: Sequence[tuple[str, bool, bool]]) -> Floats:
    """Logs of the time per sample, over the rounds that all processes of a bench share."""
    benches = list(dict.fromkeys(one.bench for one in timed))
    figures = np.full((len(rows), len(benches)), math.nan)
    for column, bench in enumerate(benches):
        members = [one for one in timed if one.bench == bench]
        shared = _shared_rounds([one.cost for one in members])
        times = [_round_ms(one.cost, shared) for one in members]
        usual = levels(times)
        for one, own, level in zip(members, times, usual, strict=True):
            size = math.log(samples_per_update(one.cost))
            by_mean = math.log(statistics.fmean(own.values()))
            for row, value in (
                ((one.cell, one.again, False), level),
                ((one.cell, one.again, True), by_mean),
            ):
                if row in rows:
                    figures[rows.index(row), column] = value - size
    return figures


def _round_ms(cost: CostRecord, shared: Collection[int]) -> dict[int, float]:
    """The time of an update by round, of those rounds; of all where it has none of them."""
    times = dict(zip((turn.round for turn in cost.turns), _turn_ms(cost), strict=True))
    return {number: ms for number, ms in times.items() if number in shared} or times


def _turn_ms(cost: CostRecord) -> list[float]:
    return [statistics.fmean(steps) for steps in cost.bare_turns_ms()]


def _shared_rounds(costs: Sequence[CostRecord]) -> set[int]:
    """Rounds that every process took part in, quiet ones where there are enough."""
    rounds = [{turn.round for turn in cost.turns} for cost in costs]
    quiet = [{cost.turns[place].round for place in cost.quiet_turns()} for cost in costs]
    both = set.intersection(*quiet)
    return both if len(both) >= MIN_SHARED_ROUNDS else set.intersection(*rounds)


MIN_SHARED_ROUNDS = 5


def samples_per_update(cost: CostRecord) -> float:
    """On average over a pass: the last batch may be smaller."""
    mean = cost.num_samples / max(1, cost.steps_per_epoch)
    return mean if cost.batch_size / 2 < mean < cost.batch_size else float(cost.batch_size)


@dataclass(frozen=True)
class GrowthComparison:
    """How memory grows without a change and with it."""

    before_bytes: float
    after_bytes: float
    n: int
    is_less: bool
    """Whether it surely grows by less."""

    @property
    def verdict(self) -> LimitVerdict:
        """Confirmed where most of the growth is gone."""
        if self.n < MIN_BENCHES or self.before_bytes <= 0:
            return "cannot tell"
        is_gone = self.after_bytes < LEAK_SHARE * self.before_bytes
        if self.is_less and is_gone:
            return "confirmed"
        return "cannot tell" if is_gone else "refuted"


def growth_compared(
    timed: Sequence[Timed], base: str, cell: str, num_changes: int
) -> GrowthComparison | None:
    """Bytes per update in processes of the same benches; the error rate is shared by so many changes."""
    slopes: dict[tuple[str, str], float] = {}
    for one in timed:
        slope = process_growth(one.cost.memory)
        if not one.again and slope is not None:
            slopes[one.bench, one.cell] = slope
    pairs = [
        (slopes[bench, base], slopes[bench, cell])
        for bench in dict.fromkeys(one.bench for one in timed)
        if (bench, base) in slopes and (bench, cell) in slopes
    ]
    if not pairs:
        return None
    saved = [before - after for before, after in pairs]
    n, mean = len(saved), statistics.fmean(saved)
    is_less = False
    if n >= MIN_BENCHES:
        quantile = float(special.stdtrit(n - 1, 1 - 0.025 / max(1, num_changes)))
        is_less = mean - quantile * statistics.stdev(saved) / math.sqrt(n) > 0
    befores, afters = zip(*pairs, strict=True)
    return GrowthComparison(statistics.fmean(befores), statistics.fmean(afters), n, is_less)


def process_growth(memory: Sequence[tuple[int, int]]) -> float | None:
    """Bytes per update from the first look to the last; None with fewer than three looks."""
    if len(memory) < 3 or memory[-1][0] <= memory[0][0]:
        return None
    steps = np.array([step for step, _ in memory], dtype=float)
    sizes = np.array([size for _, size in memory], dtype=float)
    centred = steps - steps.mean()
    return float((centred * sizes).sum() / (centred**2).sum())
