"""The final metrics of the learn trials of two runs, setting by setting, paired by seed."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np
from scipy import special

from trainlab.analysis.evidence import Evidence
from trainlab.analysis.gate.check import Check
from trainlab.analysis.metrics import resolution_of
from trainlab.errors import RecordError, SpecError
from trainlab.spec.base import did_you_mean
from trainlab.stats.contrasts import (
    LEVEL,
    Critical,
    Design,
    Family,
    Floats,
    compare_cells,
    critical_of,
    pair_rows,
    rows_of,
    table_of,
)
from trainlab.stats.failures import Failures
from trainlab.stats.means import Interval
from trainlab.stats.one_sided import Change, Levels
from trainlab.stats.verdict import are_identical

BySeed = Mapping[int, float]


def metric_names(run: Evidence, baseline: Evidence, asked: Iterable[str]) -> list[str]:
    """The metrics asked for; an error that names those there are, where a run does not have one."""
    names = list(asked)
    for evidence in (run, baseline) if names else ():
        if not evidence.metrics:
            raise RecordError(
                f"{evidence.path}: has no learn trial that ended well; train with `trainlab run`"
            )
        for name in names:
            if name not in evidence.metrics:
                known = ", ".join(evidence.metrics)
                near = did_you_mean(name, evidence.metrics)
                raise SpecError([f"worse: got {name!r}, must be one of {known}{near}"])
    return names


def metric_checks(
    run: Evidence, baseline: Evidence, cells: Sequence[str], metric: str, margin: float, number: int
) -> Iterator[Check]:
    """One per setting; `number` is that of all comparisons of the gate."""
    sign = 1.0 if run.study.is_better_lower(metric) else -1.0
    before = {cell: baseline.values(cell, metric) for cell in cells}
    after = {cell: run.values(cell, metric) for cell in cells}
    changes, levels = _changes(before, after, cells, sign, resolution_of(run, metric), number)
    for cell in cells:
        plain = _plain(cell, metric, before[cell], after[cell], margin)
        yield _judged(plain, changes.get(cell), sign, levels)


def _plain(cell: str, metric: str, before: BySeed, after: BySeed, margin: float) -> Check:
    """What was seen, not yet judged but where every seed gave the same in both runs."""
    seeds = _shared(before, after)
    pair = [[values[seed] for seed in seeds] for values in (before, after)]
    base, now = (fmean(values) if values else None for values in pair)
    # Seeds that diverged in one run alone are no values, and must not be passed over.
    has_diverged = Failures.of(before, after).differ
    is_same = are_identical(np.array(pair)) and not has_diverged
    return Check(
        cell=cell,
        subject=metric,
        baseline=base,
        run=now,
        change=None if base is None or now is None else now - base,
        margin=margin,
        num_baseline=len(before),
        num_run=len(after),
        has_diverged=has_diverged,
        interval=Interval(0.0, 0.0) if is_same else None,
        verdict="not worse" if is_same else "cannot tell",
    )


def _judged(plain: Check, change: Change | None, sign: float, levels: Levels) -> Check:
    if change is None or plain.verdict == "not worse":
        return plain
    margin = plain.margin
    ends = sorted((sign * change.low(levels.low), sign * change.high(levels.high)))
    verdict = change.judged(margin, levels)
    if verdict == "not worse" and plain.has_diverged:
        verdict = "cannot tell"
    is_open = verdict == "cannot tell" and not plain.has_diverged
    return replace(
        plain,
        interval=Interval(*ends),
        verdict=verdict,
        needed=change.number_for(change.value, margin, levels) if is_open else None,
        needed_unchanged=change.number_for(0.0, margin, levels) if is_open else None,
    )


def _changes(
    before: Mapping[str, BySeed],
    after: Mapping[str, BySeed],
    cells: Sequence[str],
    sign: float,
    resolution: float,
    number: int,
) -> tuple[dict[str, Change], Levels]:
    """How much worse each cell became, by the sign that makes it so, and the levels of their bounds."""
    both = {f"before/{cell}": values for cell, values in before.items()}
    both |= {f"after/{cell}": values for cell, values in after.items()}
    rows, table = table_of(both)
    known = [cell for cell in cells if {f"before/{cell}", f"after/{cell}"} <= {*rows}]
    if not known:
        return {}, Levels(LEVEL / number)
    pairs = [(rows.index(f"before/{cell}"), rows.index(f"after/{cell}")) for cell in known]
    family = compare_cells(sign * table, pair_rows(pairs, len(rows)), resolution=resolution)
    changes = {
        cell: change
        for place, cell in enumerate(known)
        if (change := _change(family, place, len(_shared(before[cell], after[cell])))) is not None
    }
    if not changes:
        return {}, Levels(LEVEL / number)
    low = _level(family.critical, LEVEL * len(cells) / number)
    return changes, Levels(low, _level_of_one(table, pairs), number)


def _change(family: Family, place: int, num_seeds: int) -> Change | None:
    """None where fewer than two seeds are in both runs."""
    found = family.estimates
    value, error, freedom = (
        float(entries[place]) for entries in (found.value, found.error, found.degrees_of_freedom)
    )
    if math.isnan(value):
        return None
    return Change(
        value=value,
        error=error,
        degrees_of_freedom=freedom,
        single_error=error * math.sqrt(num_seeds),
        freedom_each=freedom / (num_seeds - 1),
    )


def _level(critical: Critical, share: float) -> float:
    """Of each bound, so that in this share of cases one or more of the family are wrong."""
    score = float(np.quantile(critical.largest_above, 1 - share))
    return float(special.ndtr(-score))


def _level_of_one(table: Floats, pairs: Sequence[tuple[int, int]]) -> float:
    """Of a bound that is decided alone, beside the others that tell how much values vary: the strictest of
    pairs that have values of other seeds."""
    present = tuple(map(tuple, np.isfinite(table).tolist()))
    shapes = {(present[a], present[b]): (a, b) for a, b in pairs}
    designs = (Design(rows_of(pair_rows([pair], len(table))), present) for pair in shapes.values())
    return min(LEVEL, *(_level(critical_of(one), LEVEL) for one in designs))


def _shared(before: BySeed, after: BySeed) -> list[int]:
    """Seeds that ended with a finite value in both."""
    both = sorted(before.keys() & after.keys())
    return [seed for seed in both if math.isfinite(before[seed]) and math.isfinite(after[seed])]
