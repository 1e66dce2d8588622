"""What a change of one factor does to learning: metrics seed by seed, and how often it fails."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from trainlab.analysis import charts, finding, metrics, tables
from trainlab.analysis.document import Block, Entry, Figure, Paragraph, Section, Table, figure_id
from trainlab.analysis.evidence import (
    ENDED_WELL,
    Confound,
    Evidence,
    grouped,
    level_of,
    trial_confounds,
)
from trainlab.analysis.finding import Cause, Finding, Kind, RunData, arrow
from trainlab.analysis.metrics import Contrast, MetricTable, against_references
from trainlab.analysis.tables import EMPTY
from trainlab.spec import Cell
from trainlab.spec.study import level_text, short_name
from trainlab.stats.contrasts import LEVEL, Floats
from trainlab.stats.means import Interval, mean_of
from trainlab.stats.verdict import (
    FEWEST_SEEDS,
    ROUNDING,
    Comparison,
    Failures,
    Verdict,
    are_identical,
)
from trainlab.words import WORDS, Words
from trainlab.words.numbers import figure, is_share, metric_difference, metric_value

WIDE_RANGE = 4
"""Positive levels whose largest is so many times the smallest are taken on a scale of doublings."""


def _difference_phrases(
    found: Finding, words: Words, name: str = "difference"
) -> dict[str, object]:
    """A difference, and both ends of its interval to the same place."""
    ends = () if found.interval is None else (found.interval.low, found.interval.high)
    widest = max(map(abs, ends), default=0.0)
    return {
        name: found.difference_text(words, found.numbers[name]),
        "within": found.interval_text(words, lambda e: found.difference_text(words, e, widest)),
    }


def _effect_text(found: Finding, words: Words) -> str:
    if found.difference is None:
        key = "effect_unknown"
    elif found.verdict == "different" and _is_small(found):
        key = "effect_small"
    elif found.is_withheld:
        key = "effect_withheld" if found.interval else "effect_withheld_identical"
    else:
        key = "effect_open" if found.verdict == "cannot tell" else f"effect_{found.verdict}"
    cause = found.open_because if key == "effect_open" else None
    more = {
        "seeds_too_few": cause == "single",
        "seeds_find": cause == "noise" and found.detectable,
        "seeds_would_do": cause == "noise" and found.seeds_needed,
        "seeds_not_finite": found.diverged_a or found.diverged_b,
        "no_reset_why": found.of_kind is NO_RESET,
    }
    keys = [key, *(one for one, is_said in more.items() if is_said)]
    margin = found.difference_text(words, found.margin).lstrip("+")
    if found.margin is not None and not is_share(found.subject):
        margin = f"{found.margin:g}"  # as it was stated
    seeds = finding.num_seeds(found.n, words)
    parts: dict[str, object] = {
        **_difference_phrases(found, words),
        "metric": words.metric(found.subject),
        "first_name": found.cells[0],
        "second_name": found.cells[-1],
        "means": arrow(metric_value(found.subject, one) for one in (found.mean_a, found.mean_b)),
        "mean_of": seeds if found.n == 1 else words("mean_of_seeds", seeds=seeds),
        "margin": margin,
        "detectable": found.difference_text(words, found.detectable).lstrip("+"),
        "fewest": FEWEST_SEEDS,
    }
    parts["effect"] = found.fill(words, "effect", **parts)
    return words.sentences(*(found.fill(words, key, **parts) for key in keys))


def _is_small(found: Finding) -> bool:
    """Whether all that the interval holds lies within the margin."""
    ends = found.interval and (found.interval.low, found.interval.high)
    return bool(found.margin and ends and max(map(abs, ends)) < found.margin)


def _effect_cause(found: Finding) -> Cause:
    if found.is_withheld:
        return "rates"
    if found.n >= FEWEST_SEEDS:
        return "noise"
    if found.diverged_a or found.diverged_b:
        return "diverged"
    return "failed" if found.num_failed else "single"


def _effect_weight(found: Finding) -> float:
    # The metric that the answer goes by; then the largest effect.
    same = found.verdict in ("equivalent", "identical")
    size = 0.0 if same else abs(found.difference or 0.0)
    return float(1e6 * found.is_objective + size / (1 + abs(found.mean_a or 0.0)))


EFFECT = Kind(
    "effect",
    "factors",
    rank=1,
    test="learning",
    statement=_effect_text,
    weight=_effect_weight,
    open_because=_effect_cause,
    repeats_row=lambda found: (
        found.verdict != "cannot tell"
        and not (_is_small(found) or found.diverged_a > 0 or found.diverged_b > 0)
    ),
)
"""What a change of one factor does to a metric; `p` is adjusted for all comparisons of the metric."""
NO_RESET = replace(EFFECT, name="no_reset", rank=0, repeats_row=lambda found: False)
"""The effect of never resetting gradients; the sentence says why."""
EFFECTS = (EFFECT, NO_RESET)
FAILURE_RATE = Kind(
    "failure_rate",
    "factors",
    rank=1,
    test="failures",
    statement=lambda found, words: found.fill(
        words, f"failure_{(found.verdict or '').replace(' ', '_')}"
    ),
    weight=lambda found: abs(found.num_b / found.of_b - found.num_a / found.of_a),
)
"""How often training fails in one cell and in another, by Fisher's exact test."""


TREND = Kind(
    "trend",
    "factors",
    rank=11,
    statement=lambda found, words: found.fill(
        words,
        {"different": "trend", "identical": "trend_identical"}.get(
            found.verdict or "", "trend_open"
        ),
    ),
    phrases=lambda found, words: {
        **_difference_phrases(found, words, "slope"),
        "per": words("per_doubling" if found.is_per_doubling else "per_unit"),
        "factor_name": short_name(found.factor or ""),
        "from_level": level_text(found.lowest),
        "to_level": level_text(found.highest),
    },
)
"""How a metric changes with a factor: per doubling, or from the lowest level to the highest."""
INTERACTION = Kind(
    "interaction",
    "factors",
    rank=5,
    statement=lambda found, words: found.fill(
        words,
        {"different": "interaction", "identical": "interaction_identical"}.get(
            found.verdict or "", "interaction_open"
        ),
    ),
    phrases=_difference_phrases,
)
"""The effect of one change at another factor's other level, less that at its reference."""


def effect_findings(evidence: Evidence) -> Iterator[Finding]:
    """For every metric all its comparisons, decided together; then how often training failed."""
    pairs = _learned_pairs(evidence)
    confounds = [_confounds(evidence, pair) for pair in pairs]
    names = metrics.compared_metrics(evidence)
    failed = [t.cell for t in evidence.trials if t.kind == "learn" and t.state not in ENDED_WELL]
    for metric in names:
        compared = _compared(evidence, metric, pairs)
        for pair, comparison, also_differs in zip(pairs, compared, confounds, strict=True):
            never_resets = pair.factor == "zero_grad" and pair.levels[1] is False
            shown = dict(vars(comparison))
            failures = shown.pop("failures")
            yield (NO_RESET if never_resets else EFFECT)(
                subject=metric,
                confounds=also_differs,
                diverged_a=failures.num_a,
                diverged_b=failures.num_b,
                num_diverged=failures.num_left_out,
                num_failed=sum(map(failed.count, pair.ids)),
                is_objective=metric == names[0],
                **pair.shared,
                **shown,
            )
    for metric in names[:1]:
        yield from _failure_rates(evidence, metric, pairs)


def _learned_pairs(evidence: Evidence) -> list[Contrast]:
    """The contrasts of which trials of both cells have ended."""
    pairs, learned = metrics.contrasts(evidence.cells), evidence.learned.keys()
    return [pair for pair in pairs if {*pair.ids} <= learned]


def _compared(evidence: Evidence, metric: str, pairs: Sequence[Contrast]) -> tuple[Comparison, ...]:
    """The comparisons of a metric, as one family."""
    cells = metrics.with_like_seeds(evidence.cells)
    values = {cell.id: evidence.values(cell.id, metric) for cell in cells}
    ids = [pair.ids for pair in pairs]
    return metrics.compared_values(evidence, metric, values, ids, evidence.study.looks)


def open_comparisons(evidence: Evidence) -> tuple[int, int]:
    """How many are left that seeds may decide, and that they cannot: of a cell in which none trains, or of
    rates of divergence that differ. Of the metrics that have a margin, else of the first: without one,
    cells that do not differ are never decided."""
    names, pairs = metrics.compared_metrics(evidence), _learned_pairs(evidence)
    are_hopeless = [
        comparison.is_withheld or not all(evidence.finite_values(cell, metric) for cell in pair.ids)
        for metric in [one for one in names if one in evidence.study.margins] or names[:1]
        for pair, comparison in zip(pairs, _compared(evidence, metric, pairs), strict=True)
        if comparison.verdict == "cannot tell"
    ]
    # Without metrics not one trial of any cell ended well.
    num_hopeless = sum(are_hopeless) if names else len(pairs)
    return are_hopeless.count(False), num_hopeless


def _failure_rates(evidence: Evidence, metric: str, pairs: Sequence[Contrast]) -> Iterator[Finding]:
    """Of pairs in which the one cell diverged more often than the other."""
    sides = ([evidence.values(cell, metric) for cell in pair.ids] for pair in pairs)
    counted = zip(pairs, (Failures.of(*both) for both in sides), strict=True)
    tested = [(pair, one, one.p) for pair, one in counted if one.differ and one.p is not None]
    for pair, failures, p in tested:
        adjusted, counts = min(1.0, p * len(tested)), dict(vars(failures))
        del counts["num_left_out"]
        yield FAILURE_RATE(
            subject=metric,
            p=adjusted,
            n=min(failures.of_a, failures.of_b),
            verdict="different" if adjusted <= LEVEL else "cannot tell",
            **pair.shared,
            **counts,
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


def pattern_findings(evidence: Evidence, table: MetricTable) -> Iterator[Finding]:
    """Trends, then interactions; each a family of contrasts with the noise of all cells."""
    yield from _decided(TREND, "slope", table, [*_trends(evidence, table)])
    yield from _decided(INTERACTION, "difference", table, [*_interactions(table)])


Pattern = tuple[Floats, dict[str, Any]]
"""What each cell of a table counts for, and what a finding has beside what is decided."""


def _trends(evidence: Evidence, table: MetricTable) -> Iterator[Pattern]:
    """Of every factor with three or more levels that are numbers, with all else equal."""
    for factor, by_level in _series(evidence, table.cells):
        levels, cells = np.array([*by_level]), tuple(cell.id for cell in by_level.values())
        places = [table.index_of[cell] for cell in cells]
        values = table.values[places]
        signs = {*np.sign(np.diff(np.nanmean(values, axis=1))).tolist()}
        if len(signs - {0.0}) > 1 and not are_identical(values):
            continue  # up and down again is no trend, whatever the slope of a line through it
        per_doubling = bool(levels[0] > 0 and levels[-1] >= WIDE_RANGE * levels[0])
        x = np.log2(levels) if per_doubling else levels / (levels[-1] - levels[0])
        x = x - x.mean()
        row = np.zeros(len(table.cells))
        row[places] = x / (x**2).sum()
        yield (
            row,
            {
                "factor": factor,
                "cells": cells,
                "is_per_doubling": per_doubling,
                "lowest": float(levels[0]),
                "highest": float(levels[-1]),
                "num_levels": len(levels),
            },
        )


def _series(evidence: Evidence, cells: Sequence[Cell]) -> Iterator[tuple[str, dict[float, Cell]]]:
    """By factor and reference: the cells by level, the lowest that ran first, each level once."""
    pairs = (pair for pair in against_references(cells) if pair.levels != (None, None))
    for (factor, _), some in grouped(pairs, lambda one: (one.factor, one.reference.id)).items():
        by_level: dict[float, Cell] = {}
        for cell in (some[0].reference, *(pair.other for pair in some)):
            level = evidence.level_that_ran(cell, factor)
            if isinstance(level, bool) or not isinstance(level, int | float):
                break
            by_level.setdefault(float(level), cell)
        else:
            if len(by_level) >= 3:
                yield factor, dict(sorted(by_level.items(), key=lambda one: one[0]))


def _interactions(table: MetricTable) -> Iterator[Pattern]:
    """Of every two factors of a grid: each combination against the references of both."""
    changes = [pair for pair in against_references(table.cells) if pair.levels != (None, None)]
    changed_from = {(pair.factor, pair.reference.id, pair.levels[1]): pair for pair in changes}
    first = table.cells[0].id
    for one, other in combinations([p for p in changes if p.reference.id == first], 2):
        both = changed_from.get((other.factor, one.other.id, other.levels[1]))
        if one.factor == other.factor or both is None:
            continue
        row = np.zeros(len(table.cells))
        row[[table.index_of[both.other.id], table.index_of[first]]] = 1.0
        row[[table.index_of[one.other.id], table.index_of[other.other.id]]] = -1.0
        changes_of = {
            f"change_{place}": f"{short_name(pair.factor)} {arrow(map(str, pair.levels))}"
            for place, pair in (("a", one), ("b", other))
        }
        about = {"factor": one.factor, "other_factor": short_name(other.factor)}
        yield row, {**about, **changes_of, "cells": (first, both.other.id)}


def _decided(
    kind: Kind, name: str, table: MetricTable, patterns: Sequence[Pattern]
) -> Iterator[Finding]:
    """A finding of each pattern, its value by this name; none where too few seeds have all cells."""
    if not patterns:
        return
    weights = np.array([row for row, _ in patterns])
    family = table.compared(weights)
    has_all = ((weights != 0).astype(float) @ ~np.isfinite(table.values)) == 0
    values = np.nan_to_num(table.values)
    is_zero = np.abs(weights @ values) <= ROUNDING * (np.abs(weights) @ np.abs(values))
    columns = (family.estimates.value, family.half_width, family.p)
    for index, (found, width, p) in enumerate(np.stack(columns, axis=1).tolist()):
        decided = {
            name: found,
            "p": p,
            "interval": Interval(found - width, found + width),
            "verdict": "different" if abs(found) > width else "cannot tell",
        }
        if is_zero[index][has_all[index]].all():
            decided = {name: 0.0, "p": None, "interval": None, "verdict": "identical"}
        if not math.isnan(found):
            n = int(has_all[index].sum())
            yield kind(subject=table.metric, n=n, **patterns[index][1], **decided)


COMPARED = {
    "effect": ("mean_a", "mean_b"),
    "no_reset": ("mean_a", "mean_b"),
    "cost": ("sample_us_a", "sample_us_b"),
    "memory": ("mib_a", "mib_b"),
    "energy": ("sample_mj_a", "sample_mj_b"),
}
"""Kinds that are rows of the table of a factor, and the values of its two cells."""


def factor_table(factor: str, findings: Sequence[Finding], words: Words) -> Table:
    """One row per comparison of two cells: an effect, a cost or memory."""
    # Where nothing else varies, or the first column names cells, a cell's name would only repeat it.
    is_alone = all("," not in f.cells[1] or f.levels == (None, None) for f in findings)

    def change(found: Finding) -> str:
        levels = map(words.setting, found.levels)
        return arrow(found.cells if found.levels == (None, None) else levels)

    def compared(found: Finding, place: int) -> Entry:
        pair = [found.numbers[name] for name in COMPARED[found.kind]]
        is_ratio = found.of_kind not in EFFECTS
        by = found.ratio if is_ratio else found.difference
        shown = (found.subject, pair, by, found.interval, found.verdict, words)
        return compared_entries(*shown, is_ratio=is_ratio)[place]

    headings = ("reference", "here", "difference", "interval")
    return tables.table_of(
        words.tidy(words("factor_table", factor=factor)),
        [
            tables.name(words("level"), change),
            *([] if is_alone else [tables.name(words("cell"), lambda found: found.cells[1])]),
            tables.name(words("figure"), lambda found: subject_text(found.subject, words)),
            *(
                tables.value(words(key), partial(compared, place=place))
                for place, key in enumerate(headings)
            ),
            tables.value(words("n"), lambda found: tables.count(found.n)),
            tables.name(words("verdict"), lambda found: verdict_entry(found.verdict, words)),
        ],
        findings,
        words("factor_note"),
        cell=lambda found: found.cells[1],
        row=lambda found: found.row,
        is_sortable=True,
    )


def verdict_entry(verdict: Verdict | None, words: Words) -> Entry:
    """The verdict in words; empty where nothing was tested."""
    text = "" if verdict is None else tables.mark_label(verdict, words)
    return Entry(text, mark=verdict or "fact")


def subject_text(subject: str, words: Words) -> str:
    """A metric or a cost in words."""
    key = f"subject_{subject.replace('/', '_')}"
    return words(key) if key in WORDS else words.metric(subject)


def compared_entries(
    subject: str,
    pair: Sequence[float | None],
    change: float | None,
    interval: Interval | None,
    verdict: Verdict | None,
    words: Words,
    *,
    is_ratio: bool,
) -> tuple[Entry, ...]:
    """Both values, how they differ, and the interval of that: of 90% beside "equivalent"."""
    within, difference = tables.within(interval), EMPTY
    if is_ratio and change is not None:
        values = [tables.number(one) for one in pair]
        difference = Entry(words("times", value=figure(change)), change)
    else:
        values = [EMPTY if one is None else Entry(metric_value(subject, one), one) for one in pair]
        if change is not None:
            difference = Entry(metric_difference(subject, change, words("points")), change)
        if interval is not None:
            ends = (interval.low, interval.high)
            widest = max(map(abs, ends))
            texts = (metric_difference(subject, end, "", widest).strip() for end in ends)
            within = Entry(", ".join(texts))
    if verdict == "equivalent" and within.text:
        within = Entry(f"{within.text} (90%)")
    return *values, difference, within


def comparison_section(data: RunData, words: Words) -> Section | None:
    """A part per factor, below where each cell ended; None where there is nothing to compare."""
    blocks: list[Block] = []
    if len(data.evidence.learned) > 1:
        names = metrics.compared_metrics(data.evidence)
        blocks += filter(None, (metric_figure(data, metric, words) for metric in names[:2]))
    by_factor = grouped(data.findings_in("factors"), lambda one: one.factor or "")
    sections = [_factor_section(factor, found, words) for factor, found in by_factor.items()]
    if not blocks and not sections:
        return None
    intro = (Paragraph(words("comparison_intro")),) if sections else ()
    parts = (*intro, *blocks), tuple(sections)
    return Section("comparison", words("comparison"), *parts, is_folded=True)


def _factor_section(factor: str, findings: list[Finding], words: Words) -> Section:
    name = " + ".join(finding.factor_name(one, words) for one in factor.split(","))
    compared = [f for f in findings if f.kind in COMPARED]
    table = [factor_table(name, compared, words)] if compared else []
    # Of findings that are rows alone the table does not say what else differed.
    are_rows = grouped(finding.by_importance(findings), lambda one: one.of_kind.repeats_row(one))
    confounds = finding.confounds_text(are_rows.get(True, ()), words)
    also = [Paragraph(words("also_differ", confounds=confounds))] if confounds else []
    blocks = (*table, *also, *tables.first_bullets(are_rows.get(False, ()), words))
    heading = words.tidy(words("factor", factor=name))
    return Section(finding.section_of(factor), heading, blocks)


def metric_figure(data: RunData, metric: str, words: Words) -> Figure | None:
    """Where each cell ended."""
    scale = 100 if is_share(metric) else 1
    rows, told = [], {}
    for cell in data.evidence.cells:
        by_seed = list(data.evidence.values(cell.id, metric).values())
        if (mean := mean_of(by_seed, metrics.limits_of(metric, by_seed))) is not None:
            ends = [None if end is None else scale * end for end in mean.ends]
            rows.append(charts.dot(cell.id, "", scale * mean.value, ends))
            finite = (value for value in by_seed if math.isfinite(value))
            rows += [charts.dot(cell.id, "", scale * value, kind="one") for value in finite]
            told[cell.id] = f"{cell.id}: {metric_value(metric, mean.value)}"
    if not rows:
        return None
    rows, left_out = charts.first_cells(rows)
    among = [cell.id for cell in data.evidence.cells]
    values = words.listed(told[cell] for cell in dict.fromkeys(row["cell"] for row in rows))
    more = words("left_out", number=left_out) if left_out else ""
    return Figure(
        id=figure_id("final", metric),
        caption=words.tidy(words("final_caption", metric=words.metric(metric))),
        alt=words.tidy(words("final_alt", metric=words.metric(metric), values=values)),
        note=words.sentences(words("dots_note"), more),
        spec=charts.dot_chart(metric, words.metric_title(metric), rows, words, among),
    )


FEWEST_CELLS = 4
SQUARE = 34
"""Height of a row, in pixels."""


def heat_figure(evidence: Evidence, metric: str, words: Words) -> Figure | None:
    """A metric over two factors; None unless the study is a grid of two with two levels each or more: what
    a search found best is none."""
    varied = ((f, {level_of(cell, f) for cell in evidence.cells}) for f in evidence.factors)
    factors = [factor for factor, levels in varied if len(levels) > 1]
    if len(factors) != 2 or evidence.study.search is not None:
        return None
    rows: list[charts.Spec] = []
    scale = 100 if is_share(metric) else 1
    for cell in evidence.cells:
        if values := evidence.finite_values(cell.id, metric):
            known = (level_of(cell, factor) for factor in factors)
            across, down = ("" if level is None else level_text(level) for level in known)
            mean = scale * sum(values) / len(values)
            shown = {"value": mean, "text": metric_value(metric, mean / scale)}
            rows.append({"cell": cell.id, "across": across, "down": down, **shown})
    if len(rows) < FEWEST_CELLS or len({(row["across"], row["down"]) for row in rows}) < len(rows):
        return None
    axis = {"labelAngle": 0, "ticks": False, "domain": False, "grid": False}
    place: charts.Spec = {}
    for axis_name, field, factor in zip("xy", ("across", "down"), factors, strict=True):
        levels = list(dict.fromkeys(row[field] for row in rows))
        place[axis_name] = charts.nominal(field, finding.factor_name(factor, words), levels, axis)
    title, name = words.metric_title(metric), words.metric(metric)
    place["tooltip"] = charts.tooltip([("cell", words("cell"), None), ("text", title, None)])
    hue = charts.quantity("value", title, scale={"range": ["#dbe9f6", "#2a6fb0"], "zero": False})
    means = [row["value"] for row in rows]
    is_dark = f"datum.value > {(min(means) + max(means)) / 2:.6g}"
    ink = {"condition": {"test": is_dark, "value": "#ffffff"}, "value": "#1c2430"}
    squares = charts.layer("rect", {**place, "color": hue}, stroke="#ffffff")
    texts = charts.layer("text", {**place, "text": {"field": "text"}, "color": ink}, fontSize=12)
    told = words.listed(f"{row['cell']}: {row['text']}" for row in rows)
    return Figure(
        id=figure_id("grid", metric),
        caption=words.tidy(words("grid_caption", metric=name)),
        alt=words.tidy(words("final_alt", metric=name, values=told)),
        note=words("grid_note"),
        spec=charts.chart(rows, [squares, texts], 30 + SQUARE * len({row["down"] for row in rows})),
    )
