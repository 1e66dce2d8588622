"""The answer to the question of a run: a few plain sentences, reasons, and what is left open."""

import math
import shlex
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import combinations
from typing import TypeVar

from trainlab.analysis.charts import cost_values
from trainlab.analysis.cold_start import cold_start
from trainlab.analysis.document import (
    Block,
    Figure,
    Notice,
    Paragraph,
    Section,
    Statement,
    Statements,
)
from trainlab.analysis.evidence import ENDED_WELL, Evidence
from trainlab.analysis.factors import EFFECTS, NO_RESET, TREND, cost_figure, metric_figure
from trainlab.analysis.finding import (
    Finding,
    RunData,
    by_importance,
    cell_name,
    joined,
    level_name,
    names_of,
    num_seeds,
    sample_word,
    section_of,
)
from trainlab.analysis.learning import BEST, DIVERGED, curve_figure
from trainlab.analysis.measurement import MODES, Measurement
from trainlab.analysis.metrics import compared_metrics
from trainlab.analysis.operators import device_us, is_on_device, operator_figure, ranked
from trainlab.analysis.probes import ACCUMULATION
from trainlab.analysis.scaling import BatchSeries, batch_series, knows_enough, parallel_direction
from trainlab.analysis.scripts import STARTUP, command_text, script_whole
from trainlab.record.script_record import num_at_the_end
from trainlab.record.trial_record import TrialRecord
from trainlab.spec import Cell, Study
from trainlab.stats.verdict import FEWEST_SEEDS
from trainlab.words import Words
from trainlab.words.error_lines import error_line
from trainlab.words.numbers import MIB, bare_operator, figure, is_share, metric_value


@dataclass(frozen=True)
class Sentence:
    """One sentence of an answer, with one number."""

    text: str
    section: str
    """The section of the report that has its evidence."""
    findings: tuple[Finding, ...] = field(default=(), repr=False)
    """What it follows from; empty where that is the records themselves."""


@dataclass(frozen=True)
class OpenPoint:
    """What could not be told, and what would settle it."""

    text: str
    section: str
    command: str | None = None
    minutes: float | None = None
    """How long the command takes, from what the trials of this run took."""


@dataclass(frozen=True)
class Answer:
    """The answer to the question of a run, as a person would write it."""

    sentences: tuple[Sentence, ...]
    """The most important first."""
    reasons: tuple[Sentence, ...]
    """Why it is so, each checked against the records."""
    open_points: tuple[OpenPoint, ...]


MOST_NAMED = 4
"""Settings named one by one."""
SAME = ("equivalent", "identical")
LOSS = "train/loss"


def learned_sentences(
    evidence: Evidence, findings: Sequence[Finding], words: Words
) -> Iterator[Sentence]:
    """About the metric that people ask about first."""
    metrics = compared_metrics(evidence)
    if not metrics:
        return
    metric = metrics[0]
    if len(evidence.cells) == 1:
        yield from _one_setting(evidence, metric, words)
        return
    effects = [one for one in findings if one.of_kind in EFFECTS and one.subject == metric]
    best = [one for one in findings if one.of_kind is BEST and one.subject == metric]
    by_factor: dict[str, list[Finding]] = {}
    for effect in effects:
        by_factor.setdefault(effect.factor or "", []).append(effect)
    trends = [
        one
        for one in findings
        if one.of_kind is TREND and one.subject == metric and one.verdict == "different"
    ]
    for one in best:
        yield from _best(evidence, one, effects, trends, words)
    if len(by_factor) > 1:
        yield from _by_factor(evidence, metric, by_factor, words)


def failure_sentences(
    evidence: Evidence, findings: Sequence[Finding], words: Words
) -> Iterator[Sentence]:
    """Settings some of whose runs diverged."""
    diverged = [one for one in findings if one.of_kind is DIVERGED]
    cells = {cell.id: cell for cell in evidence.cells}
    if len(cells) == 1:
        for one in diverged:
            text = words("answer_diverged_all", some=one.num_diverged, n=one.n)
            yield Sentence(text, "trouble", (one,))
        return
    for one in sorted(diverged, key=lambda one: -one.num_diverged / one.n)[:MOST_NAMED]:
        name = cell_name(cells[one.cells[0]], words)
        key = "answer_diverged" if one.num_diverged == one.n else "answer_diverged_some"
        text = words(key, setting=name, some=one.num_diverged, n=one.n)
        yield Sentence(text, "trouble", (one,))


def value_text(metric: str, value: float) -> str:
    """`95.2%`, `0.312`: one digit less than a table has."""
    return f"{100 * value:.1f}%" if is_share(metric) else metric_value(metric, value)


def size_text(metric: str, value: float, words: Words) -> str:
    """The size of a difference: `5.0 points`, `0.0123`."""
    if not is_share(metric):
        return f"{abs(value):.3g}"
    points = 100 * abs(value)
    return words("answer_points", number=f"{points:.1f}" if points >= 0.95 else f"{points:.2g}")


def _one_setting(evidence: Evidence, metric: str, words: Words) -> Iterator[Sentence]:
    cell = evidence.cells[0]
    values = evidence.finite_values(cell.id, metric)
    if not values:
        return
    parts = {
        "metric": words.capital(words.metric(metric)),
        "value": value_text(metric, sum(values) / len(values)),
        "when": _when(evidence, cell, metric, words),
    }
    if len(values) == 1:
        yield Sentence(words("answer_value", **parts), "learning")
    else:
        low, high = value_text(metric, min(values)), value_text(metric, max(values))
        number = num_seeds(len(values), words)
        text = words("answer_values", **parts, seeds=number, low=low, high=high)
        yield Sentence(text, "learning")
    yield from _course(evidence, cell, words)


def _when(evidence: Evidence, cell: Cell, metric: str, words: Words) -> str:
    """After how much training the values are; not always what was asked: training may stop early."""
    if cell.settings.keep_best:
        return words("answer_best_epoch")
    if cell.settings.max_steps is not None:
        return words("answer_after_updates", number=f"{cell.settings.max_steps:,}")
    trained = evidence.learned.get(cell.id, {}).values()
    if not _tells_epochs(evidence, cell):
        number = max((one.trial.steps_done for one in trained), default=0)
        if metric.startswith("train/") and any(one.is_one_pass() for one in trained):
            return words("answer_over_updates", number=f"{num_at_the_end(number):,}")
        return words("answer_after_updates", number=f"{number:,}")
    number = max((one.trial.epochs_done for one in trained), default=0) or cell.settings.epochs
    return words("answer_after", epochs=words.counted("one_epoch", "epochs", number))


def _tells_epochs(evidence: Evidence, cell: Cell) -> bool:
    """Whether passes over the data are known: of a script, where a loader gives them."""
    trained = evidence.learned.get(cell.id, {}).values()
    return evidence.study.script is None or all("passes" in one.trial.resolved for one in trained)


def _course(evidence: Evidence, cell: Cell, words: Words) -> Iterator[Sentence]:
    """How long training took and where its loss went, as medians and means over seeds."""
    of_cell = evidence.learned.get(cell.id, {}).values()
    trained = [one for one in of_cell if one.trial.state in ENDED_WELL]
    epochs_s = [time_s for one in trained if (time_s := one.epoch_s()) is not None]
    totals_s = [one.trial.total_s for one in trained if one.trial.total_s is not None]
    has_epochs = cell.settings.max_steps is None and _tells_epochs(evidence, cell)
    if epochs_s and totals_s and has_epochs:
        text = words(
            "answer_time",
            total=figure(statistics.median(totals_s)),
            epoch=figure(statistics.median(epochs_s)),
            device=level_name("device", trained[0].trial.resolved.get("device", "cpu"), words),
        )
        yield Sentence(text, "learning")
    losses = [
        [float(line[LOSS]) for line in one.epochs if line.get(LOSS) is not None] for one in trained
    ]
    if losses and all(len(values) > 1 for values in losses):
        first, last = (statistics.fmean(values[end] for values in losses) for end in (0, -1))
        if first != last:
            key = "answer_fell" if last < first else "answer_rose"
            ends = {"first": value_text(LOSS, first), "last": value_text(LOSS, last)}
            yield Sentence(words(key, **ends), "learning")


def _best(
    evidence: Evidence,
    best: Finding,
    effects: Sequence[Finding],
    trends: Sequence[Finding],
    words: Words,
) -> Iterator[Sentence]:
    cells = {cell.id: cell for cell in evidence.cells}
    names = [cell_name(cells[cell], words) for cell in best.cells]
    parts = {
        "metric": words.metric(best.subject),
        "seeds": num_seeds(best.n, words),
        "value": value_text(best.subject, best.mean),
    }
    is_told = best.num_worse > 0 or any(effect.verdict == "different" for effect in effects)
    if not is_told:
        if all(effect.verdict in SAME for effect in effects):
            yield from _same(evidence, best.subject, effects, words)
        elif best.n > 1:
            capital = words.capital(parts["metric"])
            # Over all levels together a trend may show that no two of them do.
            key = "answer_only_trend" if trends else "answer_none_told"
            factor = trends[0].factor if trends else ""
            text = words(key, **parts, capital_metric=capital, best=names[0], factor=factor)
            yield Sentence(text, "learning", (best, *trends))
        return
    if len(best.cells) == 1:
        text = words("answer_best", **parts, best=words.capital(names[0]))
    elif (margin := _shared_margin(best, effects)) is not None:
        key = "answer_best_same" if margin else "answer_best_identical"
        margin_text = size_text(best.subject, margin, words)
        together = words.capital(joined(names, words))
        text = words(key, **parts, names=together, margin=margin_text)
    else:
        named = names[1 : 1 + MOST_NAMED]
        others = joined(named, words)
        if len(names) - 1 > len(named):
            others = words("and_others", listed=others, number=len(names) - 1 - len(named))
        text = words("answer_best_tied", **parts, best=words.capital(names[0]), others=others)
    yield Sentence(text, "learning", (best,))


def _shared_margin(best: Finding, effects: Sequence[Finding]) -> float | None:
    """Within which the best setting and all that tie with it were shown to be the same, 0 where they are
    identical; None where that was not shown."""
    same = {
        frozenset(effect.cells): 0.0 if effect.verdict == "identical" else effect.margin or 0.0
        for effect in effects
        if effect.verdict in SAME
    }
    pairs = [frozenset(pair) for pair in combinations(best.cells, 2)]
    if len(best.cells) > MOST_NAMED or not all(pair in same for pair in pairs):
        return None
    return max(same[pair] for pair in pairs)


def _by_factor(
    evidence: Evidence, metric: str, by_factor: dict[str, list[Finding]], words: Words
) -> Iterator[Sentence]:
    """The largest decided effect of each factor, the largest first; then the factors without any."""
    told = [
        max(different, key=lambda effect: abs(effect.difference or 0.0))
        for effects in by_factor.values()
        if (different := [effect for effect in effects if effect.verdict == "different"])
    ]
    for effect in sorted(told, key=lambda effect: -abs(effect.difference or 0.0)):
        yield _effect(evidence, effect, words)
    for effects in by_factor.values():
        yield from _same(evidence, metric, effects, words)


def _effect(evidence: Evidence, effect: Finding, words: Words) -> Sentence:
    first, second = names_of(effect, evidence.cells, words)
    difference = effect.difference or 0.0
    key = "answer_raises" if difference > 0 else "answer_lowers"
    text = words(
        key,
        second=words.capital(second),
        first=first,
        metric=words.metric(effect.subject),
        size=size_text(effect.subject, difference, words),
        value=value_text(effect.subject, effect.mean_b or 0.0),
        at=effect.shared_text(words),
    )
    section = "learning" if effect.of_kind is NO_RESET else section_of(effect.factor)
    return Sentence(text, section, (effect,))


def _same(
    evidence: Evidence, metric: str, effects: Sequence[Finding], words: Words
) -> Iterator[Sentence]:
    """The levels of a factor that were shown to be the same wherever they were compared."""
    named = [(effect, names_of(effect, evidence.cells, words)) for effect in effects]
    not_same = {pair for effect, pair in named if effect.verdict not in SAME}
    found = [(e, pair) for e, pair in named if e.verdict in SAME and pair not in not_same]
    names = list(dict.fromkeys(name for _, pair in found for name in pair))
    if len({pair for _, pair in found}) < len(names) * (len(names) - 1) / 2:
        # Not each of these with each other: the first two alone.
        found, names = found[:1], list(found[0][1])
    if not found:
        return
    same = [effect for effect, _ in found]
    margins = [one.margin for one in same if one.verdict == "equivalent" and one.margin is not None]
    text = words(
        "answer_same" if margins else "answer_identical",
        metric=words.capital(words.metric(metric)),
        names=joined(names, words),
        margin=size_text(metric, max(margins, default=0.0), words),
    )
    yield Sentence(text, section_of(same[0].factor), tuple(same))


ENOUGH_TO_TEST = 3
SEED_OPTIONS = ("seeds", "seed", "until-decided", "max-seeds")
FLAGS = ("--until-decided",)
WATCH = "watch"
MOST_SEEDS = 200
"""More than anybody trains: such a point is left open."""


def open_points(
    evidence: Evidence, findings: Sequence[Finding], words: Words
) -> Iterator[OpenPoint]:
    """Trials that are missing; then of each factor what its seeds and processes could not tell."""
    yield from _unfinished(evidence, words)
    if not evidence.is_complete:
        return
    for metric in compared_metrics(evidence)[:1]:
        yield from _learning(evidence, metric, findings, words)
    yield from _cost(evidence, findings, words)


def _unfinished(evidence: Evidence, words: Words) -> Iterator[OpenPoint]:
    num_open = sum(
        trial.state in ("pending", "running", "interrupted") for trial in evidence.trials
    )
    if num_open:
        text = words("open_unfinished", some=num_open, all=len(evidence.trials))
        whole = _minutes(evidence, 1.0)
        left = None if whole is None else whole * num_open / len(evidence.trials)
        command = f"trainlab resume {shlex.quote(evidence.path)}" if evidence.path else None
        yield OpenPoint(text, "answer", command, left)


def _learning(
    evidence: Evidence, metric: str, findings: Sequence[Finding], words: Words
) -> Iterator[OpenPoint]:
    undecided: dict[str, list[Finding]] = {}
    for one in findings:
        # What more seeds cannot decide, since trials diverge or fail, the answer says as such.
        is_open = one.open_because in ("noise", "single")
        if one.of_kind in EFFECTS and one.subject == metric and is_open:
            undecided.setdefault(one.factor or "", []).append(one)
    for factor, effects in _by_prospect(undecided):
        names = [_pair(evidence, one, words) for one in effects]
        seeds = min(effect.n for effect in effects)
        detectable = [one.detectable for one in effects if one.detectable is not None]
        parts = {
            "metric": words.metric(metric),
            "pairs": words("list_semicolon").join(dict.fromkeys(names)),
            "seeds": num_seeds(seeds, words),
        }
        if seeds < FEWEST_SEEDS:
            text = words("open_one_seed", **parts)
            share = ENOUGH_TO_TEST / max(1, len(evidence.study.seeds))
            yield OpenPoint(
                text,
                section_of(factor),
                command_with(evidence.record.command, f"--seeds {ENOUGH_TO_TEST}", SEED_OPTIONS),
                _minutes(evidence, share, kind="learn"),
            )
            continue
        if detectable:
            size = size_text(metric, max(detectable), words)
            text = words("open_learning", **parts, size=size)
        else:
            text = words("open_learning_bare", **parts)
        needed = max(one.seeds_needed or MOST_SEEDS + 1 for one in effects)
        if needed > MOST_SEEDS:
            yield OpenPoint(words.sentences(text, words("open_too_many")), section_of(factor))
            continue
        share = needed / max(1, len(evidence.study.seeds))
        would_do = words("open_seeds", number=needed)
        yield OpenPoint(
            words.sentences(text, would_do),
            section_of(factor),
            command_with(evidence.record.command, f"--seeds {needed}", SEED_OPTIONS),
            _minutes(evidence, share, kind="learn"),
        )


def _by_prospect(undecided: Mapping[str, list[Finding]]) -> Iterator[tuple[str, list[Finding]]]:
    """Of each factor the comparisons that more seeds would settle apart from those that none would."""
    for factor, effects in undecided.items():
        hopeful = [one for one in effects if (one.seeds_needed or MOST_SEEDS + 1) <= MOST_SEEDS]
        hopeless = [one for one in effects if one not in hopeful]
        yield from ((factor, some) for some in (hopeful, hopeless) if some)


def _cost(evidence: Evidence, findings: Sequence[Finding], words: Words) -> Iterator[OpenPoint]:
    undecided: dict[tuple[str, str], list[Finding]] = {}
    for one in findings:
        if one.kind == "cost" and one.verdict == "cannot tell":
            undecided.setdefault((one.factor or "", one.mode), []).append(one)
    for (factor, mode), ratios in undecided.items():
        names = (_pair(evidence, one, words) for one in ratios)
        pairs = words("list_semicolon").join(dict.fromkeys(names))
        text = words(f"open_cost_{mode}", pairs=pairs)
        known = [one.processes_needed for one in ratios if one.processes_needed is not None]
        if len(known) < len(ratios) or evidence.study.cost is None:
            yield OpenPoint(text, section_of(factor))
            continue
        needed = max(known)
        yield OpenPoint(
            words.sentences(text, words("open_processes", number=needed)),
            section_of(factor),
            command_with(
                evidence.record.command, f"--processes {needed}", ("processes", "max-processes")
            ),
            _minutes(evidence, needed / evidence.study.cost.processes, kind="cost"),
        )


def _pair(evidence: Evidence, one: Finding, words: Words) -> str:
    pair = joined(names_of(one, evidence.cells, words), words)
    at = one.shared_text(words) if one.levels != (None, None) else ""
    return f"{pair}{at}"


def command_with(command: str, added: str = "", instead_of: Sequence[str] = ()) -> str | None:
    """The command that made a run, with an option in place of others; None where it was no command."""
    if not command.startswith("trainlab "):
        return None
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    # What follows -- is the script's own, and so is --seed.
    end = words.index("--") if "--" in words else len(words)
    replaced = {f"--{option}" for option in instead_of if words[1] != WATCH or option != "seed"}
    # A longer run goes into a folder of its own.
    replaced |= {"--out"} if added else set()
    own = _without(words[:end], replaced)
    return shlex.join([*own, *added.split(), *words[end:]])


def _without(words: Sequence[str], options: Collection[str]) -> Iterator[str]:
    """The words of a command but for these options and their values."""
    is_value = False
    for word in words:
        option, equals, _ = word.partition("=")
        if not is_value and option not in options:
            yield word
        is_value = not is_value and word in options and not equals and option not in FLAGS


def _minutes(evidence: Evidence, times: float, kind: str = "") -> float | None:
    """What a whole run takes if its trials of a kind come so many times as often, those that have not
    ended taken to be like the others; None where none has ended by itself."""
    total_s = 0.0
    for one in ("learn", "cost"):
        planned = [trial for trial in evidence.trials if trial.kind == one]
        timed = [
            trial
            for trial in planned
            if trial.started and trial.ended and trial.state != "interrupted"
        ]
        seconds = busy_s(timed) * len(planned) / max(1, len(timed))
        total_s += seconds * (times if kind in ("", one) else 1.0)
    return total_s / 60 if total_s else None


def busy_s(trials: Iterable[TrialRecord]) -> float:
    """How long at least one of the trials ran; those of a bench run at the same time."""
    spans = sorted(
        (datetime.fromisoformat(trial.started), datetime.fromisoformat(trial.ended))
        for trial in trials
        if trial.started is not None and trial.ended is not None
    )
    total_s, latest = 0.0, None
    for start, end in spans:
        begin = start if latest is None else max(start, latest)
        total_s += max(0.0, (end - begin).total_seconds())
        latest = end if latest is None else max(end, latest)
    return total_s


DEVICE = "device"
NOTABLE_SHARE = 0.2
"""From this share of a step on, the optimizer is worth a sentence."""


def device_sentences(
    evidence: Evidence, findings: Sequence[Finding], words: Words
) -> Iterator[Sentence]:
    """What a GPU gains, at each level of the other factors."""
    for mode in MODES:
        gains = [ratio for ratio in _ratios(findings, mode) if ratio.factor == DEVICE]
        if gains:
            yield _gain(evidence, mode, gains, words)


def speed_sentences(
    evidence: Evidence, findings: Sequence[Finding], words: Words
) -> Iterator[Sentence]:
    """Of each other factor the fastest level in training; one mode without the other where only that
    was measured."""
    for mode in MODES:
        # What processes gain is told with their efficiency.
        apart = {DEVICE, *(gain.factor for gain in _parallel_gains(findings))}
        ratios = [ratio for ratio in _ratios(findings, mode) if ratio.factor not in apart]
        for factor in dict.fromkeys(ratio.factor for ratio in ratios):
            own = [ratio for ratio in ratios if ratio.factor == factor]
            told = [ratio for ratio in own if ratio.verdict == "different"]
            if told:
                yield _faster(evidence, mode, max(told, key=lambda ratio: ratio.weight), words)
            elif all(ratio.verdict == "equivalent" for ratio in own):
                yield _same_speed(evidence, mode, own, words)


def step_sentences(evidence: Evidence, words: Words) -> Iterator[Sentence]:
    """What a step takes, where one setting was measured."""
    cells = {measurement.trial.cell for measurement in evidence.measured}
    if len(cells) != 1:
        return
    cell = next(iter(cells))
    for mode in MODES:
        if (measurement := evidence.measurement(cell, mode)) is not None:
            yield from _step(evidence, mode, measurement, words)


def batch_sentences(findings: Sequence[Finding], words: Words) -> Iterator[Sentence]:
    """The optimizer's share at the smallest batch, the batch beyond which gains end, the top operator."""
    for share in findings:
        if share.kind == "optimizer_share" and share.share_a >= NOTABLE_SHARE:
            text = words(
                "answer_optimizer",
                setting=level_name("batch_size", share.levels[0], words),
                share=whole_percent(share.share_a),
            )
            yield Sentence(text, "phases", (share,))
    for scaling in findings:
        if scaling.kind == "scaling" and scaling.mode == "train" and knows_enough(scaling):
            text = words("answer_enough", batch=round(scaling.enough or 0))
            yield Sentence(text, "scaling", (scaling,))
    for gain in _parallel_gains(findings):
        first, second = map(words.setting, gain.levels)
        text = words(
            f"answer_parallel_{parallel_direction(gain)}",
            first=first,
            second=second,
            times=times(max(gain.speedup, 1 / gain.speedup)),
            share=whole_percent(gain.efficiency),
        )
        yield Sentence(text, "parallel", (gain,))
    for top in findings:
        if top.kind == "top_operator" and top.of_mode == "train":
            text = words(
                "answer_operator",
                setting=level_name("batch_size", top.levels[1], words),
                operator=bare_operator(top.subject),
                share=whole_percent(top.share_b),
                whole=words(f"share_of_{top.share_of}"),
            )
            yield Sentence(text, "operators", (top,))


def hardware_sentences(evidence: Evidence, words: Words) -> Iterator[Sentence]:
    """That there was no GPU, where costs were measured without one."""
    environments = evidence.environments.values()
    if evidence.measured and environments and not any(one.gpus for one in environments):
        yield Sentence(words("answer_no_gpu"), "environment")


def whole_percent(share: float) -> str:
    """`55%`; one digit after the point below 10%."""
    return f"{100 * share:.0f}%" if share >= 0.1 else f"{100 * share:.1f}%"


def times(ratio: float) -> str:
    """`6.6`, `31`, `1.05`, `1,204`: how many times, to two digits or three."""
    return f"{ratio:.{3 if ratio < 1.2 else 2}g}" if ratio < 99.5 else figure(ratio)


def _parallel_gains(findings: Sequence[Finding]) -> list[Finding]:
    """Those that are known well enough to be told."""
    gains = (one for one in findings if one.kind == "parallel")
    return [gain for gain in gains if gain.interval is not None]


def _ratios(findings: Sequence[Finding], mode: str) -> list[Finding]:
    return [one for one in findings if one.kind == "cost" and one.mode == mode]


def _gain(evidence: Evidence, mode: str, gains: Sequence[Finding], words: Words) -> Sentence:
    cells = {cell.id: cell for cell in evidence.cells}
    parts = [words(_gain_key(gain), times=_gained(gain)) for gain in gains]
    if len(gains) > 1:
        parts = [
            words("gain_at", gain=part, rest=_others(cells[gain.cells[1]], words))
            for part, gain in zip(parts, gains, strict=True)
        ]
    first, second = (level_name(DEVICE, level, words) for level in gains[0].levels)
    text = words(
        f"answer_device_{mode}",
        second=second,
        first=first,
        gains=words("list_semicolon").join(parts),
    )
    return Sentence(text, "factor-device", tuple(gains))


def _gain_key(gain: Finding) -> str:
    if gain.verdict == "different":
        return "gain_faster" if gain.ratio < 1 else "gain_slower"
    return "gain_same" if gain.verdict == "equivalent" else "gain_unknown"


def _gained(gain: Finding) -> str:
    """How many times as fast the faster of the two is."""
    return times(math.exp(abs(math.log(gain.ratio))))


def _others(cell: Cell, words: Words) -> str:
    rest = [level_name(name, level, words) for name, level in cell.levels.items() if name != DEVICE]
    return words.listed(rest)


def _faster(evidence: Evidence, mode: str, ratio: Finding, words: Words) -> Sentence:
    """The faster of two settings against the slower one."""
    slow, fast = names_of(ratio, evidence.cells, words)
    if ratio.ratio > 1:
        slow, fast = fast, slow
    text = words(
        f"answer_faster_{mode}",
        fast=words.capital(fast),
        low_fast=fast,
        slow=slow,
        times=_gained(ratio),
        sample=sample_word(evidence, words),
        at=ratio.shared_text(words),
    )
    return Sentence(text, section_of(ratio.factor), (ratio,))


def _same_speed(evidence: Evidence, mode: str, ratios: Sequence[Finding], words: Words) -> Sentence:
    names = list(
        dict.fromkeys(name for one in ratios for name in names_of(one, evidence.cells, words))
    )
    text = words(
        f"answer_same_speed_{mode}",
        names=words.capital(joined(names, words)),
        margin=whole_percent(max(one.margin or 0.0 for one in ratios)),
        sample=sample_word(evidence, words),
    )
    return Sentence(text, section_of(ratios[0].factor), tuple(ratios))


WORTH_TELLING = 0.2
"""Of a step that is spent on fetching samples."""


def _step(
    evidence: Evidence, mode: str, measurement: Measurement, words: Words
) -> Iterator[Sentence]:
    summary = measurement.summary
    yield Sentence(
        words(
            f"answer_step_{mode}",
            batch=summary.batch_size,
            device=level_name(DEVICE, str(measurement.trial.resolved.get(DEVICE, "cpu")), words),
            ms=figure(summary.step_ms.value),
            us=figure(summary.sample_us.value),
            sample=sample_word(evidence, words),
        ),
        "comparison",
    )
    if mode == "train" and (total := sum(summary.phases_ms.values())):
        shares = sorted(summary.phases_ms.items(), key=lambda phase: -phase[1])[:2]
        named = (f"{words.phase(name)} {whole_percent(ms / total)}" for name, ms in shares)
        yield Sentence(words("answer_phases", phases=joined(named, words)), "phases")
        fetching = summary.phases_ms.get("data", 0.0) / total
        if WORTH_TELLING <= fetching < 1 and not measurement.trial.resolved.get("data_resident"):
            times = f"{1 / (1 - fetching):.1f}"
            text = words("answer_loader", share=whole_percent(fetching), times=times)
            yield Sentence(text, "phases")
    if measurement.operators is not None and (rows := ranked(measurement.operators, "self")):
        whole = "share_of_device" if is_on_device(measurement.operators) else "share_of_step"
        text = words(
            f"answer_top_{mode}",
            operator=bare_operator(rows[0].name),
            share=whole_percent(rows[0].share),
            whole=words(whole),
        )
        yield Sentence(text, "operators")
    if mode == "train" and measurement.memory is not None:
        peak = figure(measurement.memory.peak_bytes / MIB)
        yield Sentence(words("answer_memory", mib=peak), "phases")


CHEAPER = 0.8
"""A larger batch must take at most this share of the smaller one's time per sample."""
HARDLY_GROWS = 2.0
"""A phase that takes fewer times as long hardly grows, where the batch is at least twice that."""
FEWEST_TIMES = 4
FIXED_SHARE = 0.2
"""Of the smaller batch's step, that phases which hardly grow must take to explain anything."""
SMALL_PHASE = 0.05
"""Phases below this share of a step are not named."""
FEWEST_COUNTED = 10
SLOW_FIRST = 1.5
LITTLE_GAIN = 1.5
IDLE = 0.5
"""A GPU that computes for less than this share of a step waits for the host."""


def reasons(evidence: Evidence, findings: Sequence[Finding], words: Words) -> Iterator[Sentence]:
    """The large batch, the optimizer, the GPU, the resets, the first step."""
    for series in batch_series(evidence, "train")[:1]:
        yield from _why_batches(evidence, series, words)
        yield from _why_optimizer(series, words)
    yield from _why_no_gain(evidence, findings, words)
    yield from _why_resets(findings, words)
    yield from _why_first_step(evidence, words)


def _why_batches(evidence: Evidence, series: BatchSeries, words: Words) -> Iterator[Sentence]:
    small, large = min(series.by_size), max(series.by_size)
    a, b = (series.by_size[size].summary for size in (small, large))
    fixed = _hardly_growing(series)
    share = sum(a.phases_ms[name] for name in fixed) / (sum(a.phases_ms.values()) or 1.0)
    is_cheaper = b.sample_us.value <= CHEAPER * a.sample_us.value
    if not is_cheaper or large < FEWEST_TIMES * small or share < FIXED_SHARE:
        return
    text = words(
        "why_batches",
        small=small,
        large=large,
        longer=times(b.step_ms.value / a.step_ms.value),
        more=times(large / small),
        phases=joined((words.phase(name) for name in fixed), words),
        share=whole_percent(share),
        part=whole_percent(_part_saved(series, fixed)),
        sample=sample_word(evidence, words),
        samples=sample_word(evidence, words, many=True),
    )
    yield Sentence(text, "phases")


def _part_saved(series: BatchSeries, phases: Sequence[str]) -> float:
    """Of the time per sample that the largest batch saves, what these phases save; not above all of it,
    since other phases may take longer."""
    small, large = min(series.by_size), max(series.by_size)
    a, b = (series.by_size[size].summary.phases_ms for size in (small, large))
    saved = {name: a[name] / small - b.get(name, 0.0) / large for name in a}
    return min(1.0, sum(saved[name] for name in phases) / sum(saved.values()))


def _hardly_growing(series: BatchSeries) -> list[str]:
    """The phases of a step that take hardly longer at the largest batch, the longest first."""
    a, b = (
        series.by_size[size].summary.phases_ms
        for size in (min(series.by_size), max(series.by_size))
    )
    least = SMALL_PHASE * sum(a.values())
    fixed = [name for name in a if a[name] >= least and b.get(name, 0) < HARDLY_GROWS * a[name]]
    return sorted(fixed, key=lambda name: -a[name])


def _why_optimizer(series: BatchSeries, words: Words) -> Iterator[Sentence]:
    small, large = min(series.by_size), max(series.by_size)
    if "optimizer" not in _hardly_growing(series):
        return
    a, b = (series.by_size[size].summary.phases_ms["optimizer"] for size in (small, large))
    text = words(
        "why_optimizer",
        first_ms=figure(a),
        second_ms=figure(b),
        small=small,
        large=large,
    )
    yield Sentence(text, "phases")


def _why_no_gain(
    evidence: Evidence, findings: Sequence[Finding], words: Words
) -> Iterator[Sentence]:
    """Of the settings where a GPU gains least, if it computes for less than half of a step there."""
    gains = [
        one
        for one in findings
        if one.kind == "cost" and one.factor == DEVICE and one.mode == "train"
    ]
    for gain in sorted(gains, key=lambda gain: -gain.ratio)[:1]:
        measurement = evidence.measurement(gain.cells[1], "train")
        if gain.ratio < 1 / LITTLE_GAIN or measurement is None or measurement.operators is None:
            continue
        busy = device_us(measurement.operators) / 1e3 / measurement.summary.step_ms.value
        if 0 < busy < IDLE:
            batch = measurement.summary.batch_size
            setting = level_name("batch_size", batch, words)
            text = words("why_no_gain", setting=setting, busy=whole_percent(busy))
            yield Sentence(text, "operators", (gain,))


def _why_resets(findings: Sequence[Finding], words: Words) -> Iterator[Sentence]:
    """Where training without resets is shown to be worse and the gradients are seen to grow."""
    is_worse = any(one.of_kind is NO_RESET and one.verdict == "different" for one in findings)
    grown = [one for one in findings if one.of_kind is ACCUMULATION and one.times > 1]
    if is_worse and grown:
        most = max(grown, key=lambda one: one.times)
        yield Sentence(words("why_resets", times=times(most.times)), "probes", (most,))


def _why_first_step(evidence: Evidence, words: Words) -> Iterator[Sentence]:
    """Where the first step takes longer and more is seen to happen in it."""
    for measurement in evidence.measured_in("train")[:1]:
        cold = cold_start(measurement.costs, measurement.layers)
        if cold is None or (ratio := cold.step_ms.ratio) is None or ratio < SLOW_FIRST:
            continue
        more = [pair for pair in cold.evidence if pair.first > 2 * pair.settled + FEWEST_COUNTED]
        if more:
            counts = joined(
                (words(f"cold_more_{p.name}", number=f"{p.first:,.0f}") for p in more), words
            )
            yield Sentence(
                words(
                    "why_first_step",
                    setting=level_name("batch_size", measurement.summary.batch_size, words),
                    times=times(ratio),
                    ms=figure(cold.step_ms.first),
                    counts=counts,
                ),
                "cold",
            )


MOST_TOLD = 3


def script_sentences(findings: Sequence[Finding], words: Words) -> Iterator[Sentence]:
    """The whole first, of a single setting; then what stands out, each where it is largest."""
    found = [one for one in findings if one.section == "script"]
    for time in found:
        if time.kind == "script_time" and time.num_cells == 1:
            yield Sentence(script_whole(time, words), "script", (time,))
    largest: dict[tuple[str, str], Finding] = {}
    for one in by_importance(one for one in found if not _is_told(one)):
        largest.setdefault((one.kind, one.subject), one)
    for one in list(largest.values())[:MOST_TOLD]:
        yield Sentence(one.sentence(words), "script", (one,))


def _is_told(one: Finding) -> bool:
    """What the first sentence says already."""
    return one.kind == "script_time" or (one.num_cells == 1 and one.subject == STARTUP)


__all__ = ["Answer", "OpenPoint", "Sentence", "answer"]

T = TypeVar("T", Sentence, OpenPoint)

MOST = 5
"""Sentences of an answer."""


def answer(evidence: Evidence, findings: Sequence[Finding], words: Words) -> Answer:
    """What a reader with one minute should read; the most important first."""
    device = list(device_sentences(evidence, findings, words))
    speed = list(speed_sentences(evidence, findings, words))
    learned = list(learned_sentences(evidence, findings, words))
    failed = list(failure_sentences(evidence, findings, words))
    script = list(script_sentences(findings, words))
    step = list(step_sentences(evidence, words))
    batch = list(batch_sentences(findings, words))
    last = list(hardware_sentences(evidence, words))
    # One sentence of each kind before the second of any; what is about cost first, where it was measured.
    columns = [device, speed, learned[:1], failed, script, step, learned[1:], batch]
    firsts = [column[0] for column in columns if column]
    rest = [sentence for column in columns for sentence in column[1:]]
    chosen = [*firsts, *rest][: MOST - len(last)]
    # What is about one thing stands together.
    sentences = [one for column in columns for one in column if one in chosen] + last
    return Answer(
        sentences=tuple(_tidy(one, words) for one in sentences),
        reasons=tuple(_tidy(one, words) for one in reasons(evidence, findings, words)),
        open_points=tuple(_tidy(one, words) for one in open_points(evidence, findings, words)),
    )


def _tidy(one: T, words: Words) -> T:
    return replace(one, text=words.tidy(one.text))


def notices(data: RunData, words: Words) -> Iterator[Notice]:
    """What a reader must know before anything else."""
    states = [trial.state for trial in data.evidence.trials]
    planned = len(states) + data.evidence.num_damaged
    counts = {
        "notice_unfinished": states.count("pending") + states.count("running"),
        "notice_failed": states.count("failed"),
        "notice_interrupted": states.count("interrupted"),
        "notice_damaged": data.evidence.num_damaged,
    }
    for key, number in counts.items():
        if number:
            yield Notice(words(key, some=number, all=planned), "failure")
    texts: dict[str, None] = {}
    for trial in data.evidence.trials:
        if (dataset := trial.data) is not None and dataset.is_subset:
            train, test = f"{dataset.num_train:,}", f"{dataset.num_test:,}"
            text = words("notice_subset", name=dataset.name, train=train, test=test)
            note = error_line(dataset.note, words.lang) if dataset.note else ""
            texts[words.sentences(text, note) if note else text] = None
    yield from map(Notice, texts)


def unstable_notices(data: RunData, words: Words) -> Iterator[Notice]:
    """A warning at the top of the report where measurements are unstable."""
    for finding in data.findings:
        if finding.kind == "unstable" and finding.num_unstable:
            some, measured = finding.num_unstable, finding.num_measured
            yield Notice(words("unstable_notice", some=some, all=measured))


def answer_section(data: RunData, words: Words) -> Section:
    """The answer in a few sentences, one chart that shows it, why it is so, and what is left open."""
    found = answer(data.evidence, data.findings, words)
    blocks: list[Block] = []
    if not data.evidence.study.title:
        blocks.append(Paragraph(_question(data.evidence.study, words)))
    blocks += answer_blocks(found, words)
    if (figure := _figure(data, found, words)) is not None:
        blocks.append(figure)
    parts = (
        ("why", "why_so", why_blocks(found)),
        ("open", "left_open", open_blocks(found, words)),
    )
    sections = (Section(name, words(key), tuple(own)) for name, key, own in parts if own)
    return Section("answer", words("answer"), tuple(blocks), tuple(sections))


def _question(study: Study, words: Words) -> str:
    """What was asked, where the study has no title."""
    if study.script is None:
        return words("no_question", workload=study.workload)
    if study.script.from_inside:
        return words("no_question_inside")
    key = "no_question_varied" if study.cells else "no_question_script"
    return words(key, script=command_text(study.script))


def answer_blocks(answer: Answer, words: Words) -> list[Block]:
    """The sentences of the answer, or that there are none."""
    if not answer.sentences:
        return [Paragraph(words("no_findings"))]
    items = (Statement(one.text, one.section) for one in answer.sentences)
    return [Statements(tuple(items), is_lead=True)]


def why_blocks(answer: Answer) -> list[Block]:
    """The reasons; none where no reason holds."""
    items = tuple(Statement(one.text, one.section) for one in answer.reasons)
    return [Statements(items)] if items else []


def open_blocks(answer: Answer, words: Words) -> list[Block]:
    """What could not be told; none where all was."""
    items = tuple(_open_point(point, words) for point in answer.open_points)
    return [Statements(items)] if items else []


def _open_point(point: OpenPoint, words: Words) -> Statement:
    remark = ""
    if point.minutes is not None and point.command:
        is_short = point.minutes < 1
        minutes = f"{point.minutes:.0f}"
        remark = words("open_less") if is_short else words("open_minutes", minutes=minutes)
    return Statement(point.text, point.section, point.command or "", remark)


def _figure(data: RunData, answer: Answer, words: Words) -> Figure | None:
    """The chart that shows what the first sentence says."""
    first = answer.sentences[0] if answer.sentences else None
    is_about_cost = first is not None and any(f.kind == "cost" for f in first.findings)
    values = cost_values(data.evidence, "sample_us")
    if is_about_cost and values is not None:
        return cost_figure(values, words)
    for metric in compared_metrics(data.evidence)[:1]:
        if len(data.evidence.cells) > 1:
            return metric_figure(data, metric, words)
        return curve_figure(data, metric, words)
    for mode in ("train", "inference"):
        if data.profiled(mode):
            return operator_figure(data, mode, words)
    return None
