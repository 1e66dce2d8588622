"""A search: what was tried, how much better its best looked than it is, and which settings mattered."""

import math
import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from trainlab.analysis import charts
from trainlab.analysis.document import Block, Figure, Paragraph, Section, Table, figure_id
from trainlab.analysis.evidence import Evidence, TrialRecords
from trainlab.analysis.finding import Finding, Kind, RunData, factor_name, joined, level_name
from trainlab.analysis.tables import EMPTY, count, first_bullets, name, number, table_of, value
from trainlab.record.trial_record import TrialRecord
from trainlab.spec.search import Dimension, Levels, SearchSpec
from trainlab.spec.study import cell_id, level_text, recorded_as, without_part
from trainlab.stats.means import Interval, mean_of
from trainlab.words import Words
from trainlab.words.numbers import figure, is_share, metric_difference, metric_value

PARTS = 3
"""A range is looked at in so many parts, with as many settings each."""
FEWEST = 12
"""Settings that must have been tried before it is said which mattered."""
LEAST_SHARE = 0.05
"""Where no setting is sure to explain as much, nothing is said of any."""
RESAMPLED = 400


@dataclass(frozen=True)
class Tried:
    """A setting that a search has tried."""

    trial: str
    levels: Levels
    values: tuple[float, ...]
    """The metric after each epoch that it trained; NaN where it was not finite."""
    is_whole: bool
    """Whether it trained to its end: its last value is then its score."""
    has_failed: bool = False
    reached_s: float | None = None
    """Where a target is looked for: seconds of training until it was reached; infinite where it was not."""

    @property
    def score(self) -> float:
        if self.reached_s is not None:
            return self.reached_s
        return self.values[-1] if self.values else math.nan


def tried_of(trial: TrialRecord, epochs: Sequence[dict[str, object]], search: SearchSpec) -> Tried:
    """What came of a trial of a search that has ended; `epochs`: the lines of its curve."""
    is_done = trial.state == "done"
    known: list[object] = [line.get(search.metric) for line in (epochs if is_done else ())]
    if is_done and not any(v is not None for v in known):
        # Of a script, what it ended with.
        names = recorded_as(without_part(search.metric))
        known = list[object](trial.final[name] for name in names if name in trial.final)[:1]
    values = tuple(v if isinstance(v, float) else math.nan for v in known)
    was_stopped = any(one.code == "search_stopped" for one in trial.notes)
    levels = {n: level for n, level in trial.levels.items() if level is not None}
    is_whole = is_done and not was_stopped and bool(values)
    reached_s = None
    if search.time_to is not None:
        good = (place for place, value in enumerate(values) if search.is_good(value))
        place = next(good, None)
        reached_s = math.inf if place is None else float(str(epochs[place]["time_s"]))
    return Tried(trial.id, levels, values, is_whole, trial.state == "failed", reached_s)


def ranked(tried: Sequence[Tried], search: SearchSpec) -> list[Tried]:
    """Those with a score, the best first; of equal ones that which came first."""
    whole = [one for one in tried if one.is_whole and math.isfinite(one.score)]
    is_lower = search.is_lower_better or search.time_to is not None
    return sorted(whole, key=lambda one: one.score if is_lower else -one.score)


def score_text(score: float, search: SearchSpec) -> str:
    """`88.10%`; of a target, the seconds until it was reached."""
    return metric_value(search.metric, score) if search.time_to is None else f"{figure(score)} s"


def tries(evidence: Evidence) -> list[Tried]:
    """All that the search of a run has tried."""
    search = evidence.study.search
    assert search is not None

    def read(one: TrialRecords) -> Tried:
        return tried_of(one.trial, [dict(line) for line in one.epochs], search)

    return list(map(read, evidence.tried))


# Findings.


def _searched_text(found: Finding, words: Words) -> str:
    names = joined((factor_name(one, words) for one in found.factors), words)
    text = found.fill(words, "searched", names=names)
    stopped = words("searched_stopped", number=found.num_stopped) if found.num_stopped else ""
    return words.sentences(text, stopped)


def _optimism_text(found: Finding, words: Words) -> str:
    def size(one: float) -> str:
        return metric_difference(found.subject, one, words("points"), found.too_good)

    told = {
        "score": metric_value(found.subject, found.score),
        "mean": metric_value(found.subject, found.mean),
        "size": size(found.too_good).removeprefix("+"),
        "within": found.interval_text(words, size),
    }
    ends = found.interval
    key = "optimism" if found.too_good > 0 else "optimism_none"
    if ends is not None and ends.low < 0 < ends.high:
        key = "optimism_unclear"
    return found.fill(words, key, signed=size(found.too_good), **told)


def _importance_text(found: Finding, words: Words) -> str:
    if all(one["low"] < LEAST_SHARE for one in found.shares.values()):
        names = joined((factor_name(name, words) for name in found.shares), words)
        return found.fill(words, "importance_unclear", names=names)
    told = [
        f"{factor_name(name, words)} {one['share']:.0%} [{one['low']:.0%}, {one['high']:.0%}]"
        for name, one in found.shares.items()
    ]
    return found.fill(words, "importance", shares=joined(told, words))


SEARCHED = Kind("searched", "search", 1, statement=_searched_text)
"""How many settings were tried, and which came out best."""
OPTIMISM = Kind("optimism", "search", 2, statement=_optimism_text)
"""By how much the search's own score of its best was too good."""
IMPORTANCE = Kind("importance", "search", 30, statement=_importance_text)
"""How much of the spread of scores goes with each setting that was searched."""


def search_findings(evidence: Evidence) -> Iterator[Finding]:
    """None of a study that is no search, or while nothing has a score."""
    search = evidence.study.search
    if search is None or not (found := ranked(tried := tries(evidence), search)):
        return
    best = found[0]
    of_best = {"subject": search.metric, "cells": (cell_id(best.levels),)}
    yield SEARCHED(
        **of_best,
        n=len(tried),
        num_stopped=sum(not one.is_whole and not one.has_failed for one in tried),
        value=score_text(best.score, search),
        factors=[one.name for one in search.dimensions],
    )
    sign = -1 if search.is_lower_better else 1
    values = evidence.finite_values(cell_id(best.levels), search.metric)
    if search.time_to is None and (over := mean_of(values)) is not None:
        ends = [sign * (best.score - end) for end in over.ends if end is not None]
        yield OPTIMISM(
            **of_best,
            n=over.n,
            interval=Interval(min(ends), max(ends)) if ends else None,
            score=best.score,
            mean=over.value,
            too_good=sign * (best.score - over.value),
        )
    if shares := importance(tried, search):
        of_all = {"subject": search.metric, "cells": (), "n": len(tried)}
        yield IMPORTANCE(**of_all, shares=shares)


def importance(tried: Sequence[Tried], search: SearchSpec) -> dict[str, dict[str, float]]:
    """By setting, the share of the variance of scores that its value explains, with the ends of 95% of
    resampled searches; the largest first. Empty where few were tried."""
    known = [one for one in tried if one.values and math.isfinite(one.score)]
    if len(known) < FEWEST:
        return {}
    draws = random.Random(len(known))  # noqa: S311  no secret
    samples = [draws.choices(known, k=len(known)) for _ in range(RESAMPLED)]
    found = {}
    for one in search.dimensions:
        shares = sorted(_explained(one, sample) for sample in samples)
        ends = {"low": shares[RESAMPLED // 40], "high": shares[-RESAMPLED // 40]}
        found[one.name] = {"share": _explained(one, known), **ends}
    return dict(sorted(found.items(), key=lambda pair: -pair[1]["share"]))


def _explained(one: Dimension, tried: Sequence[Tried]) -> float:
    """Of the variance of scores, that between parts of a dimension, less what chance would give."""
    having = [each for each in tried if one.name in each.levels]
    parts: dict[object, list[float]] = {}
    if one.choices:
        for each in having:
            parts.setdefault(each.levels[one.name], []).append(each.score)
    else:
        ordered = sorted(having, key=lambda each: float(each.levels[one.name]))
        for place, each in enumerate(ordered):
            parts.setdefault(PARTS * place // len(ordered), []).append(each.score)
    scores = [score for part in parts.values() for score in part]
    if len(parts) < 2 or len(scores) <= len(parts):
        return 0.0
    middle = statistics.fmean(scores)
    whole = sum((score - middle) ** 2 for score in scores)
    between = sum(len(p) * (statistics.fmean(p) - middle) ** 2 for p in parts.values())
    noise = (whole - between) / (len(scores) - len(parts))
    return max(0.0, (between - (len(parts) - 1) * noise) / (whole + noise)) if whole else 0.0


# The section.


def search_section(data: RunData, words: Words) -> Section | None:
    """None where nothing was searched."""
    search = data.evidence.study.search
    if search is None or not (tried := tries(data.evidence)):
        return None
    blocks: list[Block] = [*first_bullets(data.findings_in("search"), words)]
    blocks.append(Paragraph(words.sentences(*_how(data.evidence, search, tried, words))))
    if scored := [one for one in tried if one.values and math.isfinite(one.score)]:
        blocks += [_history(scored, search, words), *_slices(scored, search, words)]
    blocks.append(tried_table(tried, search, words))
    return Section("search", words("search"), tuple(blocks))


def _how(
    evidence: Evidence, search: SearchSpec, tried: Sequence[Tried], words: Words
) -> Iterator[str]:
    """By what settings were chosen, how well that is known, and what the base is."""
    yield words("search_how", metric=words.metric(search.metric))
    sizes = {one.trial.data.num_val for one in evidence.tried if one.trial.data is not None}
    best = ranked(tried, search)[:1]
    if (
        best
        and is_share(search.metric)
        and search.time_to is None
        and (number := max(sizes, default=0))
    ):
        score = best[0].score
        # As of a test set: two right and two wrong more, so that 100% is left to chance as well.
        share = (score * number + 2) / (number + 4)
        off_by = 1.96 * math.sqrt(share * (1 - share) / number)
        told = {"score": score_text(score, search), "number": count(number).text}
        size = metric_difference(search.metric, off_by, words("points"), off_by).removeprefix("+")
        yield words("search_val", size=f"±{size}", **told)
    if levels := base_text(evidence, words):
        yield words("search_base", levels=levels)


def base_text(evidence: Evidence, words: Words) -> str:
    """The levels of the base, as far as it has what is searched."""
    search = evidence.study.search
    assert search is not None
    settings, found = evidence.study.settings, list[str]()
    for one in search.dimensions:
        part, _, own = one.name.rpartition(".")
        level = getattr(settings, part).get(own) if part else getattr(settings, own)
        if level is not None:
            found.append(level_name(one.name, level, words))
    return words.listed(found)


def _points(tried: Sequence[Tried], search: SearchSpec, words: Words) -> list[charts.Spec]:
    scale = 100 if is_share(search.metric) else 1
    return [
        {
            "cell": cell_id(one.levels),
            "number": place,
            "y": scale * one.score,
            "low": None,
            "high": None,
            "kind": words("search_whole" if one.is_whole else "search_stopped"),
            **{f"level_{n}": one.levels.get(d.name) for n, d in enumerate(search.dimensions)},
        }
        for place, one in enumerate(tried, 1)
    ]


def _scatter(
    rows: Sequence[charts.Spec], x: charts.Spec, search: SearchSpec, words: Words
) -> charts.Spec:
    title = words.metric_title(search.metric)
    highest = 100.0 if is_share(search.metric) else math.inf
    y = charts.quantity("y", title, scale=charts.fitted_axis(rows, highest=highest))
    kinds = [words("search_whole"), words("search_stopped")]
    hover: charts.Hover = [("cell", words("cell"), None), ("y", title, ".4~f")]
    encoding = {"x": x, "y": y, "color": charts.colour("kind", kinds, None)}
    point = charts.dots({**encoding, "tooltip": charts.tooltip(hover)}, size=42)
    return charts.chart(rows, [point], 220)


def _history(tried: Sequence[Tried], search: SearchSpec, words: Words) -> Figure:
    rows = _points(tried, search, words)
    x = charts.quantity(
        "number",
        words("search_number"),
        scale={"zero": False},
        axis={"tickMinStep": 1, "format": "d"},
    )
    best = ranked(tried, search)[:1]
    score = score_text(best[0].score, search) if best else ""
    caption = words("search_caption", metric=words.metric(search.metric))
    alt = words("search_alt", number=len(tried), score=score)
    return Figure("search-history", caption, alt, _scatter(rows, x, search, words))


def _slices(tried: Sequence[Tried], search: SearchSpec, words: Words) -> Iterator[Figure]:
    for place, one in enumerate(search.dimensions):
        rows = [row for row in _points(tried, search, words) if row[f"level_{place}"] is not None]
        if len({row[f"level_{place}"] for row in rows}) < 2:
            continue
        title, field = factor_name(one.name, words), f"level_{place}"
        if one.choices:
            rows = [row | {field: level_text(row[field])} for row in rows]
            x = charts.nominal(
                field, title, [level_text(c) for c in one.choices], {"labelAngle": 0}
            )
        else:
            scale = {"type": "log"} if one.is_log else {"zero": False}
            x = charts.quantity(
                field,
                title,
                scale=scale,
                axis={"tickCount": 5, "format": "d" if one.is_whole else "~g"},
            )
        caption = words("search_slice", metric=words.metric(search.metric), name=title)
        yield Figure(
            figure_id("search", one.name), caption, caption, _scatter(rows, x, search, words)
        )


def tried_table(tried: Sequence[Tried], search: SearchSpec, words: Words) -> Table:
    """All settings that were tried, the best first."""
    order = {one.trial: place for place, one in enumerate(tried, 1)}
    best_first = [*ranked(tried, search)]
    best_first += [one for one in tried if one not in best_first]

    def level(name: str, one: Tried) -> str:
        return level_text(one.levels[name]) if name in one.levels else ""

    fields = [
        value(words("search_number"), lambda one: count(order[one.trial])),
        *(name(factor_name(d.name, words), partial(level, d.name)) for d in search.dimensions),
        value(
            words.metric(search.metric),
            lambda one: (
                number(one.score, metric_value(search.metric, one.score)) if one.values else EMPTY
            ),
        ),
        value(words("search_epochs"), lambda one: count(len(one.values))),
    ]
    note = words("search_table_note")
    return table_of(words("search_table"), fields, best_first, note, num_shown=10, is_sortable=True)
