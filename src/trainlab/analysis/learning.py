"""What the learn trials show beside the effects of factors: divergence, time to a target."""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import special

from trainlab.analysis.charts import (
    Hover,
    Spec,
    add_bands,
    colour,
    fitted_axis,
    heat_map,
    interval_hover,
    line_chart,
    quantity,
)
from trainlab.analysis.classes import confused_findings
from trainlab.analysis.document import Block, Entry, Figure, Paragraph, Section, Table, figure_id
from trainlab.analysis.evidence import ENDED_WELL, Evidence, LearnedTrial, Line, level_of
from trainlab.analysis.factors import EFFECTS, effect_findings, pattern_findings
from trainlab.analysis.finding import Finding, Kind, RunData, arrow
from trainlab.analysis.metrics import (
    MetricTable,
    compared_metrics,
    contrasts,
    in_order,
    limits_of,
    metric_table,
    never_diverged,
    num_test_samples,
    with_like_seeds,
)
from trainlab.analysis.scripts import command_text, seen_texts
from trainlab.analysis.tables import (
    EMPTY,
    count,
    first_bullets,
    mean,
    name,
    number,
    table_of,
    value,
)
from trainlab.record.trial_record import TrialRecord
from trainlab.spec import Cell, TrainSpec
from trainlab.spec.base import setting_of
from trainlab.spec.study import Target, lower_is_better, target_of
from trainlab.stats.contrasts import (
    LEVEL,
    Floats,
    all_pairs,
    complete,
    critical_of,
    estimate,
    pair_rows,
)
from trainlab.stats.means import Interval, censored_median, mean_of, rank_p
from trainlab.stats.verdict import are_identical
from trainlab.words import Words
from trainlab.words.numbers import figure, is_share, metric_value

MOST_NAMED = 6
MANY_CELLS = 16
"""With more, all pairs are too many to simulate."""
SEED_PARTS = "seed_parts"
FEWEST = 3
"""Seeds without which a spread says nothing."""


def _best_text(found: Finding, words: Words) -> str:
    num_first = 1 + found.num_identical
    first = found.cells[0]
    if found.num_identical:
        first = words("best_equal", listed=_named(found.cells[:num_first], words))
    if num_first == found.num_cells:
        key = "best_identical"
    elif not found.num_worse:
        key = "best_unknown" if found.num_tied > 1 else "best_unknown_of_two"
    elif found.num_tied:
        key = "best_tied"
    else:
        key = "best_alone" if found.num_worse > 1 else "best_of_two"
    others = _named(found.cells[num_first:], words)
    mean_text = metric_value(found.subject, found.mean)
    texts = [found.fill(words, key, mean_text=mean_text, others=others, cell=first)]
    if found.num_tied and found.num_worse:
        key = "best_others_worse" if found.num_worse > 1 else "best_other_worse"
        texts.append(found.fill(words, key))
    if found.num_diverging:
        texts.append(found.fill(words, "best_left_out"))
    return words.sentences(*texts)


BEST = Kind("best", "learning", rank=8, statement=_best_text)
"""The best cell of a metric, then those that gave the same in every seed, then those that cannot be told
from it; cells with seeds that diverged are left out and counted."""


def _named(cells: Sequence[str], words: Words) -> str:
    """The first few by name, and how many more."""
    named = words.listed(cells[:MOST_NAMED])
    if len(cells) <= MOST_NAMED:
        return named
    return words("and_others", listed=named, number=len(cells) - MOST_NAMED)


def best_findings(
    evidence: Evidence, every: MetricTable, effects: Sequence[Finding]
) -> Iterator[Finding]:
    """Of the cells none of whose seeds diverged, all compared with each other as one family. What
    the effects on the metric call different is not called the same here."""
    table = every.of_rows(never_diverged(evidence, every))
    if len(table.cells) < 2:
        return
    cells = [cell.id for cell in table.cells]
    num_trained = sum(one.id in evidence.learned for one in with_like_seeds(evidence.cells))
    sign = -1.0 if evidence.study.is_better_lower(table.metric) else 1.0
    lead = sign * _leads(table)
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
        mean=float(table.means[best]),
        num_cells=len(cells),
        num_identical=len(same),
        num_tied=len(tied),
        num_worse=len(worse - same),
        num_diverging=num_trained - len(cells),
        n=int(np.isfinite(table.values[best]).sum()),
        verdict="identical" if len(same) == len(others) else None,
    )


def _leads(table: MetricTable) -> Floats:
    """By how much each cell exceeds the others on average, seed by seed: seeds that a cell lacks are no
    advantage to it."""
    rows = all_pairs(len(table.cells))
    difference = estimate(table.values, rows).value
    counted = np.isfinite(difference)
    total = np.where(counted, difference, 0.0) @ rows
    count = counted.astype(float) @ np.abs(rows)
    return np.asarray(np.where(count > 0, total / np.maximum(count, 1), -np.inf))


def _worse_than(table: MetricTable, best: int, others: Sequence[int], sign: float) -> list[bool]:
    """Which of the others are worse than the best, all pairs of cells being one family."""
    num_cells, num_seeds = table.values.shape
    rows = pair_rows(((other, best) for other in others), num_cells)
    estimates = estimate(table.values, rows, table.resolution)
    if num_cells <= MANY_CELLS:
        limit = table.compared(all_pairs(num_cells)).critical.two_sided
    else:
        # Of so many pairs a simulation would take long: that of fewer, raised as Bonferroni's bound is.
        some = all_pairs(MANY_CELLS)
        limit = critical_of(complete(some, num_seeds, table.looks)).two_sided
        num_pairs = num_cells * (num_cells - 1) / 2
        limit *= float(special.ndtri(LEVEL / 2 / num_pairs) / special.ndtri(LEVEL / 2 / len(some)))
    return [bool(d) for d in sign * estimates.value > estimates.half_width(limit)]


def _spread_text(found: Finding, words: Words) -> str:
    if not found.std:
        return found.fill(words, "seed_spread_none")
    text = found.fill(words, "seed_spread" if found.part == "all" else "seed_spread_part")
    ratio = [] if found.ratio is None else [found.fill(words, "seed_spread_ratio")]
    return words.sentences(text, *ratio)


def _spread_phrases(found: Finding, words: Words) -> dict[str, object]:
    def spread(value: float) -> str:
        return found.difference_text(words, value).lstrip("+")

    within = ""
    if found.ratio_low is not None and found.ratio_high is not None:
        within = words("within", low=figure(found.ratio_low), high=figure(found.ratio_high))
    return {
        "spread": spread(found.std),
        "within": found.interval_text(words, spread),
        "within_ratio": within,
        "part_name": words.named("part", found.part),
    }


SPREAD = Kind(
    "seed_spread",
    "learning",
    rank=3,
    statement=_spread_text,
    phrases=_spread_phrases,
    weight=lambda found: float(found.std),
)
"""How far the seeds of a cell lie apart when they change one part of what is random, or all; `ratio` is its
variance over that of the cell in which they change everything."""


def spread_findings(evidence: Evidence, metric: str) -> Iterator[Finding]:
    """Nothing unless the study varies what seeds change."""
    if SEED_PARTS not in evidence.factors:
        return
    values = {cell.id: evidence.finite_values(cell.id, metric) for cell in evidence.cells}
    known = [
        (cell.id, str(level_of(cell, SEED_PARTS)))
        for cell in evidence.cells
        if len(values[cell.id]) >= FEWEST
    ]
    whole = {_rest(cell): values[cell] for cell, part in known if part == "all"}
    for cell, part in known:
        own = values[cell]
        ratio = None if part == "all" else _variance_ratio(own, whole.get(_rest(cell), []))
        std = _std(own)
        ends = special.chdtri(len(own) - 1, [0.025, 0.975])
        yield SPREAD(
            subject=metric,
            factor=SEED_PARTS,
            cells=(cell,),
            part=part,
            std=std,
            ratio=None if ratio is None else ratio[0],
            ratio_low=None if ratio is None else ratio[1],
            ratio_high=None if ratio is None else ratio[2],
            # Of the standard deviation of normal noise.
            interval=Interval(*(std * math.sqrt((len(own) - 1) / float(end)) for end in ends))
            if std
            else None,
            n=len(own),
        )


def _rest(cell_id: str) -> str:
    """A cell's id without what its seeds change."""
    parts = [part for part in cell_id.split(",") if not part.startswith(f"{SEED_PARTS}=")]
    return ",".join(part for part in parts if part != "base")


def _std(values: Sequence[float]) -> float:
    """Exactly zero where all values are equal."""
    return statistics.stdev(values) if len({*values}) > 1 else 0.0


def _variance_ratio(
    own: Sequence[float], whole: Sequence[float]
) -> tuple[float, float, float] | None:
    """Of normal noise, with the 95% interval of the F distribution; None where either does not vary. Cells
    that share a part of their randomness vary together, and the interval is wider than it need be."""
    if len(whole) < FEWEST or not _std(own) or not _std(whole):
        return None
    ratio = (_std(own) / _std(whole)) ** 2
    low, high = (
        ratio / float(special.fdtri(len(own) - 1, len(whole) - 1, share))
        for share in (0.975, 0.025)
    )
    return ratio, low, high


TEST_SET = Kind(
    "test_set",
    "method",
    phrases=lambda found, words: {
        "value_text": metric_value(found.subject, found.value),
        "error_text": found.difference_text(words, found.half_width).lstrip("+"),
        "difference_text": found.difference_text(words, found.half_width_difference).lstrip("+"),
    },
)
"""How well an accuracy, and the difference of two, is known from the number of test samples alone."""


def sampling_findings(evidence: Evidence, table: MetricTable) -> Iterator[Finding]:
    """For the best of the cells, where the metric is an accuracy."""
    num_samples = num_test_samples(evidence)
    if not is_share(table.metric) or not num_samples or not table.cells:
        return
    value = float(np.nanmax(table.means))
    if not 0 <= value <= 1:
        return  # no share, whatever its name says
    # Two right and two wrong more: without them nothing would be left to chance at 100%.
    share = (value * num_samples + 2) / (num_samples + 4)
    # Both test sets are drawn: this one and the other.
    half_width = 1.96 * math.sqrt(2 * share * (1 - share) / num_samples)
    yield TEST_SET(
        subject=table.metric,
        cells=(),
        num_samples=num_samples,
        value=value,
        half_width=half_width,
        half_width_difference=math.sqrt(2) * half_width,
        n=num_samples,
    )


def _diverged_text(found: Finding, words: Words) -> str:
    where = ""
    if found.median_step is not None:
        where = found.fill(words, "diverged_where_some" if found.num_in_test else "diverged_where")
    if found.num_in_test:
        where += found.fill(words, "diverged_in_test_only")
    return found.fill(words, "diverged", where=where)


DIVERGED = Kind("diverged", "learning", rank=2, statement=_diverged_text)
"""Trials of a cell whose loss stopped being finite, or exploded: in training at the median step, or on the
test set alone."""


def _target_text(found: Finding, words: Words) -> str:
    key = "target_reached" if found.num_reached else "target_never"
    if found.num_reached and found.median_epoch is None:
        key = "target_seldom"
    return found.fill(
        words,
        key,
        target_text=metric_value(found.subject, found.target),
        epochs=_epochs(found.median_epoch, words),
    )


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


def _epochs(epoch: float | None, words: Words) -> str:
    return words("never") if epoch is None else words.counted("one_epoch", "epochs", epoch)


def learn_findings(evidence: Evidence) -> Iterator[Finding]:
    """Effects first, then what went wrong, then time to the targets."""
    effects = list(effect_findings(evidence))
    yield from effects
    # For the metric that people ask about first; the tables have the others.
    for metric in compared_metrics(evidence)[:1]:
        table = metric_table(evidence, metric)
        if len(table.cells) > 1:
            own = [one for one in effects if one.of_kind in EFFECTS and one.subject == metric]
            yield from best_findings(evidence, table, own)
            yield from pattern_findings(evidence, table)
        yield from spread_findings(evidence, metric)
        yield from sampling_findings(evidence, table)
    yield from confused_findings(evidence)
    for cell, seeds in evidence.learned.items():
        trials = [learned.trial for learned in seeds.values() if learned.trial.state == "diverged"]
        steps = [trial.diverged_at_step for trial in trials if trial.diverged_at_step is not None]
        if trials:
            yield DIVERGED(
                subject="train/loss",
                cells=(cell,),
                num_diverged=len(trials),
                num_in_training=len(steps),
                num_in_test=len(trials) - len(steps),
                median_step=statistics.median(steps) if steps else None,
                n=len(seeds),
            )
    for metric, target in evidence.study.targets.items():
        yield from _times_to_target(evidence, target_of(metric, target))


class Reached(NamedTuple):
    """When a trial reached a target; infinite where it never did."""

    epoch: float
    elapsed_s: float


def first_reached(epochs: Sequence[Line], target: Target) -> Reached:
    """The first epoch that meets the target, even if a later one falls back."""
    for line in sorted(epochs, key=lambda line: int(line["epoch"])):
        value = line.get(target.metric)
        if value is not None and target.is_met_by(float(value)):
            return Reached(float(line["epoch"]), float(line["time_s"]))
    return Reached(math.inf, math.inf)


def _times_to_target(evidence: Evidence, target: Target) -> Iterator[Finding]:
    """Of every cell, then every cell against its reference. One that was stopped from outside might yet
    have reached it, and does not count."""
    times: dict[str, list[Reached]] = {}
    for cell in (one.id for one in evidence.cells):
        learned = evidence.learned.get(cell, {}).values()
        ended = [one.epochs for one in learned if one.trial.state in ENDED_WELL]
        if ended:
            times[cell] = [first_reached(epochs, target) for epochs in ended]
    never = {cell: sum(math.isinf(one.epoch) for one in own) for cell, own in times.items()}
    medians = {cell: censored_median([one.epoch for one in own]) for cell, own in times.items()}
    for cell, own in times.items():
        yield TIME_TO_TARGET(
            subject=target.metric,
            cells=(cell,),
            target=target.value,
            num_reached=len(own) - never[cell],
            median_epoch=medians[cell],
            median_s=censored_median([one.elapsed_s for one in own]),
            n=len(own),
        )
    tested = [
        (pair, p)
        for pair in contrasts(evidence.cells)
        if {*pair.ids} <= times.keys()
        and (p := rank_p(*([one.epoch for one in times[cell]] for cell in pair.ids))) is not None
    ]
    for pair, p in tested:
        a, b = pair.ids
        adjusted = min(1.0, p * len(tested))
        yield TIME_DIFFERENCE(
            subject=target.metric,
            factor=pair.factor,
            levels=pair.levels,
            cells=pair.ids,
            target=target.value,
            epoch_a=medians[a],
            epoch_b=medians[b],
            never_a=never[a],
            never_b=never[b],
            p=adjusted,
            n=min(len(times[a]), len(times[b])),
            verdict="different" if adjusted <= LEVEL else "cannot tell",
        )


EpochRow = tuple[TrialRecord, Line]


def learn_table(evidence: Evidence, words: Words) -> Table:
    """Each cell's means over seeds, with the 95% interval of the mean."""

    def seeds(cell: str) -> Entry:
        states = [learned.trial.state for learned in evidence.learned[cell].values()]
        done, total = states.count("done"), len(states)
        text = str(done) if done == total else words("some_of", some=done, all=total)
        return Entry(text, float(done))

    def final_mean(metric: str) -> Callable[[str], Entry]:
        def entry(cell: str) -> Entry:
            values = [*evidence.values(cell, metric).values()]
            return mean(metric, mean_of(values, limits_of(metric, values)), missing(cell))

        return entry

    def missing(cell: str) -> str:
        """Why a cell has no value: all diverged, or none ended well."""
        states = {learned.trial.state for learned in evidence.learned[cell].values()}
        if states & {*ENDED_WELL}:
            return words("none_finite")
        return words.listed(words.named("state", state) for state in sorted(states))

    def ended_well(cell: str) -> list[LearnedTrial]:
        """Those that were cut short have not taken all of the time."""
        return [one for one in evidence.learned[cell].values() if one.trial.state in ENDED_WELL]

    def seconds(cell: str) -> float | None:
        times_s = [one.epoch_s() for one in ended_well(cell)]
        known_s = [time_s for time_s in times_s if time_s is not None]
        return statistics.median(known_s) if known_s else None

    def total(cell: str) -> float | None:
        times_s = [one.trial.total_s for one in ended_well(cell)]
        known_s = [time_s for time_s in times_s if time_s is not None]
        return statistics.median(known_s) if known_s else None

    return table_of(
        words("learn_table"),
        [
            name(words("cell"), str),
            value(words("seeds"), seeds),
            *(
                value(words.metric(metric), final_mean(metric))
                for metric in in_order(evidence.metrics)
            ),
            value(words("epoch_s_training"), seconds),
            value(words("total_s_training"), total),
        ],
        [cell.id for cell in evidence.cells if evidence.learned.get(cell.id)],
        words.sentences(
            words("learn_table_note"),
            _beside_text(evidence, words),
            words("learn_table_best")
            if any(cell.settings.keep_best for cell in evidence.cells)
            else "",
            words("learn_table_script") if evidence.study.script is not None else "",
            _engine_text(evidence, words),
        ),
        cell=str,
        is_sortable=True,
    )


def _beside_text(evidence: Evidence, words: Words) -> str:
    """Why the seconds are not those of a script or workload that runs alone."""
    if evidence.measured:
        return words("learn_table_beside_cost")
    return words("learn_table_beside") if len(evidence.trials) > 1 else ""


def epoch_table(evidence: Evidence, words: Words) -> Table | None:
    """Every epoch of every learn trial; None where no trial has ended an epoch."""
    rows: list[EpochRow] = [
        (learned.trial, line)
        for seeds in evidence.learned.values()
        for learned in seeds.values()
        for line in learned.epochs
    ]
    if not rows:
        return None

    keys = dict.fromkeys(key for _, line in rows for key in line if "/" in key)

    def metric(key: str) -> Callable[[EpochRow], Entry]:
        def entry(row: EpochRow) -> Entry:
            if key not in row[1]:
                return EMPTY  # a script tells a metric when it likes
            known = row[1][key]
            if known is None:
                return Entry(words("none_finite"))
            return Entry(metric_value(key, known), known)

        return entry

    def seconds(key: str) -> Callable[[EpochRow], Entry]:
        return lambda row: number(row[1][key], f"{row[1][key]:.2f}")

    return table_of(
        f"{evidence.name}: {_settings(evidence, words)}",
        [
            value(words("seed"), lambda row: count(row[0].seed)),
            value(words("epoch"), lambda row: count(row[1]["epoch"])),
            *(value(words.metric(key), metric(key)) for key in keys),
            value(words("train_s"), seconds("train_s")),
            value(words("test_s"), seconds("test_s")),
        ],
        rows,
        _engine_text(evidence, words),
    )


def epochs_by_cell(evidence: Evidence, words: Words) -> Table | None:
    """Every epoch of every cell, means over the seeds that reached it; None below two epochs."""
    rows: list[tuple[str, int, list[Line]]] = []
    for cell in evidence.cells:
        by_epoch: dict[int, list[Line]] = {}
        for learned in evidence.learned.get(cell.id, {}).values():
            for line in learned.epochs:
                by_epoch.setdefault(int(line["epoch"]), []).append(line)
        rows += [(cell.id, epoch, lines) for epoch, lines in sorted(by_epoch.items())]
    if max((epoch for _, epoch, _ in rows), default=0) < 2:
        return None
    found = (key for _, _, lines in rows for line in lines for key in line)
    metrics = dict.fromkeys(key for key in found if "/" in key)

    def average(key: str) -> Callable[[tuple[str, int, list[Line]]], Entry]:
        def read(row: tuple[str, int, list[Line]]) -> Entry:
            known = [float(line[key]) for line in row[2] if line.get(key) is not None]
            if not known:
                return Entry("")
            return Entry(metric_value(key, statistics.fmean(known)), statistics.fmean(known))

        return read

    def seconds(row: tuple[str, int, list[Line]]) -> float:
        return statistics.fmean(float(line["train_s"]) + float(line["test_s"]) for line in row[2])

    return table_of(
        words("epochs_table"),
        [
            name(words("cell"), lambda row: row[0]),
            value(words("epoch"), lambda row: count(row[1])),
            value(words("seeds"), lambda row: count(len(row[2]))),
            *(value(words.metric(key), average(key)) for key in metrics),
            value(words("epoch_total_s"), seconds),
        ],
        rows,
        words("epochs_table_note"),
        cell=lambda row: row[0],
        is_sortable=True,
    )


def _engine_text(evidence: Evidence, words: Words) -> str:
    """Which engines trained, and how many trials at once; nothing where that was eager, one by one."""
    learned = [trial.resolved for trial in evidence.trials if trial.kind == "learn"]
    engines = list(dict.fromkeys(str(one["engine"]) for one in learned if "engine" in one))
    if not engines or engines == ["eager"]:
        return ""
    text = words("trained_by", engines=words.listed(engines))
    most = max(int(one.get("trials_together", 1)) for one in learned)
    return words.sentences(text, words("their_share", number=most)) if most > 1 else text


def _settings(evidence: Evidence, words: Words) -> str:
    """The main settings of the study's only cell, in short."""
    trial = next(trial for trial in evidence.trials if trial.kind == "learn")
    settings, resolved = trial.settings, trial.resolved
    if evidence.study.script is not None:
        return words.listed([command_text(evidence.study.script), *seen_texts(resolved, words)])
    parts = [
        str(resolved.get("device_name", settings["device"])),
        words("batch_of", size=settings["batch_size"]),
        f"{settings['optimizer']} lr {resolved.get('lr', settings['lr'])}",
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


MOST_POINTS = 120
"""Points of one curve; a longer one is thinned out and keeps its last point."""


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
    line: str = ""
    """Which curve of the cell it is on, where a cell has several."""


@dataclass(frozen=True)
class Curves:
    """One metric over training, a curve per cell, or several."""

    metric: str
    points: tuple[CurvePoint, ...]
    by_step: bool
    """Whether the points lie within epochs."""
    over_updates: bool = False
    """Whether they are counted in updates instead: no loader of a script tells what an epoch is."""
    num_each: int | None = None
    """Of a script: so many recorded updates of which a point is the mean."""

    def peaks(self) -> dict[str, float]:
        """The largest mean of each cell."""
        found: dict[str, float] = {}
        for point in self.points:
            found[point.cell] = max(point.mean, found.get(point.cell, point.mean))
        return found


RISES, FAR = 5.0, 100.0
"""A loss explodes that rises to so many times its first value and that of others, or lies so far above."""


def exploding(curves: Curves) -> tuple[str, ...]:
    """The cells of a loss that rise so far that the others could not be read beside them."""
    peaks = curves.peaks()
    if not lower_is_better(curves.metric) or min(peaks.values()) <= 0:
        return ()
    first: dict[str, float] = {}
    for point in curves.points:
        first.setdefault(point.cell, point.mean)
    usual = sorted(peaks.values())[(len(peaks) - 1) // 4]
    return tuple(
        cell
        for cell, peak in peaks.items()
        if peak > FAR * usual or peak > RISES * max(usual, first[cell])
    )


def metric_curves(data: RunData, metric: str) -> Curves | None:
    """By step where steps have the metric, else by epoch; None where no trial reached a first point."""
    is_script = data.evidence.study.script is not None
    over_updates = is_script and not _tells_samples(data)
    seed_curves = {
        cell: [
            list(_step_points(data, cell, seed, metric, over_updates=over_updates))
            for seed in seeds
        ]
        for cell, seeds in data.step_lines.items()
    }
    by_step = any(points for curves in seed_curves.values() for points in curves)
    num_each = None
    if is_script and by_step:
        longest = max(len(points) for curves in seed_curves.values() for points in curves)
        num_each = math.ceil(longest / MOST_POINTS)
        seed_curves = {
            cell: [[*_means(points, num_each)] for points in curves]
            for cell, curves in seed_curves.items()
        }
    if not by_step:
        seed_curves = {
            cell: [
                [(float(line["epoch"]), line[metric]) for line in trial.epochs if metric in line]
                for trial in data.evidence.learned[cell].values()
            ]
            for cell in data.drawn_cells
        }
    recorded = (value for curves in seed_curves.values() for one in curves for _, value in one)
    limits = limits_of(metric, (value for value in recorded if value is not None))
    points = [
        point for cell, curves in seed_curves.items() for point in _averaged(cell, curves, limits)
    ]
    if not points:
        return None
    return Curves(metric, tuple(points), by_step, over_updates and by_step, num_each)


def _tells_samples(data: RunData) -> bool:
    """Whether the loaders of a script tell how much data there is, in all settings that are drawn."""
    drawn = (one for cell in data.drawn_cells for one in data.evidence.learned[cell].values())
    return all(one.trial.resolved.get("train_samples") for one in drawn)


def _step_points(
    data: RunData, cell: str, seed: int, metric: str, *, over_updates: bool
) -> Iterator[tuple[float, float | None]]:
    trial = data.evidence.learned[cell][seed].trial
    known = trial.data.num_train if trial.data is not None else trial.resolved.get("train_samples")
    if not over_updates and not known:
        return
    for line in data.step_lines[cell][seed]:
        if metric in line:
            at = float(line["step"]) if over_updates else line["samples"] / known
            yield at, line[metric]


def _means(
    points: Sequence[tuple[float, float | None]], num_each: int
) -> Iterator[tuple[float, float | None]]:
    """Of so many points each, at the last of them: single batches differ more than training does."""
    for start in range(0, len(points), num_each):
        some = points[start : start + num_each]
        values = [value for _, value in some if value is not None]
        yield some[-1][0], math.fsum(values) / len(values) if values else None


def _averaged(
    cell: str, seed_curves: Sequence[Sequence[tuple[float, float | None]]], limits: Interval
) -> Iterator[CurvePoint]:
    """Over the seeds that have a finite value at the same moment."""
    values: dict[float, list[float]] = defaultdict(list)
    for points in seed_curves:
        for epoch, known in points:
            if known is not None and math.isfinite(known):
                values[epoch].append(known)
    for epoch in thinned(sorted(values)):
        mean = mean_of(values[epoch], limits)
        if mean is not None:
            yield CurvePoint(cell, epoch, mean.value, *mean.ends, mean.n)


def thinned(moments: Sequence[float], most: int = MOST_POINTS) -> list[float]:
    """At most so many of the moments, evenly spaced, with the last one kept."""
    if len(moments) <= most:
        return list(moments)
    stride = math.ceil(len(moments) / most)
    return list(moments[len(moments) - 1 :: -stride])[::-1]


ABOVE = 1.25
"""Of a chart that is cut above: room for the curves that leave it to be seen leaving."""


def curve_chart(curves: Curves, cells: Sequence[str], words: Words) -> Spec:
    """Curves over epochs, or updates, with the band of the interval over seeds."""
    x_title = words("updates" if curves.over_updates else "epochs_seen")
    rows = curve_rows(curves)
    axis = _curve_axis(curves, rows)
    add_bands(rows, axis)
    # Parts of an epoch only where there are few whole ones.
    is_short = curves.by_step and max((row["x"] for row in rows), default=0) < 2
    ticks: Spec = {"tickMinStep": 0.1 if is_short else 1, "tickCount": 6}
    if not curves.by_step:
        ticks |= _whole_epochs(rows)
    x = quantity("x", x_title, scale={"nice": False}, axis=ticks)
    y = quantity("y", words.metric_title(curves.metric), scale=axis)
    hover: Hover = [
        ("cell", words("cell"), None),
        ("x", x_title, ",.2~f"),
        ("y", words.metric_title(curves.metric), ".4~f"),
        *interval_hover(words, ".4~f"),
        ("n", words("seeds"), None),
    ]
    hue = colour("cell", cells, words("cell"))
    return line_chart(rows, x, y, hue, hover)


def _whole_epochs(rows: Sequence[Spec]) -> Spec:
    """A tick at each epoch where there are few: of two or three, `tickMinStep` makes halves."""
    ends = [row["x"] for row in rows]
    epochs = range(math.ceil(min(ends)), math.floor(max(ends)) + 1) if ends else range(0)
    return {"values": list(epochs), "format": "d"} if 1 < len(epochs) <= 6 else {}


def curve_rows(curves: Curves) -> list[Spec]:
    """A row per point: where it is, its value and the ends of its interval."""
    scale = 100 if is_share(curves.metric) else 1
    return [
        {
            "cell": point.cell,
            "x": point.epoch,
            "y": scale * point.mean,
            "low": None if point.low is None else scale * point.low,
            "high": None if point.high is None else scale * point.high,
            "n": point.n,
            "line": point.line or None,
        }
        for point in curves.points
    ]


def _curve_axis(curves: Curves, rows: Sequence[Spec]) -> Spec:
    """Without those of a setting that explodes, which would flatten the others."""
    cut = exploding(curves)
    rows = [row for row in rows if row["cell"] not in cut]
    highest = 100.0 if is_share(curves.metric) else math.inf
    return fitted_axis(rows, room=ABOVE if cut else 1.0, highest=highest)


USUAL = ("train/loss", "test/loss", "train/accuracy", "test/accuracy")


def learn_section(data: RunData, words: Words) -> Section | None:
    """None where nothing was trained."""
    learned, seeds = data.evidence.learned, data.evidence.study.seeds
    if not learned:
        return None
    figures = [*filter(None, (curve_figure(data, one, words) for one in _drawn_metrics(data)))]
    intro = "learn_intro" if figures else "learn_intro_no_curves"
    blocks: list[Block] = [Paragraph(words(intro, seeds=len(seeds)))]
    num_drawn = len(data.drawn_cells)
    if len(learned) > num_drawn and figures:
        blocks.append(Paragraph(words("curves_chosen", drawn=num_drawn, all=len(learned))))
    blocks += figures
    for metric in compared_metrics(data.evidence)[:1]:
        blocks += filter(None, [heat_figure(data, metric, words)])
    blocks.append(learn_table(data.evidence, words))
    if (epochs := epochs_by_cell(data.evidence, words)) is not None:
        blocks.append(epochs)
    blocks += first_bullets(data.findings_in("learning"), words)
    return Section("learning", words(_heading(data.evidence.metrics)), tuple(blocks))


def _heading(metrics: Iterable[str]) -> str:
    """The key of the heading: what there is beside the loss."""
    others = [metric for metric in metrics if not metric.endswith("/loss")]
    if not others:
        return "learn_loss"
    return "learn" if any(map(is_share, others)) else "learn_metrics"


def _drawn_metrics(data: RunData) -> list[str]:
    """Losses and accuracies of training and test, then the other metrics that are compared."""
    recorded = data.evidence.metrics
    usual = [metric for metric in USUAL if metric in recorded]
    return usual + [metric for metric in compared_metrics(data.evidence) if metric not in usual]


def curve_figure(data: RunData, metric: str, words: Words) -> Figure | None:
    """A metric over training; None below two moments: the comparison of cells shows one better."""
    curves = metric_curves(data, metric)
    if curves is None or len({point.epoch for point in curves.points}) < 2:
        return None
    last = {point.cell: point for point in curves.points}
    ends = words.listed(f"{cell}: {metric_value(metric, p.mean)}" for cell, p in last.items())
    has_band = len(data.evidence.study.seeds) > 1
    notes = [words("trend_note" if has_band else "trend_note_one")]
    alt = "trend_alt"
    if curves.num_each is not None:
        alt = "trend_alt_updates"
        each = "trend_note_updates" if curves.num_each > 1 else "trend_note_each_update"
        notes.append(words(each, number=curves.num_each))
        if any(trial.state in ENDED_WELL for trial in data.evidence.trials):
            notes.append(words("table_mean_end" if _is_one_pass(data) else "table_mean_epoch"))
    elif curves.by_step:
        alt = "trend_alt_steps"
        notes.append(words("trend_note_steps"))
    notes += _cut_notes(curves, words)
    return Figure(
        id=figure_id("trend", metric),
        caption=_caption(
            "trend_caption_updates" if curves.over_updates else "trend_caption", metric, words
        ),
        alt=words.tidy(words(alt, metric=words.metric(metric), ends=ends)),
        note=words.sentences(*notes),
        spec=curve_chart(curves, data.drawn_cells, words),
    )


def _is_one_pass(data: RunData) -> bool:
    learned = data.evidence.learned
    return any(one.is_one_pass() for cell in data.drawn_cells for one in learned[cell].values())


def _cut_notes(curves: Curves, words: Words) -> list[str]:
    """That the axis leaves out how far a setting explodes, and how far that is."""
    peaks = curves.peaks()
    texts = [
        words("trend_peak", cell=cell, value=f"{peaks[cell]:.2g}") for cell in exploding(curves)
    ]
    return [words("trend_cut", peaks=words("list_semicolon").join(texts))] if texts else []


def _caption(key: str, metric: str, words: Words) -> str:
    return words.tidy(words(key, metric=words.capital(words.metric(metric))))


def heat_figure(data: RunData, metric: str, words: Words) -> Figure | None:
    """A metric over two factors; None unless the study is a grid of two."""
    evidence, scale = data.evidence, 100 if is_share(metric) else 1

    def value_of(cell: Cell) -> float | None:
        values = evidence.finite_values(cell.id, metric)
        return scale * sum(values) / len(values) if values else None

    def text_of(value: float) -> str:
        return metric_value(metric, value / scale)

    spec = heat_map(evidence, value_of, text_of, words.metric_title(metric), words)
    if spec is None:
        return None
    known = ((cell.id, value_of(cell)) for cell in evidence.cells)
    values = words.listed(f"{cell}: {text_of(value)}" for cell, value in known if value is not None)
    return Figure(
        id=figure_id("grid", metric),
        caption=_caption("grid_caption", metric, words),
        alt=words.tidy(words("final_alt", metric=words.metric(metric), values=values)),
        note=words("grid_note"),
        spec=spec,
    )
