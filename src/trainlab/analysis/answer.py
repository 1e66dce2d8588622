"""The answer to the question of a run: a few plain sentences, reasons, and what is left open.

Findings are picked by how sure and how important they are; each sentence is one text of the words.
"""

import math
import re
import shlex
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any

from trainlab.analysis import finding
from trainlab.analysis import operators as ops
from trainlab.analysis.cold_start import cold_start
from trainlab.analysis.cost import cost_figure, headline
from trainlab.analysis.document import (
    Entry,
    Paragraph,
    Section,
    Statement,
    Statements,
    Table,
    figure_id,
)
from trainlab.analysis.evidence import (
    ENDED_WELL,
    LOSS,
    UNFINISHED,
    Evidence,
    TrialRecords,
    busy_s,
    grouped,
)
from trainlab.analysis.factors import EFFECTS, NO_RESET, metric_figure
from trainlab.analysis.finding import Finding, RunData, cell_name, joined, level_name, section_of
from trainlab.analysis.learning import curve_figure, done_entry, metric_entry, ways
from trainlab.analysis.measurement import MODES, Measurement
from trainlab.analysis.metrics import compared_metrics, objective_in
from trainlab.analysis.scaling import BatchSeries, batch_series
from trainlab.analysis.scripts import STARTUP, script_whole
from trainlab.analysis.search import base_text
from trainlab.analysis.tables import EMPTY, Field, estimate, name, number, table_of, value
from trainlab.record.script_record import num_at_the_end
from trainlab.record.trial_record import TrialRecord
from trainlab.spec import Cell, TrainSpec
from trainlab.spec.study import BASE, without_part
from trainlab.stats.means import Interval, mean_of
from trainlab.stats.verdict import FEWEST_SEEDS
from trainlab.words import Words
from trainlab.words.error_lines import error_line
from trainlab.words.numbers import bare_operator, is_share, metric_value, percent, whole_percent

MOST = 5
"""Sentences of an answer."""
MOST_NAMED = 4
"""Settings named one by one."""
MOST_OF_SCRIPT = 3
SAME = ("equivalent", "identical")
GAINS = {"equivalent": "gain_same", "cannot tell": "gain_unknown"}
"""By verdict, what is said of a device that is neither faster nor slower."""
IMAGES = ("mnist", "fashion-mnist")
"""Data sets whose samples are images."""
DEVICE = "device"
NOTABLE_SHARE = 0.2
"""From this share of a step on, fetching samples is worth a sentence."""
ENOUGH_TO_TEST = 3
MOST_MINUTES = 60
"""Of timing; longer ones nobody waits for."""
MOST_SEEDS = 200
"""More than anybody trains: such a point is left open."""
SEED_OPTIONS = ("seeds", "seed", "until-decided", "max-seeds")
BUDGET_OPTIONS = ("cost-budget",)
PROCESS_OPTIONS = ("processes", "max-processes")

# When a reason is told.
CHEAPER = 0.8
"""A larger batch must take at most this share of the smaller one's time per sample."""
HARDLY_GROWS, FEWEST_TIMES = 2.0, 4
"""A phase that takes fewer times as long hardly grows, where the batch is at least so many times larger."""
FIXED_SHARE, SMALL_PHASE = 0.2, 0.05
"""Of the smaller batch's step: what phases that hardly grow must take to explain anything, and what a phase
must take to be named."""
FEWEST_COUNTED = 10
"""Page faults come with every step; so many more are worth a word."""
SLOW_FIRST = 1.5
LITTLE_GAIN, IDLE = 1.5, 0.5
"""A GPU that gains less, and computes for a smaller share of a step, waits for the host."""


@dataclass(frozen=True)
class Answer:
    """The answer to the question of a run, as a person would write it."""

    sentences: tuple[Statement, ...]
    """The most important first."""
    reasons: tuple[Statement, ...]
    """Why it is so, each checked against the records."""
    open_points: tuple[Statement, ...]
    """What could not be told, and what would settle it."""
    is_about_cost: bool
    """Whether the first sentence tells of two settings which is faster."""
    objective: str
    """Which metric it goes by, where there was a choice; else empty."""
    is_final: bool
    """Whether no trial is still to end, or was interrupted."""

    def sections(self, words: Words, most_reasons: int | None = None) -> Iterator[Section]:
        """The sentences, or that there are none; then reasons, all or the first few, and open points."""
        lead = Statements(self.sentences, is_lead=True) if self.sentences else None
        note = [Paragraph(self.objective)] if self.objective else []
        title = words("answer" if self.is_final else "answer_so_far")
        yield Section("answer", title, (lead or Paragraph(words("no_findings")), *note))
        if self.reasons:
            yield Section("why", words("why_so"), (Statements(self.reasons[:most_reasons]),))
        if self.open_points:
            yield Section("open", words("left_open"), (Statements(self.open_points),))


def answer(evidence: Evidence, findings: Sequence[Finding], words: Words) -> Answer:
    """What a reader with one minute should read; the most important first."""
    writer = _Writer(evidence, findings, words)
    learned, machines = list(writer.learned()), evidence.environments.values()
    has_no_gpu = evidence.measured and machines and not any(one.gpus for one in machines)
    last = [writer.say("answer_no_gpu", "environment")] if has_no_gpu else []
    of_cost = [list(writer.device()), list(writer.speed())]
    others = (
        learned[:1],
        writer.search(),
        writer.energy(),
        writer.failures(),
        writer.script(),
        writer.step(),
        learned[1:],
    )
    columns = [*of_cost, *map(list, others), list(writer.batches())]
    # One sentence of each kind before the second of any; what is about cost first, where it was measured.
    firsts = [column[0] for column in columns if column]
    rest = [sentence for column in columns for sentence in column[1:]]
    chosen = list(dict.fromkeys((*firsts, *rest)))[: MOST - len(last)]
    # What is about one thing stands together.
    sentences = dict.fromkeys(one for column in columns for one in column if one in chosen)
    sentences = dict.fromkeys(writer.with_reason([*sentences]))
    reasons, open_points = tuple(writer.reasons()), tuple(writer.open_points())
    note = writer.objective()
    parts = ((*sentences, *last), reasons, open_points, any(of_cost), note)
    is_cut = any(trial.state == "interrupted" for trial in evidence.trials)
    return Answer(*parts, evidence.is_complete and not is_cut)


class _Writer:
    """Writes the sentences of one answer."""

    def __init__(self, evidence: Evidence, findings: Sequence[Finding], words: Words) -> None:
        self.evidence, self.findings, self.words = evidence, findings, words
        self.cells = {cell.id: cell for cell in evidence.cells}
        data = next((trial.data.name for trial in evidence.trials if trial.data is not None), None)
        kind = "image" if data in IMAGES else "any"
        self.samples = {name: words(f"{name}_{kind}") for name in ("sample", "samples")}
        self.metric = next(iter(compared_metrics(evidence)), "")
        self.ways = ways(words, evidence.study.is_better_lower(self.metric) is not None)
        self.by_kind = grouped(findings, lambda one: one.kind)
        self.all_effects = [
            one for one in findings if one.of_kind in EFFECTS and one.subject == self.metric
        ]
        self.effects = grouped(self.all_effects, lambda one: one.factor or "")
        self.whys: dict[Statement, object] = {}

    def say(self, key: str, section: str, *, why: object = "", **values: object) -> Statement:
        """A sentence, and why its figures are only ranges; samples are called what they are in this run."""
        return self.made(self.words(key, **self.samples, **values), section, why)

    def tell(
        self, one: Finding, key: str, section: str = "", *, why: object = "", **more: object
    ) -> Statement:
        """A finding by another text than its own sentence; `first` and `second` are the two settings."""
        values = dict(zip(("first", "second"), self.names(one), strict=False)) | self.samples | more
        values |= self.ways
        return self.made(one.fill(self.words, key, **values), section or one.section, why, one.row)

    def made(self, text: str, section: str, why: object, row: str = "") -> Statement:
        """A sentence; `with_reason` says the reason, once for all."""
        statement = Statement(self.words.tidy(text), section, row=row)
        self.whys |= {statement: why} if why else {}
        return statement

    def with_reason(self, sentences: Sequence[Statement]) -> Iterator[Statement]:
        """After the last one with a range, why there is no single figure in those that have one."""
        ranged = [one for one in sentences if one in self.whys]
        for one in sentences:
            if not ranged or one is not ranged[-1]:
                yield one
                continue
            key, why = "only_range" if len(ranged) == 1 else "only_ranges", self.whys[ranged[0]]
            yield replace(one, text=self.words.sentences(one.text, self.words(key, why=why)))

    def ratios(self, mode: str) -> list[Finding]:
        """The comparisons of time per sample."""
        return [one for one in self.by_kind.get("cost", ()) if one.mode == mode]

    def names(self, one: Finding) -> tuple[str, ...]:
        """The two settings that a comparison is about."""
        if one.levels == (None, None):
            return tuple(cell_name(self.cells[cell], self.words) for cell in one.cells)
        return tuple(level_name(one.factor or "", level, self.words) for level in one.levels)

    def device_name(self, trial: TrialRecord) -> str:
        """`the CPU`, `the GPU`."""
        return level_name(DEVICE, str(trial.resolved.get(DEVICE, "cpu")), self.words)

    def on(self, measurement: Measurement | None) -> str:
        """` on the GPU`, where costs of more than one device were measured."""
        names = {self.device_name(one.trial) for one in self.evidence.measured}
        if measurement is None or len(names) < 2:
            return ""
        return self.words("on_device", device=self.device_name(measurement.trial))

    def ratio(self, one: Finding) -> dict[str, Any]:
        """How many times as fast or as slow, as far as that is known, and why it is only a range."""
        value = one.speedup if one.kind == "parallel" else one.ratio
        measured = [self.evidence.measurement(cell, one.mode) for cell in one.cells]
        ends, why = headline(value, one.interval, measured, self.words)
        return {"times": ends if value > 1 else ends.inverse, "why": why}

    def search(self) -> Iterator[Statement]:
        """How good the best that was found really is."""
        for one in self.by_kind.get("optimism", ()):
            yield Statement(one.sentence(self.words), one.section, row=one.row)

    def learned(self) -> Iterator[Statement]:
        """The best setting, the largest decided effect of each factor, then the factors without any."""
        if self.metric and len(self.cells) == 1:
            yield from self.one_setting(self.evidence.cells[0])
            return
        for best in self.by_kind.get("best", ()):
            yield from self.best(best)
        if len(self.effects) < 2:
            return
        decided = (one for one in self.all_effects if one.verdict == "different")
        by_size = sorted(decided, key=lambda one: -abs(one.difference))
        for one, *_ in grouped(by_size, lambda one: one.factor).values():
            yield self.tell(
                one,
                "answer_raises" if one.difference > 0 else "answer_lowers",
                "learning" if one.of_kind is NO_RESET else section_of(one.factor),
                size=size_text(one.subject, one.difference, self.words),
                value=value_text(one.subject, one.mean_b),
            )
        for effects in self.effects.values():
            yield from self.same(effects)

    def objective(self) -> str:
        """Which metric it goes by, where that might have been another; and what is not known of it."""
        words, study, metric = self.words, self.evidence.study, self.metric
        own, compared = without_part(metric), map(without_part, compared_metrics(self.evidence))
        others = [name for name in compared if name != own and not name.startswith("loss")]
        is_unknown = study.objective and objective_in(self.evidence.metrics, study) is None
        keys = {
            "objective_unknown": metric and is_unknown,
            "objective_asked": others and study.objective and not is_unknown,
            "objective_taken": others and not study.objective,
            "objective_open": len(self.cells) > 1
            and metric
            and study.is_better_lower(metric) is None,
        }
        told = {"metric": words.metric(metric), "name": own, "other": next(iter(others), "")}
        told |= {"asked": study.objective or "", "known": ", ".join(self.evidence.metrics)}
        return words.tidy(
            words.sentences(*(words(k, **told) for k, is_said in keys.items() if is_said))
        )

    def best(self, best: Finding) -> Iterator[Statement]:
        """The best setting, and what cannot be told from it or is the same."""
        words, metric, effects = self.words, self.metric, self.all_effects
        names = [cell_name(self.cells[cell], words) for cell in best.cells]
        value, final = value_text(metric, best.mean), f"figure-{figure_id('final', metric)}"
        if not best.num_worse and not any(one.verdict == "different" for one in effects):
            # Over all levels together a trend may show that no two of them do.
            trends = [t for t in self.by_kind.get("trend", ()) if t.verdict == "different"]
            if all(effect.verdict in SAME for effect in effects):
                yield from self.same(effects)
            elif best.n > 1:
                key = "answer_only_trend" if trends else "answer_none_told"
                told = {"factor": trends[0].factor if trends else "", "best": names[0]}
                if self.evidence.study.search is not None:
                    key = "answer_none_beats"
                    of_base = mean_of(self.evidence.finite_values(BASE, metric))
                    value = "" if of_base is None else value_text(metric, of_base.value)
                    told["base"] = base_text(self.evidence, words)
                yield self.tell(best, key, final, value=value, **told)
            return
        same = {
            frozenset(one.cells): 0.0 if one.verdict == "identical" else one.margin or 0.0
            for one in effects
            if one.verdict in SAME
        }
        pairs = [frozenset(pair) for pair in combinations(best.cells, 2)]
        margin = max((same.get(pair, 0.0) for pair in pairs), default=0.0)
        if not pairs:
            key = "answer_best"
        elif len(names) > MOST_NAMED or not same.keys() >= {*pairs}:
            key = "answer_best_tied"
        else:
            key = "answer_best_same" if margin else "answer_best_identical"
        others = joined(names[1 : 1 + MOST_NAMED], words)
        if (num_more := len(names) - 1 - MOST_NAMED) > 0:
            others = words("and_others", listed=others, number=num_more)
        told = {"value": value, "best": names[0], "names": joined(names, words), "others": others}
        yield self.tell(best, key, final, **told, margin=size_text(metric, margin, words))

    def same(self, effects: Sequence[Finding]) -> Iterator[Statement]:
        """The levels of a factor that were shown to be the same wherever they were compared."""
        pairs = [(one, self.names(one)) for one in effects]
        differing = {pair for one, pair in pairs if one.verdict not in SAME}
        found = [(one, pair) for one, pair in pairs if pair not in differing]
        names = list(dict.fromkeys(name for _, pair in found for name in pair))
        if len({pair for _, pair in found}) < len(names) * (len(names) - 1) / 2:
            # Not each of these with each other: the first two alone.
            found, names = found[:1], list(found[0][1])
        if found:
            margins = [one.margin or 0.0 for one, _ in found if one.verdict == "equivalent"]
            yield self.say(
                "answer_same" if any(margins) else "answer_identical",
                section_of(found[0][0].factor),
                metric=self.words.metric(self.metric),
                names=joined(names, self.words),
                margin=size_text(self.metric, max(margins, default=0.0), self.words),
            )

    def one_setting(self, cell: Cell) -> Iterator[Statement]:
        """Where it ended, how long that took and where its loss went, over the seeds."""
        metric, words, settings = self.metric, self.words, cell.settings
        values = self.evidence.finite_values(cell.id, metric)
        of_cell = [*self.evidence.learned.get(cell.id, {}).values()]
        if not values and not any(one.trial.state == "done" for one in of_cell):
            return
        has_epochs = all(one.has_epochs() for one in of_cell)
        when = self.ended_after(settings, of_cell)
        # Of several optimizers each has a loss, and none is that of the training.
        others = [name for name in self.evidence.metrics if re.fullmatch(rf"{LOSS}_\d+", name)]
        ended = [
            self.say(
                "answer_value" if len(values) == 1 else "answer_values",
                "learning",
                metric=words.metric(name),
                value=value_text(name, statistics.fmean(values)),
                when=when,
                seeds=finding.num_seeds(len(values), words),
                low=value_text(name, min(values)),
                high=value_text(name, max(values)),
            ).text
            for name in (metric, *(others if metric == LOSS else ()))
            if (values := self.evidence.finite_values(cell.id, name))
        ]
        if ended:
            yield Statement(words.sentences(*ended), "learning")
        trained = [one for one in of_cell if one.trial.state in ENDED_WELL]
        epochs_s = [time_s for one in trained if (time_s := one.epoch_s()) is not None]
        totals_s = [one.trial.total_s for one in trained if one.trial.total_s is not None]
        if epochs_s and totals_s and settings.max_steps is None and has_epochs:
            seeds = finding.num_seeds(len(totals_s), words)
            on = {"device": self.device_name(trained[0].trial), "seeds": seeds}
            total, epoch = statistics.median(totals_s), statistics.median(epochs_s)
            key = "answer_time" if len(totals_s) == 1 else "answer_times"
            yield self.say(key, "learning", total=total, epoch=epoch, **on)
        # Of models that a script trained one after the other, of the last.
        ends = [one.epochs[-one.trial.epochs_done :] for one in trained]
        curves = [[line[LOSS] for line in one if line.get(LOSS) is not None] for one in ends]
        if has_epochs and curves and not others and all(len(losses) > 1 for losses in curves):
            first, last = (statistics.fmean(losses[end] for losses in curves) for end in (0, -1))
            told = {"first": value_text(LOSS, first), "last": value_text(LOSS, last)}
            if first != last:
                yield self.say("answer_fell" if last < first else "answer_rose", "learning", **told)

    def ended_after(self, settings: TrainSpec, of_cell: Sequence[TrialRecords]) -> str:
        """`after 5 epochs`, or so many updates."""
        words, passes = self.words, [one.trial.resolved.get("passes") for one in of_cell]
        num_updates = max((one.trial.steps_done for one in of_cell), default=0)
        num_epochs = max((one.trial.epochs_done for one in of_cell), default=0)
        if settings.keep_best:
            return words("answer_best_epoch")
        if settings.max_steps is None and all(one.has_epochs() for one in of_cell):
            # Not always what was asked: training may stop early.
            epochs = words.counted("one_epoch", "epochs", num_epochs or settings.epochs)
            return words("answer_after", number=epochs)
        updates = words.counted("one_update", "num_updates", settings.max_steps or num_updates)
        when = words("answer_after", number=updates)
        if self.metric.startswith("train/") and any(one.is_one_pass() for one in of_cell):
            number = num_at_the_end(num_updates)
            when = words.counted("answer_last_update", "answer_over_updates", number)
        if all(passes) and not num_epochs:
            part = words("part_of_pass", number=f"{max(one or 0 for one in passes):g}")
            return words("answer_of_pass", when=when, part=part)
        return when

    def failures(self) -> Iterator[Statement]:
        """Settings some of whose runs diverged, the worst first; then metrics that were not finite."""
        diverged = self.by_kind.get("diverged", [])
        for one in sorted(diverged, key=lambda one: -one.num_diverged / one.n)[:MOST_NAMED]:
            key = "answer_diverged" if one.num_diverged == one.n else "answer_diverged_some"
            key = "answer_diverged_all" if len(self.cells) == 1 else key
            yield self.tell(one, key, "trouble", setting=self.names(one)[0])
        trials = self.evidence.trials
        errors = [one.error for one in trials if one.error is not None]
        if self.evidence.study.script is not None and errors and len(errors) == len(trials):
            told = errors[0].mistake or errors[0].message.partition("\n")[0]
            error = error_line(told.strip(), self.words.lang)
            yield self.say("answer_script_failed", "trouble", error=error)
        for one in self.by_kind.get("not_finite", [])[:MOST_NAMED]:
            key = "answer_not_finite_all" if len(self.cells) == 1 else "answer_not_finite"
            yield self.tell(one, key, setting=self.names(one)[0])

    def script(self) -> Iterator[Statement]:
        """The whole first, of a single setting; then what stands out, each where it is largest."""
        found = [one for one in self.findings if one.section == "script"]
        largest: dict[tuple[str, str], Finding] = {}
        for one in finding.by_importance(found):
            is_whole = one.kind == "script_time"
            if is_whole and one.num_cells == 1:
                yield Statement(self.words.tidy(script_whole(one, self.words)), "script")
            elif not is_whole and not (one.num_cells == 1 and one.subject == STARTUP):
                largest.setdefault((one.kind, one.subject), one)
        for one in list(largest.values())[:MOST_OF_SCRIPT]:
            yield Statement(one.sentence(self.words), "script")

    def device(self) -> Iterator[Statement]:
        """What a GPU gains, at each level of the other factors."""
        words = self.words
        for mode in MODES:
            gains = [one for one in self.ratios(mode) if one.factor == DEVICE]
            parts, reasons = [], list[str]()
            for gain in gains:
                key = "gain_faster" if gain.ratio < 1 else "gain_slower"
                told = self.ratio(gain)
                text = words(GAINS.get(gain.verdict or "", key), **told)
                reasons += [told["why"]] if gain.verdict == "different" else []
                if len(gains) > 1:
                    levels = self.cells[gain.cells[1]].levels.items()
                    rest = (level_name(one, level, words) for one, level in levels if one != DEVICE)
                    text = words("gain_at", gain=text, rest=words.listed(rest))
                parts.append(text)
            if gains:
                first, second = self.names(gains[0])
                both = {"first": first, "second": second, "why": max([*reasons, ""])}
                both["gains"] = words("list_semicolon").join(parts)
                yield self.say(f"answer_device_{mode}", "factor-device", **both)

    def speed(self) -> Iterator[Statement]:
        """Of each other factor the fastest level, in each mode that was measured."""
        # What processes gain is told with their efficiency.
        apart = {DEVICE, *(one.factor for one in self.by_kind.get("parallel", ()) if one.interval)}
        for mode in MODES:
            ratios = (one for one in self.ratios(mode) if one.factor not in apart)
            for factor, own in grouped(ratios, lambda one: one.factor).items():
                told = [one for one in own if one.verdict == "different"]
                if told:
                    one = max(told, key=lambda one: one.weight)
                    slow, fast = self.names(one) if one.ratio <= 1 else self.names(one)[::-1]
                    key = f"answer_faster_{mode}"
                    named = {"fast": fast, "slow": slow, **self.ratio(one)}
                    yield self.tell(one, key, section_of(factor), **named)
                elif all(one.verdict == "equivalent" for one in own):
                    names = dict.fromkeys(name for one in own for name in self.names(one))
                    yield self.say(
                        f"answer_same_speed_{mode}",
                        section_of(factor),
                        names=joined(names, self.words),
                        margin=max(one.margin or 0.0 for one in own),
                    )

    def energy(self) -> Iterator[Statement]:
        """Of each factor the largest difference in energy per sample, in each mode."""
        found = grouped(self.by_kind.get("energy", ()), lambda one: (one.mode, one.factor))
        for (mode, factor), own in found.items():
            one = max(own, key=lambda one: one.weight)
            within = one.interval_text(self.words, percent)
            yield self.tell(one, f"answer_energy_{mode}", section_of(factor), within=within)

    def step(self) -> Iterator[Statement]:
        """Where one setting was measured: its step, phases, waiting for data, top operator, memory."""
        words = self.words
        if len({measurement.trial.cell for measurement in self.evidence.measured}) > 1:
            return
        for measurement in (one for mode in MODES for one in self.evidence.measured_in(mode)):
            summary, mode = measurement.summary, measurement.summary.mode
            costs = summary.step_ms, summary.sample_us
            (ms, why), (us, _) = (headline(o.value, o, [measurement], words) for o in costs)
            yield self.say(
                f"answer_step_{mode}",
                "comparison",
                batch=summary.batch_size,
                device=self.device_name(measurement.trial),
                ms=ms,
                us=us,
                why=why,
            )
            if mode == "train" and (total := sum(summary.phases_ms.values())):
                shares = sorted(summary.phases_ms.items(), key=lambda phase: -phase[1])[:2]
                named = (f"{words.phase(name)} {whole_percent(ms / total)}" for name, ms in shares)
                yield self.say("answer_phases", "phases", phases=joined(named, words))
                fetching = summary.phases_ms.get("data", 0.0) / total
                is_resident = measurement.trial.resolved.get("data_resident")
                if NOTABLE_SHARE <= fetching < 1 and not is_resident:
                    times = f"{1 / (1 - fetching):.1f}"
                    yield self.say("answer_loader", "phases", share=fetching, times=times)
            operators = measurement.operators
            is_known = operators is not None and not ops.phases_apart(measurement)
            if operators is not None and is_known and (rows := ops.ranked(operators, "self")):
                whole = words("share_of_device" if ops.is_on_device(operators) else "share_of_step")
                top = {"operator": bare_operator(rows[0].name), "share": rows[0].share}
                yield self.say(f"answer_top_{mode}", "operators", **top, whole=whole)
            if mode == "train" and measurement.memory is not None:
                yield self.say("answer_memory", "phases", peak=measurement.memory.peak_bytes)

    def batches(self) -> Iterator[Statement]:
        """The short forms of the findings of cost that have one."""
        for kind in ("optimizer_share", "scaling", "parallel", "top_operator"):
            for one in self.by_kind.get(kind, ()):
                if (key := one.of_kind.brief(one)) is not None:
                    measured = self.evidence.measurement(one.cells[-1], "train")
                    on = one.shared_text(self.words) or self.on(measured)
                    told = self.ratio(one) if kind == "parallel" else {}
                    if told and told["why"]:
                        told["efficiency"] = Interval(one.efficiency_low, one.efficiency_high)
                    yield self.tell(one, key, **told, on=on)

    def reasons(self) -> Iterator[Statement]:
        """The large batch, the optimizer, the GPU, the resets, the first step."""
        yield from self.why_batches()
        yield from self.why_updates()
        yield from self.why_no_gain()
        # Training without resets is shown to be worse, and the gradients are seen to grow.
        is_worse = any(
            one.verdict == "different"
            and (one.mean_b > one.mean_a) == self.evidence.study.is_better_lower(one.subject)
            for one in self.by_kind.get("no_reset", ())
        )
        growths = (one.times for one in self.by_kind.get("accumulation", ()))
        if is_worse and (most := max(growths, default=0.0)) > 1:
            yield self.say("why_resets", "probes", times=most)
        yield from self.why_first_step()

    def series(self) -> BatchSeries | None:
        """The batch sizes that the sentence about their speed is about; the first without any."""
        told = sorted(self.ratios("train"), key=lambda o: (o.verdict != "different", -o.weight))
        found = batch_series(self.evidence, "train")
        about = (one for ratio in told for one in found if {*ratio.cells} <= {*one.cells})
        return next(about, next(iter(found), None))

    def why_batches(self) -> Iterator[Statement]:
        """That a large batch shares among its samples what hardly grows with it; the optimizer's work."""
        series = self.series()
        if series is None:
            return
        small, large = min(series.by_size), max(series.by_size)
        a, b = (series.by_size[size].summary for size in (small, large))
        where = {"small": small, "large": large, "on": self.on(series.by_size[small])}
        a_ms, b_ms, step_ms = a.phases_ms, b.phases_ms, sum(a.phases_ms.values())
        fixed = [
            name
            for name, ms in sorted(a_ms.items(), key=lambda phase: -phase[1])
            if ms >= SMALL_PHASE * step_ms and b_ms.get(name, 0) < HARDLY_GROWS * ms
        ]
        share = sum(a_ms[name] for name in fixed) / (step_ms or 1.0)
        is_cheaper = b.sample_us.value <= CHEAPER * a.sample_us.value
        if is_cheaper and large >= FEWEST_TIMES * small and share >= FIXED_SHARE:
            yield self.say(
                "why_batches",
                "phases",
                **where,
                longer=b.step_ms.value / a.step_ms.value,
                more=large / small,
                phases=joined(map(self.words.phase, fixed), self.words),
                share=share,
            )
        if "optimizer" in fixed:
            ms = {"first_ms": a_ms["optimizer"], "second_ms": b_ms["optimizer"]}
            yield self.say("why_optimizer", "phases", **ms, **where)

    def why_updates(self) -> Iterator[Statement]:
        """That a larger batch updates less often, where accuracy or loss changes with the batch."""
        changes = (one for kind in ("trend", "effect") for one in self.by_kind.get(kind, ()))
        if not any(o.factor == "batch_size" and o.verdict == "different" for o in changes):
            return
        steps, epochs = dict[int, int](), set[int]()
        for one in self.evidence.all_learned:
            if one.trial.state == "done":
                size = self.cells[one.trial.cell].settings.batch_size
                steps[size], epochs = one.trial.steps_done, {*epochs, one.trial.epochs_done}
        if len(steps) > 1 and len(epochs) == 1 and steps[min(steps)] > steps[max(steps)]:
            yield self.say(
                "why_updates",
                "learning",
                epochs=self.words.counted("one_epoch", "epochs", epochs.pop()),
                few=f"{steps[max(steps)]:,}",
                many=f"{steps[min(steps)]:,}",
                small=min(steps),
                large=max(steps),
            )

    def why_no_gain(self) -> Iterator[Statement]:
        """Of the settings where a GPU gains least, if it computes for less than half of a step there."""
        gains = [one for one in self.ratios("train") if one.factor == DEVICE]
        gain = max(gains, key=lambda one: one.ratio, default=None)
        if gain is None or gain.ratio < 1 / LITTLE_GAIN:
            return
        measurement = self.evidence.measurement(gain.cells[1], "train")
        if measurement is not None and measurement.operators is not None:
            busy = ops.device_us(measurement.operators) / 1e3 / measurement.summary.step_ms.value
            if 0 < busy < IDLE:
                setting = level_name("batch_size", measurement.summary.batch_size, self.words)
                yield self.say("why_no_gain", "operators", setting=setting, busy=busy)

    def why_first_step(self) -> Iterator[Statement]:
        """Of the first step the phase that takes longer by most, and what was counted in it."""
        series, words = self.series(), self.words
        measured = [*series.by_size.values()] if series else self.evidence.measured_in("train")
        for measurement in measured[:1]:
            cold = cold_start(measurement.costs, measurement.layers)
            if cold is None or (cold.step_ms.ratio or 0.0) < SLOW_FIRST:
                return
            counts = [
                words.counted(f"cold_one_{one.name}", f"cold_more_{one.name}", one.first)
                for one in cold.in_slowest
                if one.first > 2 * one.settled + FEWEST_COUNTED * (one.name == "page_faults")
            ]
            step, slowest = cold.step_ms, cold.slowest
            yield self.say(
                "why_first_step",
                "cold",
                setting=level_name("batch_size", measurement.summary.batch_size, words),
                on=self.on(measurement),
                first=step,
                # Medians by themselves need not add up.
                excess=min(slowest.excess, step.excess),
                phase=words.phase(slowest.name),
                seen=words("cold_seen", counts=joined(counts, words)) if counts else "",
            )

    def open_points(self) -> Iterator[Statement]:
        """Trials that are missing; then of each factor what its seeds and processes could not tell."""
        states = [trial.state for trial in self.evidence.trials]
        if num_open := sum(one in (*UNFINISHED, "interrupted") for one in states):
            text = self.words("open_unfinished", some=num_open, all=len(states))
            if self.evidence.is_running:
                yield self.open(text, "answer")
                return
            command = shlex.join(["trainlab", "resume", self.evidence.path])
            yield self.open(text, "answer", command, self.minutes() * num_open / len(states))
        if self.evidence.is_complete:
            yield from self.open_learning()
            yield from self.open_cost()

    def open_learning(self) -> Iterator[Statement]:
        """Of each factor the comparisons that more seeds would settle apart from those that none would."""
        words = self.words
        num_asked = max(1, len(self.evidence.study.seeds))
        for factor, effects in self.effects.items():
            # What more seeds cannot decide, since trials diverge or fail, the answer says as such.
            undecided = [one for one in effects if one.open_because in ("noise", "single")]
            by_hope = grouped(undecided, lambda one: (one.seeds_needed or math.inf) <= MOST_SEEDS)
            for is_hopeful, some in sorted(by_hope.items(), reverse=True):
                num_seen = min(one.n for one in some)
                detectable = [one.detectable for one in some if one.detectable is not None]
                key = "open_learning" if detectable else "open_learning_bare"
                needed, after = 0, words("open_too_many")
                if num_seen < FEWEST_SEEDS:
                    key, needed, after = "open_one_seed", ENOUGH_TO_TEST, ""
                elif is_hopeful:
                    needed = most = max(one.seeds_needed for one in some)
                    after = words("open_seeds", number=most)
                    if easy := [one for one in some if 2 * one.seeds_needed <= most]:
                        needed = max(one.seeds_needed for one in easy)
                        told = {"few": needed, "pairs": self.pairs(easy), "number": most}
                        after = words("open_seeds_some", **told)
                text = words(
                    key,
                    **self.ways,
                    metric=words.metric(self.metric),
                    pairs=self.pairs(some),
                    seeds=finding.num_seeds(num_seen, words),
                    size=size_text(self.metric, max(detectable, default=0.0), words),
                )
                command = self.command(f"--seeds {needed}", SEED_OPTIONS) if needed else None
                minutes = self.minutes(learn=needed / num_asked)
                yield self.open(words.sentences(text, after), section_of(factor), command, minutes)

    def open_cost(self) -> Iterator[Statement]:
        """Of each factor which settings are faster, and how many processes would settle it."""
        words, cost = self.words, self.evidence.study.cost
        undecided = (
            one for mode in MODES for one in self.ratios(mode) if one.verdict == "cannot tell"
        )
        by_factor = grouped(undecided, lambda one: (one.mode, one.factor))
        for (mode, factor), ratios in by_factor.items():
            text = words(f"open_cost_{mode}", pairs=self.pairs(ratios))
            needed = [one.processes_needed for one in ratios]
            command, minutes = None, 0.0
            if cost is not None and None not in needed:
                text = words.sentences(text, words("open_processes", number=max(needed)))
                command = self.command(f"--processes {max(needed)}", PROCESS_OPTIONS)
                minutes = self.minutes(cost=max(needed) / cost.processes)
            yield self.open(text, section_of(factor), command, minutes)
        for one in self.by_kind.get("unstable", ()):
            if one.num_wide and cost is not None and self.evidence.diagnosis is None:
                command = self.command(f"--cost-budget {one.minutes}m", BUDGET_OPTIONS)
                text, is_short = one.fill(words, "open_ratios"), one.minutes <= MOST_MINUTES
                minutes = self.minutes() + one.minutes - cost.budget_s / 60
                yield self.open(text, "method", command if is_short else None, minutes)

    def open(
        self, text: str, section: str, command: str | None = None, minutes: float = 0.0
    ) -> Statement:
        """What could not be told, what would settle it, and how long that takes, where that is known."""
        key = "open_less" if minutes < 1 else "open_minutes"
        remark = self.words(key, minutes=f"{minutes:.0f}") if command and minutes else ""
        return Statement(self.words.tidy(text), section, command or "", remark)

    def pairs(self, comparisons: Iterable[Finding]) -> str:
        """The settings of each, or all where each is with each; ` (at lr=0.1)` where levels are."""
        pairs = dict.fromkeys(
            (self.names(one), one.shared_text(self.words) if one.levels != (None, None) else "")
            for one in comparisons
        )
        names = list(dict.fromkeys(name for pair, _ in pairs for name in pair))
        if {at for _, at in pairs} == {""} and len(pairs) == math.comb(len(names), 2):
            return joined(names, self.words)
        told = (f"{joined(pair, self.words)}{at}" for pair, at in pairs)
        return self.words("list_semicolon").join(told)

    def command(self, added: str, instead_of: Sequence[str]) -> str | None:
        """The command that made this run, changed."""
        return command_with(self.evidence.record.command, added, instead_of)

    def minutes(self, learn: float = 1.0, cost: float = 1.0) -> float:
        """What a run takes with so many times the trials of a kind; 0 where none has ended by itself."""
        total_s = 0.0
        for kind, times in (("learn", learn), ("cost", cost)):
            planned = [trial for trial in self.evidence.trials if trial.kind == kind]
            timed = [one for one in planned if one.ended and one.state != "interrupted"]
            total_s += times * busy_s(timed) * len(planned) / max(1, len(timed))
        return total_s / 60


def value_text(metric: str, value: float) -> str:
    """`95.2%`, `0.312`: one digit less than a table has."""
    return f"{100 * value:.1f}%" if is_share(metric) else metric_value(metric, value)


def size_text(metric: str, value: float, words: Words) -> str:
    """The size of a difference: `5.0 points`, `0.0123`."""
    if not is_share(metric):
        return f"{abs(value):.3g}"
    points = 100 * abs(value)
    return words("answer_points", number=f"{points:.1f}" if points >= 0.95 else f"{points:.2g}")


def command_with(command: str, added: str = "", instead_of: Sequence[str] = ()) -> str | None:
    """The command that made a run, with an option in place of others; None where it was no command."""
    try:
        program, *words = shlex.split(command)
    except ValueError:
        return None
    if program != "trainlab":
        return None
    # What follows -- is the script's own, and so is --seed.
    end = words.index("--") if "--" in words else len(words)
    # A longer run goes into a folder of its own.
    replaced = {f"--{option}" for option in (*instead_of, *(["out"] if added else []))}
    replaced -= {"--seed"} if words[:1] == ["watch"] else set()
    kept, given = ["trainlab"], iter(words[:end])
    for word in given:
        if word.partition("=")[0] not in replaced:
            kept.append(word)
        elif "=" not in word and word != "--until-decided":
            next(given, None)  # its value
    return shlex.join([*kept, *added.split(), *words[end:]])


MOST_ROWS = 12
"""Settings of the table beside the answer; of more, the best and the first."""


def answer_table(data: RunData, words: Words) -> Table | None:
    """A row per setting: the metric of the answer, time and memory; None where one setting was trained."""
    evidence, cells = data.evidence, data.evidence.cells
    metric = next(iter(compared_metrics(evidence)), "")
    measured = next(filter(None, map(evidence.measured_in, MODES)), [])
    if not (metric or measured) or (len(cells) == 1 and evidence.learned):
        return None
    shown = cells
    if len(cells) > MOST_ROWS:
        best = [one.cells[0] for one in data.findings if one.kind == "best"]
        shown = tuple(cell for cell in cells if cell is cells[0] or cell.id in best)
    costs = {one.trial.cell: one for one in measured}

    def cost(cell: Cell, read: Callable[[Measurement], Entry]) -> Entry:
        return read(costs[cell.id]) if cell.id in costs else EMPTY

    fields: list[Field[Cell]] = [name(words("cell"), lambda cell: cell.id)]
    done = {cell.id: done_entry(evidence, cell.id, words) for cell in shown}
    if metric and {one.text for one in done.values()} != {str(len(evidence.study.seeds))}:
        fields.append(value(words("seeds"), lambda cell: done[cell.id]))
    if metric:
        heading = f"{words.metric(metric)} [{words('interval')}]"
        fields.append(value(heading, lambda cell: metric_entry(evidence, cell.id, metric, words)))
    if measured:
        heading = words("answer_table_time", mode=words.mode(measured[0].summary.mode))
        us = partial(cost, read=lambda one: estimate(one.summary.sample_us))
        fields.append(value(heading, us))
    if any(one.peak_mib is not None for one in measured):
        fields.append(value(words("peak"), partial(cost, read=lambda one: number(one.peak_mib))))
    notes = [words("answer_table_seeds")] if metric and len(evidence.study.seeds) > 1 else []
    notes += [words("answer_table_times")] if measured else []
    notes += [words("and_more", number=len(cells) - len(shown))] if len(shown) < len(cells) else []
    return table_of("", fields, shown, words.sentences(*notes))


def answer_section(data: RunData, words: Words) -> Section:
    """The answer in a few sentences, the charts that show it, why it is so, and what is left open."""
    evidence, found = data.evidence, answer(data.evidence, data.findings, words)
    lead, *others = found.sections(words)
    # The charts that show what the sentences say: what it costs beside what it learned.
    shown = [cost_figure(data, words)] if found.is_about_cost else []
    metrics = compared_metrics(evidence)
    profiled = [mode for mode in MODES if data.profiled(mode)]
    if metrics:
        figure_of = metric_figure if len(evidence.cells) > 1 else curve_figure
        shown.append(figure_of(data, metrics[0], words))
    elif not shown and profiled:
        shown.append(ops.operator_figure(data, profiled[0], words))
    blocks = (*lead.blocks, *(one for one in shown if one is not None))
    return Section(lead.id, lead.title, blocks, tuple(others))
