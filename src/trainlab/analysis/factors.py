"""What a change of one factor does to learning: metrics seed by seed, and how often it fails."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

import numpy as np

from trainlab.analysis.charts import (
    COSTS,
    CellValues,
    cost_values,
    dot_chart,
    memory_values,
    metric_values,
)
from trainlab.analysis.cost import cost_table
from trainlab.analysis.document import Block, Entry, Figure, Paragraph, Section, Table, figure_id
from trainlab.analysis.evidence import ENDED_WELL, Confound, Evidence, trial_confounds
from trainlab.analysis.finding import (
    HOPELESS,
    Cause,
    Finding,
    RunData,
    arrow,
    by_importance,
    confounds_text,
    factor_name,
    num_seeds,
    section_of,
)
from trainlab.analysis.metrics import (
    ACCURACY,
    Contrast,
    MetricTable,
    against_references,
    compared_metrics,
    contrasts,
    limits_of,
    resolution_of,
    with_like_seeds,
)
from trainlab.analysis.tables import (
    EMPTY,
    count,
    first_bullets,
    mark_label,
    mark_of,
    name,
    number,
    table_of,
    value,
    within,
)
from trainlab.spec import Cell
from trainlab.spec.study import level_text, short_name
from trainlab.stats.contrasts import LEVEL, Floats
from trainlab.stats.means import Interval, lack_of_fit, superiority
from trainlab.stats.verdict import (
    FEWEST_SEEDS,
    ROUNDING,
    Comparison,
    Failures,
    Verdict,
    are_identical,
    compare_all,
)
from trainlab.words import WORDS, Words
from trainlab.words.numbers import figure, is_share, metric_difference, metric_value

COMPARISON_FIELDS = (
    *("mean_a", "mean_b", "difference", "p", "n", "interval", "confidence", "verdict", "family"),
    *("margin", "seeds_needed", "detectable", "std", "num_dropped", "num_diverged", "is_withheld"),
)
"""Fields of an effect that a comparison has under the same name."""


@dataclass(frozen=True, kw_only=True)
class Effect(Finding):
    """What a change of one factor does to a metric, seed by seed."""

    kind = "effect"
    section = "factors"
    rank = 1
    test = "learning"

    mean_a: float | None
    mean_b: float | None
    difference: float | None
    p: float | None
    """Adjusted for all comparisons of the metric."""
    confidence: float
    """Of the interval, which holds for all comparisons of the metric together."""
    family: int
    """Comparisons decided together."""
    margin: float | None
    seeds_needed: int | None
    detectable: float | None
    std: float | None
    """Of a run, as estimated from all cells."""
    is_withheld: bool
    """Whether it is not called equivalent only because the cells diverged at different rates."""
    num_failed: int
    """Trials of both cells that failed, were interrupted or did not run."""
    num_dropped: int
    num_diverged: int
    diverged_a: int
    diverged_b: int
    chance: float | None
    """That a run of the second cell ends above one of the first, ties counted half."""
    chance_low: float | None
    chance_high: float | None

    def phrases(self, words: Words) -> dict[str, object]:
        metric, seeds = self.subject, num_seeds(self.n, words)
        difference = partial(self.difference_text, words)
        return super().phrases(words) | {
            "metric": words.metric(metric),
            "first_name": self.cells[0],
            "second_name": self.cells[-1],
            "means": arrow(metric_value(metric, mean) for mean in (self.mean_a, self.mean_b)),
            "mean_of": seeds if self.n == 1 else words("mean_of_seeds", seeds=seeds),
            "difference": difference(self.difference),
            "margin": self._margin_text(words),
            "detectable": difference(self.detectable).lstrip("+"),
            "within": self.difference_interval(words),
        }

    def _margin_text(self, words: Words) -> str:
        """As it was stated: `0.50 points`, `0.05`."""
        if self.margin is None or is_share(self.subject):
            return self.difference_text(words, self.margin).lstrip("+")
        return f"{self.margin:g}"

    def statement(self, words: Words) -> str:
        return words.sentences(self._verdict_text(words), *self._left_out(words))

    def _verdict_text(self, words: Words) -> str:
        if self.difference is None:
            return self.fill(words, "effect_unknown")
        effect = self.fill(words, "effect")
        if self.verdict == "different" and self._is_small:
            return self.fill(words, "effect_small", effect=effect)
        if self.verdict != "cannot tell":
            return self.fill(words, f"effect_{self.verdict}", effect=effect)
        if self.is_withheld:
            key = "effect_withheld" if self.interval else "effect_withheld_identical"
            return self.fill(words, key, effect=effect)
        text = self.fill(words, "effect_open", effect=effect)
        if self.open_because in HOPELESS:
            return text
        if self.n < FEWEST_SEEDS:
            return words.sentences(text, self.fill(words, "seeds_too_few", fewest=FEWEST_SEEDS))
        able = self.fill(words, "seeds_find") if self.detectable else ""
        would_do = self.fill(words, "seeds_would_do") if self.seeds_needed else ""
        return words.sentences(*filter(None, (text, able, would_do)))

    @property
    def _is_small(self) -> bool:
        """Whether all that the interval holds lies within the margin."""
        if self.margin is None or self.interval is None:
            return False
        return max(abs(self.interval.low), abs(self.interval.high)) < self.margin

    def _left_out(self, words: Words) -> Iterator[str]:
        if self.diverged_a or self.diverged_b:
            yield self.fill(words, "seeds_diverged")

    @property
    def open_because(self) -> Cause | None:
        if self.verdict != "cannot tell":
            return None
        if self.is_withheld:
            return "rates"
        if self.n >= FEWEST_SEEDS:
            return "noise"
        if self.diverged_a or self.diverged_b:
            return "diverged"
        return "failed" if self.num_failed else "single"

    @property
    def repeats_row(self) -> bool:
        is_explained = self._is_small or self.diverged_a > 0 or self.diverged_b > 0
        return self.verdict != "cannot tell" and not is_explained

    @property
    def weight(self) -> float:
        # Accuracy on the test set is what people ask about; then the largest effect.
        same = self.verdict in ("equivalent", "identical")
        size = 0.0 if same else abs(self.difference or 0.0)
        return 1e6 * (self.subject == ACCURACY) + size / (1 + abs(self.mean_a or 0.0))


@dataclass(frozen=True, kw_only=True)
class NoReset(Effect):
    """The effect of never resetting gradients; the sentence says why."""

    kind = "no_reset"
    rank = 0

    @property
    def repeats_row(self) -> bool:
        return False

    def statement(self, words: Words) -> str:
        return words.sentences(super().statement(words), words("no_reset_why"))


@dataclass(frozen=True, kw_only=True)
class FailureRate(Finding):
    """How often training fails in one cell and in another."""

    kind = "failure_rate"
    section = "factors"
    rank = 1
    test = "failures"

    num_a: int
    of_a: int
    num_b: int
    of_b: int
    p: float
    """Fisher's exact test, adjusted for all such comparisons."""

    def statement(self, words: Words) -> str:
        return self.fill(words, f"failure_{(self.verdict or '').replace(' ', '_')}")

    @property
    def weight(self) -> float:
        return abs(self.num_b / self.of_b - self.num_a / self.of_a)


def effect_findings(evidence: Evidence) -> Iterator[Finding]:
    """For every metric all its comparisons, decided together; then how often training failed."""
    pairs = _learned_pairs(evidence)
    confounds = [_confounds(evidence, pair) for pair in pairs]
    metrics = compared_metrics(evidence)
    for metric in metrics:
        yield from _effects(evidence, metric, pairs, confounds)
    for metric in metrics[:1]:
        yield from _failure_rates(evidence, metric, pairs)


def _learned_pairs(evidence: Evidence) -> list[Contrast]:
    """The contrasts of which trials of both cells have ended."""
    return [pair for pair in contrasts(evidence.cells) if {*pair.ids} <= evidence.learned.keys()]


def _compared(evidence: Evidence, metric: str, pairs: Sequence[Contrast]) -> tuple[Comparison, ...]:
    """The comparisons of a metric, as one family."""
    cells = with_like_seeds(evidence.cells)
    values = {cell.id: evidence.values(cell.id, metric) for cell in cells}
    limits = limits_of(metric, (one for seeds in values.values() for one in seeds.values()))
    return compare_all(
        values,
        [pair.ids for pair in pairs],
        evidence.study.margins.get(metric),
        looks=evidence.study.looks,
        resolution=resolution_of(evidence, metric),
        most=limits.high - limits.low,
    )


@dataclass(frozen=True)
class OpenComparisons:
    """What is left to decide: what seeds are added for, and what they are not."""

    num_open: int
    """Those that further seeds may decide."""
    num_hopeless: int
    """Those that seeds cannot decide: a cell in which none trains, or rates of divergence that differ."""


def open_comparisons(evidence: Evidence) -> OpenComparisons:
    """Of the metrics that have a margin, else of the first.

    Without a margin, cells that do not differ are never decided.
    """
    metrics = compared_metrics(evidence)
    asked = [metric for metric in metrics if metric in evidence.study.margins] or metrics[:1]
    pairs = _learned_pairs(evidence)
    num_open = num_hopeless = 0
    for metric in asked:
        for pair, comparison in zip(pairs, _compared(evidence, metric, pairs), strict=True):
            if comparison.verdict == "cannot tell":
                never_trains = any(not evidence.finite_values(cell, metric) for cell in pair.ids)
                is_hopeless = comparison.is_withheld or never_trains
                num_hopeless += is_hopeless
                num_open += not is_hopeless
    if not metrics:
        # Not one trial of any cell ended well.
        num_hopeless = len(pairs)
    return OpenComparisons(num_open, num_hopeless)


def _effects(
    evidence: Evidence,
    metric: str,
    pairs: Sequence[Contrast],
    confounds: Sequence[tuple[Confound, ...]],
) -> Iterator[Finding]:
    comparisons = _compared(evidence, metric, pairs)
    for pair, comparison, also_differs in zip(pairs, comparisons, confounds, strict=True):
        never_resets = pair.factor == "zero_grad" and pair.levels[1] is False
        chance = superiority(*(evidence.finite_values(cell, metric) for cell in pair.ids))
        yield (NoReset if never_resets else Effect)(
            subject=metric,
            factor=pair.factor,
            levels=pair.levels,
            cells=pair.ids,
            diverged_a=comparison.failures.num_a,
            diverged_b=comparison.failures.num_b,
            num_failed=sum(_num_failed(evidence, cell) for cell in pair.ids),
            chance=None if chance is None else chance.value,
            chance_low=None if chance is None else chance.interval.low,
            chance_high=None if chance is None else chance.interval.high,
            confounds=also_differs,
            **{name: getattr(comparison, name) for name in COMPARISON_FIELDS},
        )


def _num_failed(evidence: Evidence, cell: str) -> int:
    trials = (t for t in evidence.trials if t.kind == "learn" and t.cell == cell)
    return sum(trial.state not in ENDED_WELL for trial in trials)


def _failure_rates(evidence: Evidence, metric: str, pairs: Sequence[Contrast]) -> Iterator[Finding]:
    """Of pairs in which the one cell diverged more often than the other."""
    found = [
        (pair, failures, p)
        for pair in pairs
        if (failures := Failures.of(*(evidence.values(cell, metric) for cell in pair.ids))).differ
        and (p := failures.p) is not None
    ]
    for pair, failures, p in found:
        adjusted = min(1.0, p * len(found))
        yield FailureRate(
            subject=metric,
            factor=pair.factor,
            levels=pair.levels,
            cells=pair.ids,
            num_a=failures.num_a,
            of_a=failures.of_a,
            num_b=failures.num_b,
            of_b=failures.of_b,
            p=adjusted,
            n=min(failures.of_a, failures.of_b),
            verdict="different" if adjusted <= LEVEL else "cannot tell",
        )


def _confounds(evidence: Evidence, pair: Contrast) -> tuple[Confound, ...]:
    """Of every two trials that are compared, each named once."""
    first, second = (evidence.learned[cell] for cell in pair.ids)
    confounds = (
        confound
        for seed, a in first.items()
        if (b := second.get(seed)) and a.trial.state == b.trial.state == "done"
        for confound in trial_confounds(a.trial, b.trial, pair.factors)
    )
    return tuple(dict.fromkeys(confounds))


# What several cells show together: a trend over levels, the interaction of two factors.

WIDE_RANGE = 4
"""Positive levels whose largest is so many times the smallest are taken on a scale of doublings."""


@dataclass(frozen=True, kw_only=True)
class Trend(Finding):
    """How a metric changes along the ordered levels of a factor."""

    kind = "trend"
    section = "factors"
    rank = 11

    slope: float
    """Per doubling of the level, or from the lowest to the highest where they do not span enough."""
    is_per_doubling: bool
    lowest: float
    highest: float
    num_levels: int
    p: float | None
    """None where all levels gave the same."""
    fit_p: float | None
    """Of means as far from the line by noise alone; None where that cannot be told."""

    def phrases(self, words: Words) -> dict[str, object]:
        slope = partial(self.difference_text, words)
        return super().phrases(words) | {
            "slope": slope(self.slope),
            "within": self.difference_interval(words),
            "per": words("per_doubling" if self.is_per_doubling else "per_unit"),
            "factor_name": self._factor,
            "from_level": level_text(self.lowest),
            "to_level": level_text(self.highest),
        }

    def statement(self, words: Words) -> str:
        if self.verdict == "identical":
            return self.fill(words, "trend_identical")
        text = self.fill(words, "trend" if self.verdict == "different" else "trend_open")
        if self.fit_p is None:
            return text
        fit = "line_fits" if self.fit_p > LEVEL else "line_unfit"
        return words.sentences(text, self.fill(words, fit))


@dataclass(frozen=True, kw_only=True)
class Interaction(Finding):
    """Whether the effect of one factor depends on the level of another."""

    kind = "interaction"
    section = "factors"
    rank = 5

    other_factor: str
    change_a: str
    """The first factor's levels, from the reference."""
    change_b: str
    difference: float
    """The effect of the first change at the second factor's other level, less that at its reference."""
    p: float | None
    """None where the effect is the same in every seed."""

    def phrases(self, words: Words) -> dict[str, object]:
        difference = partial(self.difference_text, words)
        return super().phrases(words) | {
            "difference": difference(self.difference),
            "within": self.difference_interval(words),
        }

    def statement(self, words: Words) -> str:
        keys = {"different": "interaction", "identical": "interaction_identical"}
        return self.fill(words, keys.get(self.verdict or "", "interaction_open"))


def pattern_findings(evidence: Evidence, table: MetricTable) -> Iterator[Finding]:
    """Trends, then interactions."""
    yield from _trends(evidence, table)
    yield from _interactions(table)


@dataclass(frozen=True)
class _Series:
    """Cells along a factor, the lowest level that ran first, each level once."""

    factor: str
    cells: tuple[Cell, ...]
    levels: tuple[float, ...]

    @property
    def is_per_doubling(self) -> bool:
        return self.levels[0] > 0 and self.levels[-1] >= WIDE_RANGE * self.levels[0]

    @property
    def places(self) -> Floats:
        """Of the levels on the scale that a line is fitted over, about their mean."""
        levels = np.array(self.levels)
        x = np.log2(levels) if self.is_per_doubling else levels / (levels[-1] - levels[0])
        return np.asarray(x - x.mean())


def _trends(evidence: Evidence, table: MetricTable) -> Iterator[Finding]:
    """Of every factor with three or more levels that are numbers, with all else equal."""
    index_of = table.index_of
    rows: list[Floats] = []
    found: list[tuple[_Series, Floats]] = []
    for series in _series(evidence, table.cells):
        values = table.values[[index_of[cell.id] for cell in series.cells]]
        signs = {*np.sign(np.diff(np.nanmean(values, axis=1))).tolist()}
        if len(signs - {0.0}) > 1 and not are_identical(values):
            # Up and down again is no trend, whatever the slope of a line through it.
            continue
        x = series.places
        row = np.zeros(len(table.cells))
        row[[index_of[cell.id] for cell in series.cells]] = x / (x**2).sum()
        rows.append(row)
        found.append((series, values))
    for (series, values), entry in zip(found, _decided(table, rows), strict=True):
        if entry is None:
            continue
        same = are_identical(values)
        yield Trend(
            subject=table.metric,
            factor=series.factor,
            cells=tuple(cell.id for cell in series.cells),
            slope=0.0 if same else entry.value,
            is_per_doubling=series.is_per_doubling,
            lowest=series.levels[0],
            highest=series.levels[-1],
            num_levels=len(series.levels),
            p=None if same else entry.p,
            fit_p=None if same else lack_of_fit(series.places, values),
            interval=None if same else entry.interval,
            verdict="identical" if same else _verdict(entry),
            n=entry.n,
        )


def _verdict(entry: "_Entry") -> Verdict:
    return "different" if entry.is_different else "cannot tell"


def _series(evidence: Evidence, cells: Sequence[Cell]) -> Iterator[_Series]:
    """By factor and reference: the reference and all that differ from it by the factor alone."""
    grouped: dict[tuple[str, str], list[Contrast]] = {}
    for pair in against_references(cells):
        if pair.levels != (None, None):
            grouped.setdefault((pair.factor, pair.reference.id), []).append(pair)
    for (factor, _), pairs in grouped.items():
        by_level: dict[float, Cell] = {}
        for cell in (pairs[0].reference, *(pair.other for pair in pairs)):
            level = evidence.level_that_ran(cell, factor)
            if isinstance(level, bool) or not isinstance(level, int | float):
                break
            by_level.setdefault(float(level), cell)
        else:
            levels = sorted(by_level)
            if len(levels) >= 3:
                yield _Series(factor, tuple(by_level[one] for one in levels), tuple(levels))


def _interactions(table: MetricTable) -> Iterator[Finding]:
    """Of every two factors of a grid: each combination against the references of both."""
    index_of = table.index_of
    changes = [pair for pair in against_references(table.cells) if pair.levels != (None, None)]
    changed_from = {(pair.factor, pair.reference.id, pair.levels[1]): pair for pair in changes}
    first = table.cells[0].id
    rows: list[Floats] = []
    found: list[tuple[Contrast, Contrast, Cell]] = []
    for one, other in combinations([p for p in changes if p.reference.id == first], 2):
        if one.factor == other.factor:
            continue
        both = changed_from.get((other.factor, one.other.id, other.levels[1]))
        if both is None:
            continue
        row = np.zeros(len(table.cells))
        row[[index_of[both.other.id], index_of[first]]] = 1.0
        row[[index_of[one.other.id], index_of[other.other.id]]] = -1.0
        rows.append(row)
        found.append((one, other, both.other))
    for (one, other, last), entry in zip(found, _decided(table, rows), strict=True):
        if entry is None:
            continue
        yield Interaction(
            subject=table.metric,
            factor=one.factor,
            other_factor=short_name(other.factor),
            change_a=_change(one),
            change_b=_change(other),
            cells=(one.reference.id, last.id),
            difference=0.0 if entry.is_zero else entry.value,
            p=None if entry.is_zero else entry.p,
            interval=None if entry.is_zero else entry.interval,
            verdict="identical" if entry.is_zero else _verdict(entry),
            n=entry.n,
        )


def _change(pair: Contrast) -> str:
    return f"{short_name(pair.factor)} {pair.levels[0]} → {pair.levels[1]}"


@dataclass(frozen=True)
class _Entry:
    """One contrast of a family, decided."""

    value: float
    interval: Interval
    p: float
    n: int
    is_different: bool
    is_zero: bool
    """In every seed, but for rounding."""


def _decided(table: MetricTable, rows: Sequence[Floats]) -> list[_Entry | None]:
    """`None` where too few seeds have all cells."""
    if not rows:
        return []
    weights = np.array(rows)
    family = table.compared(weights)
    estimates, half_width, p = family.estimates, family.half_width, family.p
    has_all = ((weights != 0).astype(float) @ ~np.isfinite(table.values)) == 0
    values = np.nan_to_num(table.values)
    is_zero = np.abs(weights @ values) <= ROUNDING * (np.abs(weights) @ np.abs(values))
    entries: list[_Entry | None] = []
    for index, found in enumerate(estimates.value.tolist()):
        if math.isnan(found):
            entries.append(None)
            continue
        width = float(half_width[index])
        interval = Interval(found - width, found + width)
        n = int(has_all[index].sum())
        same = bool(is_zero[index][has_all[index]].all())
        entries.append(_Entry(found, interval, float(p[index]), n, abs(found) > width, same))
    return entries


# What the levels of a factor do, as a table: every comparison with its reference.


def factor_table(factor: str, findings: Sequence[Finding], words: Words) -> Table:
    """One row per comparison of two cells: an effect, a cost or memory."""
    # Where nothing else varies, or the first column names cells, a cell's name would only repeat it.
    is_alone = all("," not in f.cells[1] or f.levels == (None, None) for f in findings)
    entries = {id(finding): _entries(finding, words) for finding in findings}
    return table_of(
        words.tidy(words("factor_table", factor=factor)),
        [
            name(words("level"), lambda finding: _change_factors(finding, words)),
            *([] if is_alone else [name(words("cell"), lambda finding: finding.cells[1])]),
            name(words("figure"), lambda finding: subject_text(finding.subject, words)),
            value(words("reference"), lambda finding: entries[id(finding)][0]),
            value(words("here"), lambda finding: entries[id(finding)][1]),
            value(words("difference"), lambda finding: entries[id(finding)][2]),
            value(words("interval"), lambda finding: entries[id(finding)][3]),
            value(words("n"), lambda finding: count(finding.n)),
            name(words("verdict"), lambda finding: verdict_entry(finding.verdict, words)),
        ],
        findings,
        words("factor_note"),
        cell=lambda finding: finding.cells[1],
        is_sortable=True,
    )


def verdict_entry(verdict: Verdict | None, words: Words) -> Entry:
    """The verdict in words; empty where nothing was tested."""
    return Entry("" if verdict is None else mark_label(verdict, words), mark=mark_of(verdict))


def subject_text(subject: str, words: Words) -> str:
    """A metric or a cost in words."""
    key = f"subject_{subject.replace('/', '_')}"
    return words(key) if key in WORDS else words.metric(subject)


def difference_within(metric: str, interval: Interval | None, verdict: Verdict | None) -> Entry:
    """The interval of a difference, without its unit."""
    if interval is None:
        return EMPTY
    ends = (interval.low, interval.high)
    widest = max(map(abs, ends))
    text = ", ".join(metric_difference(metric, end, "", widest).strip() for end in ends)
    return at_confidence(Entry(text), verdict)


def at_confidence(interval: Entry, verdict: Verdict | None) -> Entry:
    """The interval; beside "equivalent" it is the 90% one, and says so."""
    if verdict != "equivalent" or not interval.text:
        return interval
    return replace(interval, text=f"{interval.text} (90%)")


def _change_factors(finding: Finding, words: Words) -> str:
    """`1 → 64`, or the cells where several settings change at once."""
    if finding.levels == (None, None):
        return arrow(finding.cells)
    return arrow(map(words.setting, finding.levels))


def _entries(finding: Finding, words: Words) -> tuple[Entry, ...]:
    """The value of the reference and of the other cell, how they differ, and the interval of that."""
    match finding:
        case Effect():
            return _effect(finding, words)
        case Finding(kind="cost"):
            pair = number(finding.sample_us_a), number(finding.sample_us_b)
        case Finding(kind="memory"):
            pair = number(finding.mib_a), number(finding.mib_b)
        case _:
            return (EMPTY,) * 4
    ratio = Entry(words("times", value=figure(finding.ratio)), finding.ratio)
    return *pair, ratio, at_confidence(within(finding.interval), finding.verdict)


def _effect(effect: Effect, words: Words) -> tuple[Entry, ...]:
    metric, means = effect.subject, (effect.mean_a, effect.mean_b)
    difference = EMPTY
    if effect.difference is not None:
        text = metric_difference(metric, effect.difference, words("points"))
        difference = Entry(text, effect.difference)
    return (
        *(EMPTY if mean is None else Entry(metric_value(metric, mean), mean) for mean in means),
        difference,
        difference_within(metric, effect.interval, effect.verdict),
    )


# Comparison by factor: every cell's costs and metrics, and what each level does, in words.

MOST_VALUES = 24
"""Values of a chart that its alt text lists."""


def comparison_section(data: RunData, words: Words) -> Section | None:
    """All cells side by side, then a part per factor; None where there is nothing to compare."""
    blocks: list[Block] = []
    if data.evidence.measured:
        blocks.append(cost_table(data.evidence, words))
        blocks += _cost_figures(data, words)
    if len(data.evidence.learned) > 1:
        metrics = compared_metrics(data.evidence)
        figures = [metric_figure(data, metric, words) for metric in metrics[:2]]
        blocks += filter(None, figures)
    by_factor: dict[str, list[Finding]] = {}
    for finding in data.findings_in("factors"):
        if finding.factor:
            by_factor.setdefault(finding.factor, []).append(finding)
    sections = [_factor_section(factor, findings, words) for factor, findings in by_factor.items()]
    if not blocks and not sections:
        return None
    key = "comparison" if data.evidence.study.cells else "cost"
    intro = (Paragraph(words("comparison_intro")),) if sections else ()
    return Section("comparison", words(key), (*intro, *blocks), tuple(sections))


def _cost_figures(data: RunData, words: Words) -> list[Figure]:
    by_quantity = {quantity: cost_values(data.evidence, quantity) for quantity in COSTS}
    by_quantity["peak_mib"] = memory_values(data.evidence)
    return [cost_figure(cell_values, words) for cell_values in by_quantity.values() if cell_values]


def cost_figure(cell_values: CellValues, words: Words) -> Figure:
    """One cost over all cells."""
    quantity = cell_values.quantity
    values_text = words.listed(
        f"{v.cell}{'' if v.mode is None else ' ' + words.mode(v.mode)}: {figure(v.value)}"
        for v in cell_values.values[:MOST_VALUES]
    )
    notes = [words("memory_dots_note" if quantity == "peak_mib" else "cost_dots_note")]
    if cell_values.num_left_out:
        notes.append(words("left_out", number=cell_values.num_left_out))
    return Figure(
        id=f"cost-{quantity.replace('_', '-')}",
        caption=words(f"{quantity}_caption"),
        alt=words.tidy(words("final_alt", metric=words(quantity), values=values_text)),
        spec=dot_chart(cell_values, words(quantity), words),
        note=words.sentences(*notes),
    )


def _factor_section(factor: str, findings: list[Finding], words: Words) -> Section:
    name = " + ".join(factor_name(one, words) for one in factor.split(","))
    compared = [f for f in findings if isinstance(f, Effect) or f.kind in ("cost", "memory")]
    table = [factor_table(name, compared, words)] if compared else []
    told = [one for one in by_importance(findings) if not one.repeats_row]
    # Of findings that are rows alone the table does not say what else differed.
    confounds = confounds_text((one for one in findings if one.repeats_row), words)
    also = [Paragraph(words("also_differ", confounds=confounds))] if confounds else []
    blocks = (*table, *also, *first_bullets(told, words))
    return Section(section_of(factor), words.tidy(words("factor", factor=name)), blocks)


def metric_figure(data: RunData, metric: str, words: Words) -> Figure | None:
    """Where each cell ended."""
    cell_values = metric_values(data.evidence, metric)
    if cell_values is None:
        return None
    values = words.listed(f"{v.cell}: {metric_value(metric, v.value)}" for v in cell_values.values)
    notes = [words("dots_note")]
    if cell_values.num_left_out:
        notes.append(words("left_out", number=cell_values.num_left_out))
    return Figure(
        id=figure_id("final", metric),
        caption=words.tidy(words("final_caption", metric=words.capital(words.metric(metric)))),
        alt=words.tidy(words("final_alt", metric=words.metric(metric), values=values)),
        note=words.sentences(*notes),
        spec=dot_chart(cell_values, words.metric_title(metric), words),
    )
