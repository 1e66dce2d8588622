"""What the learn trials show beside the effects of factors: divergence, time to a target."""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np

from trainlab.analysis import charts, metrics
from trainlab.analysis.classes import confused_findings
from trainlab.analysis.document import Block, Entry, Figure, Paragraph, Section, Table, figure_id
from trainlab.analysis.evidence import ENDED_WELL, LOSS, Evidence, Line, grouped, level_of
from trainlab.analysis.factors import EFFECTS, effect_findings, heat_figure, pattern_findings
from trainlab.analysis.finding import MOST_LINES, Finding, Kind, RunData, arrow
from trainlab.analysis.method import sampling_findings
from trainlab.analysis.scripts import command_text, seen_texts
from trainlab.analysis.tables import (
    EMPTY,
    Field,
    count,
    first_bullets,
    mean,
    name,
    number,
    table_of,
    value,
)
from trainlab.spec import Cell, TrainSpec
from trainlab.spec.base import setting_of
from trainlab.spec.study import Target, lower_is_better
from trainlab.stats import contrasts, special
from trainlab.stats.means import Interval, censored_median, mean_of, rank_p
from trainlab.stats.verdict import are_identical
from trainlab.words import Words
from trainlab.words.numbers import is_share, metric_value

MOST_NAMED = 6
MANY_CELLS = 16
"""With more, all pairs are too many to simulate."""
SEED_PARTS = "seed_parts"
FEWEST = 3
"""Seeds without which a spread says nothing."""


def _best_text(found: Finding, words: Words) -> str:
    num_first = 1 + found.num_identical
    first, others = found.cells[:num_first], found.cells[num_first:]
    if num_first == found.num_cells:
        keys = ["best_identical"]
    elif not found.num_worse:
        keys = ["best_unknown" if found.num_tied > 1 else "best_unknown_of_two"]
    elif found.num_tied:
        keys = ["best_tied", "best_others_worse" if found.num_worse > 1 else "best_other_worse"]
    else:
        keys = ["best_alone" if found.num_worse > 1 else "best_of_two"]
    keys += ["best_left_out"] if found.num_diverging else []
    parts = {
        **ways(words, found.is_known),
        "mean_text": metric_value(found.subject, found.mean),
        "others": _named(others, words),
        "cell": words("best_equal", listed=_named(first, words)) if len(first) > 1 else first[0],
    }
    return words.sentences(*(found.fill(words, key, **parts) for key in keys))


def _named(cells: Sequence[str], words: Words) -> str:
    """The first few by name, and how many more."""
    named = words.listed(cells[:MOST_NAMED])
    if len(cells) <= MOST_NAMED:
        return named
    return words("and_others", listed=named, number=len(cells) - MOST_NAMED)


def ways(words: Words, is_known: bool) -> dict[str, object]:
    """Best, better and worse, or where nothing says which way is better, highest, higher and lower."""
    keys = {"way_best": "way_highest", "way_better": "way_higher", "way_worse": "way_lower"}
    keys["way_at"] = "way_at_most"
    return {name: words(name if is_known else other) for name, other in keys.items()}


BEST = Kind("best", "learning", rank=8, statement=_best_text)
"""The best (or highest) cell of a metric, those that gave the same in every seed, then those that cannot be
told from it; cells with seeds that diverged are left out and counted."""


def best_findings(
    evidence: Evidence, every: metrics.MetricTable, effects: Sequence[Finding]
) -> Iterator[Finding]:
    """Of the cells none of whose seeds diverged, all compared with each other as one family. What
    the effects on the metric call different is not called the same here."""
    by_cell = [evidence.values(cell.id, every.metric).values() for cell in every.cells]
    kept = [row for row, values in enumerate(by_cell) if all(map(math.isfinite, values))]
    table = replace(every, cells=tuple(every.cells[row] for row in kept), values=every.values[kept])
    cells = [cell.id for cell in table.cells]
    if len(cells) < 2:
        return
    num_trained = sum(one.id in evidence.learned for one in metrics.with_like_seeds(evidence.cells))
    is_lower = evidence.study.is_better_lower(table.metric)
    sign = -1.0 if is_lower else 1.0
    # By how much each cell exceeds the others on average, seed by seed: seeds that a cell lacks are no
    # advantage to it.
    rows = contrasts.all_pairs(len(cells))
    difference = contrasts.estimate(table.values, rows).value
    total = np.nan_to_num(difference) @ rows
    counts = np.isfinite(difference).astype(float) @ np.abs(rows)
    lead = sign * np.where(counts > 0, total / np.maximum(counts, 1), -sign * np.inf)
    best = int(np.argmax(lead))
    others = [row for row in range(len(cells)) if row != best]
    # The cells of every effect that is called different, the worse first.
    known = {
        effect.cells if sign * (effect.difference or 0.0) > 0 else effect.cells[::-1]
        for effect in effects
        if effect.verdict == "different"
    }
    worse = {
        other
        for other, is_worse in zip(others, _worse_than(table, best, others, sign), strict=True)
        if (is_worse or (cells[other], cells[best]) in known)
        and (cells[best], cells[other]) not in known
    }
    same = {other for other in others if are_identical(table.values[[best, other]])}
    tied = [int(row) for row in np.argsort(-lead) if row not in {best, *worse, *same}]
    yield BEST(
        subject=table.metric,
        cells=tuple(cells[row] for row in (*sorted({best, *same}), *tied)),
        mean=float(np.nanmean(table.values[best])),
        is_known=is_lower is not None,
        num_cells=len(cells),
        num_identical=len(same),
        num_tied=len(tied),
        num_worse=len(worse - same),
        num_diverging=num_trained - len(cells),
        n=int(np.isfinite(table.values[best]).sum()),
        verdict="identical" if len(same) == len(others) else None,
    )


def _worse_than(
    table: metrics.MetricTable, best: int, others: Sequence[int], sign: float
) -> list[bool]:
    """Which of the others are worse than the best, all pairs of cells being one family."""
    num_cells, num_seeds = table.values.shape
    rows = contrasts.pair_rows(((other, best) for other in others), num_cells)
    estimates = contrasts.estimate(table.values, rows, table.resolution)
    if num_cells <= MANY_CELLS:
        limit = table.compared(contrasts.all_pairs(num_cells)).critical.two_sided
    else:
        # Of so many pairs a simulation would take long: that of fewer, raised as Bonferroni's bound is.
        some = contrasts.all_pairs(MANY_CELLS)
        limit = contrasts.critical_of(contrasts.complete(some, num_seeds, table.looks)).two_sided
        shares = np.array([num_cells * (num_cells - 1) / 2, len(some)])
        raised, of_some = special.ndtri(contrasts.LEVEL / 2 / shares)
        limit *= float(raised / of_some)
    return [bool(one) for one in sign * estimates.value > estimates.half_width(limit)]


def _spread_text(found: Finding, words: Words) -> str:
    def spread(value: float) -> str:
        return found.difference_text(words, value).lstrip("+")

    keys, parts = ["seed_spread" if found.part == "all" else "seed_spread_part"], {}
    if found.ratio is not None:
        keys.append("seed_spread_ratio")
        ratio = Interval(found.ratio_low, found.ratio_high)
        parts["within_ratio"] = found.interval_text(words, interval=ratio)
    parts["spread"], parts["within"] = spread(found.std), found.interval_text(words, spread)
    parts["part_name"] = words.named("part", found.part)
    keys = keys if found.std else ["seed_spread_none"]
    return words.sentences(*(found.fill(words, key, **parts) for key in keys))


SPREAD = Kind(
    "seed_spread",
    "learning",
    rank=3,
    statement=_spread_text,
    weight=lambda found: float(found.std),
)
"""How far seeds lie apart that change one part of what is random, or all; `ratio`: of the two variances."""


def spread_findings(evidence: Evidence, metric: str) -> Iterator[Finding]:
    """Nothing unless the study varies what seeds change."""
    if SEED_PARTS not in evidence.factors:
        return
    known = [
        (cell, str(level_of(cell, SEED_PARTS)), statistics.stdev(values), len(values) - 1)
        for cell in evidence.cells
        if len(values := evidence.finite_values(cell.id, metric)) >= FEWEST
    ]

    def rest(cell: Cell) -> object:
        return {name: level for name, level in cell.levels.items() if name != SEED_PARTS}

    for cell, part, std, freedom in known:
        ratio, low, high = None, None, None
        wholes = (one for one in known if one[1] == "all" and rest(one[0]) == rest(cell))
        for _, _, whole, others in wholes if part != "all" else ():
            if std and whole:
                # The 95% interval of normal noise. Cells that share a part of their randomness vary
                # together, and it is wider than it need be.
                ratio = (std / whole) ** 2
                high, low = (ratio / special.fdtri(freedom, others, [0.025, 0.975])).tolist()
        # Of the standard deviation of normal noise.
        ends = std * np.sqrt(freedom / special.chdtri(freedom, [0.025, 0.975]))
        yield SPREAD(
            subject=metric,
            factor=SEED_PARTS,
            cells=(cell.id,),
            part=part,
            std=std,
            ratio=ratio,
            ratio_low=low,
            ratio_high=high,
            interval=Interval(*ends.tolist()) if std else None,
            n=freedom + 1,
        )


def _epochs(epoch: float | None, words: Words) -> str:
    return words("never") if epoch is None else words.counted("one_epoch", "epochs", epoch)


DIVERGED = Kind("diverged", "learning", rank=2)
"""Trials of a cell whose training loss stopped being finite, or exploded, at the median step."""
NOT_FINITE = Kind("not_finite", "learning", rank=2, text="metric_not_finite")
"""Trials of a cell that trained to their end with a metric that was not finite."""


def _target_text(found: Finding, words: Words) -> str:
    is_usual = found.median_epoch is not None
    key = "target_reached" if is_usual else "target_seldom" if found.num_reached else "target_never"
    target = metric_value(found.subject, found.target)
    return found.fill(words, key, target_text=target, epochs=_epochs(found.median_epoch, words))


TIME_TO_TARGET = Kind(
    "time_to_target",
    "learning",
    rank=12,
    statement=_target_text,
    weight=lambda found: found.num_reached / found.n - 1e-9 * (found.median_s or 0.0),
)
TIME_DIFFERENCE = Kind(
    "time_difference",
    "factors",
    test="times",
    statement=lambda found, words: found.fill(
        words,
        "time_different" if found.verdict == "different" else "time_open",
        target_text=metric_value(found.subject, found.target),
        times=arrow(_epochs(epoch, words) for epoch in (found.epoch_a, found.epoch_b)),
    ),
)
"""Whether a change of one factor makes the target be reached earlier, or at all: `p` of the rank sum, by
permutation; an epoch is None where half of the trials or more never reached it."""


def learn_findings(evidence: Evidence) -> Iterator[Finding]:
    """Effects first, then what went wrong, then time to the targets."""
    effects = list(effect_findings(evidence))
    yield from effects
    # For the metric that people ask about first; the tables have the others.
    for metric in metrics.compared_metrics(evidence)[:1]:
        table = metrics.metric_table(evidence, metric)
        if len(table.cells) > 1:
            own = [one for one in effects if one.of_kind in EFFECTS and one.subject == metric]
            yield from best_findings(evidence, table, own)
            yield from pattern_findings(evidence, table)
        yield from spread_findings(evidence, metric)
        yield from sampling_findings(evidence, table)
    yield from confused_findings(evidence)
    for cell, seeds in evidence.learned.items():
        about: dict[str, Any] = {"cells": (cell,), "n": len(seeds)}
        ended = (o.trial for o in seeds.values() if o.trial.state == "diverged")
        steps = [trial.diverged_at_step or 0 for trial in ended]
        if steps:
            numbers = {"num_diverged": len(steps), "median_step": statistics.median(steps)}
            yield DIVERGED(subject=LOSS, **about, **numbers)
        for metric in evidence.metrics:
            if number := evidence.num_not_finite(cell, metric):
                yield NOT_FINITE(subject=metric, **about, num_not_finite=number)
    for metric in evidence.study.targets:
        yield from _times_to_target(evidence, evidence.study.target(metric))


def _times_to_target(evidence: Evidence, target: Target) -> Iterator[Finding]:
    """Of every cell, then of every pair. One that was stopped from outside might yet have reached it."""

    about = {"subject": target.metric, "target": target.value}
    never: Line = {"epoch": math.inf, "time_s": math.inf}

    def is_met(line: Line) -> bool:
        value = line.get(target.metric)
        return value is not None and target.is_met_by(float(value))

    epochs: dict[str, list[float]] = {}
    for cell in (one.id for one in evidence.cells):
        learned = evidence.learned.get(cell, {}).values()
        ended = [one.epochs for one in learned if one.trial.state in ENDED_WELL]
        if ended:
            # The first epoch that meets the target, even if a later one falls back, and its end.
            firsts = [
                min((o for o in lines if is_met(o)), key=itemgetter("epoch"), default=never)
                for lines in ended
            ]
            epochs[cell] = [float(line["epoch"]) for line in firsts]
            yield TIME_TO_TARGET(
                **about,
                cells=(cell,),
                num_reached=sum(map(math.isfinite, epochs[cell])),
                median_epoch=censored_median(epochs[cell]),
                median_s=censored_median([float(line["time_s"]) for line in firsts]),
                n=len(ended),
            )
    compared = [pair for pair in metrics.contrasts(evidence.cells) if {*pair.ids} <= epochs.keys()]
    tested = [(pair, epochs[pair.ids[0]], epochs[pair.ids[1]]) for pair in compared]
    known = [(pair, a, b, p) for pair, a, b in tested if (p := rank_p(a, b)) is not None]
    for pair, a, b, p in known:
        adjusted = min(1.0, p * len(known))
        yield TIME_DIFFERENCE(
            **about,
            **pair.shared,
            epoch_a=censored_median(a),
            epoch_b=censored_median(b),
            never_a=a.count(math.inf),
            never_b=b.count(math.inf),
            p=adjusted,
            n=min(len(a), len(b)),
            verdict="different" if adjusted <= contrasts.LEVEL else "cannot tell",
        )


def learn_table(evidence: Evidence, words: Words) -> Table:
    """Each cell's means over seeds, with the 95% interval of the mean."""
    names = metrics.in_order(evidence.metrics, evidence.study)
    times = [words("epoch_s_training"), words("total_s_training")]
    headings = [words("seeds"), *map(words.metric, names), *times]
    rows = list[list[Entry]]()
    for cell in (one for one in evidence.cells if one.id in evidence.learned):
        trials = evidence.learned[cell.id].values()
        entries = [Entry(cell.id), done_entry(evidence, cell.id, words)]
        entries += [metric_entry(evidence, cell.id, metric, words) for metric in names]
        # Those that were cut short have not taken all of the time.
        ended = [one for one in trials if one.trial.state in ENDED_WELL]
        for times_s in ([one.epoch_s() for one in ended], [one.trial.total_s for one in ended]):
            known_s = [time_s for time_s in times_s if time_s is not None]
            entries.append(number(statistics.median(known_s) if known_s else None))
        rows.append(entries)
    is_of_keras = any(bool(one.watched and one.watched.framework) for one in evidence.all_learned)
    keys = {
        "learn_table_note": True,
        # Why the seconds are not those of a script or workload that runs alone.
        "learn_table_beside": len(evidence.trials) > 1,
        "learn_table_cost": bool(evidence.measured) and evidence.study.script is None,
        "learn_table_best": any(cell.settings.keep_best for cell in evidence.cells),
        "learn_table_script": evidence.study.script is not None and not is_of_keras,
        "learn_table_keras": is_of_keras,
    }
    engines = {str(one.trial.resolved.get("engine", "eager")) for one in evidence.measured}
    told = {"engines": words.listed(sorted(engines))}
    notes = (words(key, **told) for key, is_said in keys.items() if is_said)
    note = words.sentences(*notes, _engine_text(evidence, words))
    return _cell_table(words("learn_table"), headings, rows, note, words)


def done_entry(evidence: Evidence, cell: str, words: Words) -> Entry:
    """How many of a cell's trials are done, and of how many where others are not."""
    states = [one.trial.state for one in evidence.learned.get(cell, {}).values()]
    done, total = states.count("done"), len(states)
    text = str(done) if done == total else words("some_of", some=done, all=total)
    return Entry(text, float(done))


def metric_entry(evidence: Evidence, cell: str, metric: str, words: Words) -> Entry:
    """A cell's mean over seeds with its interval; without a value why: all diverged, or none ended well."""
    values = [*evidence.values(cell, metric).values()]
    states = {one.trial.state for one in evidence.learned.get(cell, {}).values()}
    missing = words.listed(words.named("state", state) for state in sorted(states))
    missing = words("none_finite") if states & {*ENDED_WELL} else missing
    return mean(metric, mean_of(values, metrics.limits_of(metric, values)), missing)


def _cell_table(
    caption: str, headings: Sequence[str], rows: list[list[Entry]], note: str, words: Words
) -> Table:
    """Rows that begin with a cell, under its heading and these."""
    values = (value(heading, itemgetter(n)) for n, heading in enumerate(headings, start=1))
    fields = [name(words("cell"), itemgetter(0)), *values]
    return table_of(caption, fields, rows, note, cell=lambda row: row[0].text, is_sortable=True)


FEW_EPOCHS = 6


def epoch_table(evidence: Evidence, words: Words, *, with_all: bool = True) -> Table | None:
    """Every epoch of every learn trial, or some, each one's last among them; None where none has ended."""
    of_trials = [(seed, one) for seeds in evidence.learned.values() for seed, one in seeds.items()]
    few = max(1, FEW_EPOCHS // max(1, len(of_trials)))
    lines = [
        (seed, line)
        for seed, one in of_trials
        for line in (one.epochs if with_all else thinned(one.epochs, few))
    ]
    if not lines:
        return None
    keys = dict.fromkeys(key for _, line in lines for key in line if "/" in key)

    def metric(key: str, row: tuple[int, Line]) -> Entry:
        # A script tells a metric when it likes.
        known = row[1].get(key)
        none = Entry(words("none_finite")) if key in row[1] else EMPTY
        return none if known is None else Entry(metric_value(key, known), known)

    def seconds(key: str, row: tuple[int, Line]) -> Entry:
        return number(row[1][key], f"{row[1][key]:.2f}")

    seed: Field[tuple[int, Line]] = value(words("seed"), lambda row: count(row[0]))
    fields = [
        *([seed] if with_all or len(of_trials) > 1 else []),
        value(words("epoch"), lambda row: count(row[1]["epoch"])),
        *(value(words.metric(key), partial(metric, key)) for key in keys),
        *(value(words(key), partial(seconds, key)) for key in ("train_s", "test_s")),
    ]
    caption = f"{evidence.name}: {_settings(evidence, words)}"
    most = len(lines) if with_all else MOST_LINES
    note = _engine_text(evidence, words) if with_all else ""
    return table_of(caption, fields, lines, note, num_shown=most, is_sortable=True)


def epochs_by_cell(evidence: Evidence, words: Words) -> Table | None:
    """Every epoch of every cell, means over the seeds that reached it; None below two epochs."""
    by_cell = {
        cell.id: [line for one in evidence.learned[cell.id].values() for line in one.epochs]
        for cell in evidence.cells
        if cell.id in evidence.learned
    }
    lines = [line for of_cell in by_cell.values() for line in of_cell]
    if max((line["epoch"] for line in lines), default=0) < 2:
        return None
    keys = dict.fromkeys(key for line in lines for key in line if "/" in key)
    rows: list[list[Entry]] = []
    for cell, of_cell in by_cell.items():
        for epoch, some in sorted(grouped(of_cell, itemgetter("epoch")).items()):
            entries = [Entry(cell), count(int(epoch)), count(len(some))]
            for key in keys:
                known = [float(line[key]) for line in some if line.get(key) is not None]
                over = statistics.fmean(known) if known else None
                entries.append(EMPTY if over is None else Entry(metric_value(key, over), over))
            seconds = (float(line["train_s"]) + float(line["test_s"]) for line in some)
            rows.append([*entries, number(statistics.fmean(seconds))])
    headings = [words("epoch"), words("seeds"), *map(words.metric, keys), words("epoch_total_s")]
    caption, note = words("epochs_table"), words("epochs_table_note")
    return _cell_table(caption, headings, rows, note, words)


def _engine_text(evidence: Evidence, words: Words) -> str:
    """Which engines trained, and how many trials at once; nothing where that was eager, one by one."""
    learned = [trial.resolved for trial in evidence.trials if trial.kind == "learn"]
    engines = dict.fromkeys(str(one["engine"]) for one in learned if "engine" in one)
    if not engines.keys() - {"eager"}:
        return ""
    most = max(int(one.get("trials_together", 1)) for one in learned)
    share = words("their_share", number=most) if most > 1 else ""
    return words.sentences(words("trained_by", engines=words.listed(engines)), share)


def _settings(evidence: Evidence, words: Words) -> str:
    """The main settings of the study's only cell, in short."""
    trial = next(trial for trial in evidence.trials if trial.kind == "learn")
    settings, resolved = trial.settings, trial.resolved
    if evidence.study.script is not None:
        return words.listed([command_text(evidence.study.script), *seen_texts(resolved, words)])
    used = f"{settings['optimizer']} lr {resolved.get('lr', settings['lr'])}"
    parts = [
        str(resolved.get("device_name", settings["device"])),
        words("batch_of", size=settings["batch_size"]),
        used if not resolved or "optimizer_code" in resolved else words("own_optimizer"),
        settings["precision"],
        *(f"{key}={setting}" for key, setting in settings["model"].items()),
        *([] if settings["zero_grad"] else [words("never_reset")]),
        *(
            f"{name}={words.setting(settings[name])}"
            for name, field in TrainSpec.model_fields.items()
            if (facts := setting_of(TrainSpec, name)).is_said or facts.not_by
            if settings.get(name, field.default) != field.default
        ),
    ]
    return words.listed(parts)


MOST_POINTS, MOST_OF_SEED = 120, 60
"""Points of one curve; a longer one is thinned out and keeps its last point."""
T = TypeVar("T")


def thinned(items: Sequence[T], most: int = MOST_POINTS) -> list[T]:
    """At most so many, evenly spaced, the last and if there are several the first among them."""
    places = np.linspace(len(items) - 1, 0, min(most, len(items))).round().astype(int)
    return [items[place] for place in places[::-1]]


@dataclass(frozen=True)
class CurvePoint:
    """The mean over seeds at one moment of training, and its 95% interval."""

    cell: str
    epoch: float
    """How many times the training set had been seen, or the updates made."""
    mean: float
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True)
class Curves:
    """One metric over training, a curve per cell."""

    metric: str
    points: tuple[CurvePoint, ...]
    by_step: bool
    """Whether the points lie within epochs."""
    over_updates: bool = False
    """Whether they are counted in updates instead: no loader of a script tells what an epoch is."""
    num_each: int | None = None
    """Of a script: so many recorded updates of which a point is the mean."""
    seeds: tuple[tuple[str, tuple[tuple[float, float], ...]], ...] = ()
    """Each single seed: its cell, and its value by moment."""


FAR = 100.0
"""A loss explodes that rises to so many times the highest value of the setting that stays lowest."""


def exploding(curves: Curves) -> dict[str, float]:
    """The cells of a loss that rise so far that the others could not be read beside them: to which mean."""
    means = grouped(curves.points, lambda point: point.cell)
    peaks = {cell: max(point.mean for point in points) for cell, points in means.items()}
    lowest = min(peaks.values())
    if not lower_is_better(curves.metric) or lowest <= 0:
        return {}
    return {cell: peak for cell, peak in peaks.items() if peak > FAR * lowest}


def metric_curves(data: RunData, metric: str) -> Curves | None:
    """By step where steps have the metric, else by epoch; None where no trial reached a first point."""
    learned = data.drawn
    is_script = data.evidence.study.script is not None
    # The loaders of a script may not tell how much data there is.
    over_updates = is_script and not all(
        one.trial.resolved.get("train_samples") for s in learned.values() for one in s.values()
    )

    def by_step(cell: str, seed: int) -> list[tuple[float, float | None]]:
        trial = learned[cell][seed].trial
        resolved: int | None = trial.resolved.get("train_samples")
        num_train = resolved if trial.data is None else trial.data.num_train
        lines = [line for line in data.step_lines[cell][seed] if metric in line]
        if over_updates:
            return [(float(line["step"]), line[metric]) for line in lines]
        return [(line["samples"] / num_train, line[metric]) for line in lines] if num_train else []

    curves = [(cell, by_step(cell, seed)) for cell, seeds in learned.items() for seed in seeds]
    longest = max((len(points) for _, points in curves), default=0)
    if not longest:
        curves = [
            (cell, [(float(line["epoch"]), line[metric]) for line in one.epochs if metric in line])
            for cell, seeds in learned.items()
            for one in seeds.values()
        ]
    num_each = math.ceil(longest / MOST_POINTS) if is_script and longest else None
    values: dict[str, dict[float, list[float]]] = {cell: defaultdict(list) for cell in learned}
    by_seed: list[tuple[str, dict[float, float]]] = []
    for cell, points in curves:
        by_seed.append((cell, {}))
        # Of so many points, at the last of them: single batches differ more than training does.
        for start in range(0, len(points), num_each or 1):
            some = points[start : start + (num_each or 1)]
            known = [value for _, value in some if value is not None]
            over = math.fsum(known) / len(known) if known else math.nan
            if math.isfinite(over):
                values[cell][some[-1][0]].append(over)
                by_seed[-1][1][some[-1][0]] = over
    limits = metrics.limits_of(
        metric, (v for of_cell in values.values() for own in of_cell.values() for v in own)
    )
    means = [
        CurvePoint(cell, moment, over_seeds.value, *over_seeds.ends, over_seeds.n)
        for cell, of_cell in values.items()
        for moment in thinned(sorted(of_cell))
        if (over_seeds := mean_of(of_cell[moment], limits)) is not None
    ]
    if not means:
        return None
    seeds = ((cell, tuple(thinned([*own.items()], MOST_OF_SEED))) for cell, own in by_seed)
    counted = bool(longest), over_updates and bool(longest), num_each
    return Curves(metric, tuple(means), *counted, tuple(seeds))


ABOVE = 1.25
"""Of a chart that is cut above: room for the curves that leave it to be seen leaving."""


def curve_chart(
    curves: Curves, cells: Sequence[str], words: Words, among: Sequence[str] = ()
) -> charts.Spec:
    """Curves over epochs, or updates, with the band over seeds; where that is too wide to draw or the seeds
    are few, with each seed. `among` are all cells of the study."""
    scale = 100 if is_share(curves.metric) else 1
    rows: list[charts.Spec] = [
        {
            "cell": point.cell,
            "x": point.epoch,
            "y": scale * point.mean,
            "low": None if point.low is None else scale * point.low,
            "high": None if point.high is None else scale * point.high,
            "n": point.n,
            "line": None,
        }
        for point in curves.points
    ]
    # Without the curves of a setting that explodes, which would flatten the others.
    cut = exploding(curves)
    shown = [row for row in rows if row["cell"] not in cut]
    highest = 100.0 if is_share(curves.metric) else math.inf
    axis = charts.fitted_axis(shown, room=ABOVE if cut else 1.0, highest=highest)
    charts.add_bands(rows, axis)
    has_band = {row["cell"] for row in rows if "band_low" in row}
    seeds: list[charts.Spec] = [
        {"cell": cell, "seed": number, "x": x, "y": scale * y}
        for number, (cell, points) in enumerate(curves.seeds)
        if cell not in has_band and [one for one, _ in curves.seeds].count(cell) > 1
        for x, y in points
    ]
    ends = [row["x"] for row in rows]
    # Parts of an epoch only where there are few whole ones.
    is_short = curves.by_step and max(ends) < 2
    ticks: charts.Spec = {"tickMinStep": 0.1 if is_short else 1, "tickCount": 6}
    epochs = [*range(math.ceil(min(ends)), math.floor(max(ends)) + 1)]
    if not curves.by_step and 1 < len(epochs) <= 6:
        # A tick at each epoch where there are few: of two or three, `tickMinStep` makes halves.
        ticks |= {"values": epochs, "format": "d"}
    x_title = words("updates" if curves.over_updates else "epochs_seen")
    y_title = words.metric_title(curves.metric)
    x = charts.quantity("x", x_title, scale={"nice": False}, axis=ticks)
    y = charts.quantity("y", charts.axis_title(y_title, axis, words), scale=axis)
    hover: charts.Hover = [
        ("cell", words("cell"), None),
        ("x", x_title, ",.2~f"),
        ("y", y_title, ".4~f"),
        *charts.interval_hover(words, ".4~f"),
        ("n", words("seeds"), None),
    ]
    hue = charts.colour("cell", cells, words("cell"), among=among)
    return charts.line_chart(rows, x, y, hue, hover, seeds)


USUAL = ("train/loss", "test/loss", "train/accuracy", "test/accuracy")


def learn_section(data: RunData, words: Words) -> Section | None:
    """None where nothing was trained."""
    evidence = data.evidence
    if not data.drawn:
        return None
    # Losses and accuracies of training and test, then the other metrics that are compared.
    compared = metrics.compared_metrics(evidence)
    known = evidence.metrics
    if not known:  # no trial has ended
        lines = (line for s in data.step_lines.values() for seed in s.values() for line in seed[:1])
        epochs = (line for s in data.drawn.values() for one in s.values() for line in one.epochs)
        known = tuple({name for line in (*lines, *epochs) for name in line})
    drawn = dict.fromkeys([*(metric for metric in USUAL if metric in known), *compared])
    figures = [*filter(None, (curve_figure(data, metric, words) for metric in drawn))]
    intro = "learn_intro" if figures else "learn_intro_no_curves"
    blocks: list[Block] = [Paragraph(words(intro, seeds=len(evidence.study.seeds)))]
    num_all, num_drawn = len(evidence.learned), len(data.drawn)
    if num_all > num_drawn and figures:
        blocks.append(Paragraph(words("curves_chosen", drawn=num_drawn, all=num_all)))
    heat = heat_figure(evidence, compared[0], words) if compared else None
    table = learn_table(evidence, words) if evidence.learned else None
    blocks += [block for block in (*figures, heat, table) if block is not None]
    blocks += first_bullets(data.findings_in("learning"), words)
    if (by_epoch := epochs_by_cell(evidence, words)) is not None:
        blocks.append(replace(by_epoch, is_folded=True))
    # The heading says what there is beside the loss.
    others = [metric for metric in evidence.metrics if not metric.endswith("/loss")]
    heading = "learn" if any(map(is_share, others)) else "learn_metrics"
    return Section("learning", words(heading if others else "learn_loss"), tuple(blocks))


def curve_figure(data: RunData, metric: str, words: Words) -> Figure | None:
    """A metric over training; None below two moments: the comparison of cells shows one better."""
    curves = metric_curves(data, metric)
    if curves is None or len({point.epoch for point in curves.points}) < 2:
        return None
    last = {point.cell: point.mean for point in curves.points}
    ends = words.listed(f"{cell}: {metric_value(metric, end)}" for cell, end in last.items())
    evidence = data.evidence
    notes = [words("trend_note" if len(evidence.study.seeds) > 1 else "trend_note_one")]
    alt = "trend_alt"
    if curves.num_each is not None:
        alt = "trend_alt_updates"
        each = "trend_note_updates" if curves.num_each > 1 else "trend_note_each_update"
        notes.append(words(each, number=curves.num_each))
        if any(trial.state in ENDED_WELL for trial in evidence.trials):
            ended = (one for cell in data.drawn for one in evidence.learned.get(cell, {}).values())
            is_one_pass = any(one.is_one_pass() for one in ended)
            notes.append(words("table_mean_end" if is_one_pass else "table_mean_epoch"))
    elif curves.by_step:
        alt = "trend_alt_steps"
        notes.append(words("trend_note_steps"))
    # That the axis leaves out how far a setting explodes, and how far that is.
    if cut := exploding(curves):
        texts = (words("trend_peak", cell=c, value=f"{peak:.2g}") for c, peak in cut.items())
        notes.append(words("trend_cut", peaks=words("list_semicolon").join(texts)))
    caption = "trend_caption_updates" if curves.over_updates else "trend_caption"
    return Figure(
        id=figure_id("trend", metric),
        caption=words.tidy(words(caption, metric=words.metric(metric))),
        alt=words.tidy(words(alt, metric=words.metric(metric), ends=ends)),
        note=words.sentences(*notes),
        spec=curve_chart(curves, data.drawn_cells, words, [cell.id for cell in evidence.cells]),
    )


def curves_beside(
    runs: Sequence[RunData], labels: Sequence[str], metric: str, words: Words
) -> Figure | None:
    """A metric over training in several runs; None where too little is known, or moments differ in kind."""
    most, names, found = max(1, MOST_LINES // len(runs)), list[str](), list[Curves]()
    for data, label in zip(runs, labels, strict=True):
        curves = metric_curves(data, metric)
        if curves is None:
            continue
        drawn = data.drawn_cells[:most]
        named = {cell: label if len(drawn) == 1 else f"{label}: {cell}" for cell in drawn}
        own = (replace(p, cell=named[p.cell]) for p in curves.points if p.cell in named)
        found.append(replace(curves, points=tuple(own)))
        names += named.values()
    points = tuple(point for curves in found for point in curves.points)
    if (
        len({(one.by_step, one.over_updates) for one in found}) != 1
        or len({p.epoch for p in points}) < 2
    ):
        return None
    last = {point.cell: metric_value(metric, point.mean) for point in points}
    ends = words.listed(f"{name}: {end}" for name, end in last.items())
    return Figure(
        id=figure_id("beside-trend", metric),
        caption=words.tidy(words("trend_caption", metric=words.metric(metric))),
        alt=words.tidy(words("trend_alt", metric=words.metric(metric), ends=ends)),
        note=words("trend_note"),
        spec=curve_chart(replace(found[0], points=points), names, words),
    )
