"""Diagnosis: what may limit a script, from its record, and what the changes that were tried show.

A hypothesis is a guess with a change that would show it; it is worth trying by how much of the time of an
update it could save.
"""

import math
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, NamedTuple, cast, get_args

from trainlab import __version__
from trainlab.analysis import document
from trainlab.analysis.document import Block, Document, Entry, Paragraph, Section, Table
from trainlab.analysis.evidence import grouped
from trainlab.analysis.finding import RunData
from trainlab.analysis.scripts import growth
from trainlab.analysis.tables import Field, name, number, share, table_of, value
from trainlab.errors import SpecError
from trainlab.record.cost_record import CostRecord
from trainlab.record.run_folder import RunFolder
from trainlab.record.script_record import (
    DiagnosisRecord,
    LimitName,
    LimitRow,
    LimitVerdict,
    PartName,
    TriedRow,
    WatchedRecord,
)
from trainlab.spec import script as changes_of
from trainlab.spec.base import did_you_mean
from trainlab.spec.script import ChangeName, change_parts
from trainlab.spec.study import BASE
from trainlab.stats.contrasts import LEVEL
from trainlab.stats.cost_ratio import effects, levels
from trainlab.stats.means import Interval, Ratio, ratio_of_logs
from trainlab.words import Words
from trainlab.words.numbers import MIB

FIRST_STEPS = 5
"""What they take is start-up."""
BETWEEN = ("other", "prepare")
COMPUTING = ("forward", "loss", "backward")
HAVE_FUSED, FUSED_SAVES = ("Adam", "AdamW", "SGD", "Adagrad"), 0.6
"""Optimizers of torch's with fused code, and about how much of their time it saves."""
CHECKS_TAKE = 0.5
"""Of forward and backward passes in which autograd looks for anomalies, about so much."""
MUCH_UPDATING = 0.25
"""From this share of an update on, fused updates, too, are named."""
SMALL_BATCH = {"cpu": 16, "cuda": 64}
"""Batches of up to so many samples may be too small for the device."""
LARGER_BATCH, TINY_BATCH, MUCH_LARGER_BATCH = 4, 4, 8
MANY_THREADS, SHORT_UPDATE_MS = 8, 50.0
"""So many threads, though there are cores for them, may be too many for updates as short as this."""
PURE = 0.8
"""Share of a statement's samples that must lie where it is blamed for."""
ENCLOSING = 0.01
"""Share of them in backward passes and updates from which on it holds the training itself."""
MOSTLY = 0.5
"""From this share of an update on, it may be said to be what takes the time."""
MIN_POTENTIAL = 0.05
"""What could save less is not tried, unless nothing could save more."""
REMEDIED = 0.10
"""A remedy is tried where so much could be saved."""
LIMIT_OF: Mapping[ChangeName, LimitName] = {
    "same_batch": "data",
    "workers": "data",
    "pin_memory": "transfer",
    "fused": "optimizer",
    "threads": "threads",
    "batch_size": "batch_size",
    "evaluation": "evaluation",
    "no_logging": "logging",
    "no_anomaly_checks": "anomaly_checks",
    "without": "between",
    "drop": "memory",
}
"""What a change that is asked for is about."""
MIN_GAIN = 0.10
"""Saving less of the time of an update does not make something a limit."""
LARGER_GAINS: Mapping[str, float] = {"batch_size": 0.40, "threads": 0.15}
"""A larger batch is nearly always cheaper per sample, and the best number of threads is rarely the one that
is used: only a large gain counts."""
SURE_GAIN = 0.03
"""The whole interval must lie beyond this."""
LEAK_SHARE = 0.5
"""A container holds what leaks if without it memory grows by less than this share."""
NO_TIME, CUT_SHORT = "no_time", "cut_short"
"""The reasons, among the words, of what was to be tried and was not, or was and did not come to its end."""
MIN_SHARED_ROUNDS = 5
MARKS: Mapping[LimitVerdict, document.Mark] = {
    "confirmed": "different",
    "cannot tell": "cannot tell",
    "not tried": "cannot tell",
    "refuted": "equivalent",
}
"""Verdicts as they rank, the most important first, and how a table shows them."""
RANKS = list(MARKS)
BUSY_CORES = 0.3
MOST_ADVISED = 30
"""More processes than this nobody will wait for."""


def update_parts_ms(watched: WatchedRecord) -> dict[str, float]:
    """Milliseconds of an update by part, tests included; what lies between torch's calls is `logging`,
    where something was written, or `between`. Empty where no update was seen."""
    later = [place for place, step in enumerate(watched.steps) if step > FIRST_STEPS]
    if not later:
        return {}
    parts = {n: statistics.fmean(ms[at] for at in later) for n, ms in watched.steps_ms.items()}
    parts["logging"] = 0.0
    for whole, own in (("between", ("logging", *BETWEEN)), ("loss", ("logging_in_loss", "loss"))):
        writing, *others = (watched.samples.get(part, 0) for part in own)
        spent_ms = sum(parts.pop(part, 0.0) for part in own[1:])
        writing_ms = spent_ms * writing / ((writing + sum(others)) or 1)
        parts[whole] = spent_ms - writing_ms
        parts["logging"] += writing_ms
    parts["evaluation"] = 1e3 * watched.parts_s.get("evaluation", 0.0) / watched.num_steps
    return {name: ms for name, ms in parts.items() if ms > 0}


@dataclass(frozen=True, kw_only=True)
class Hypothesis:
    """A guess, and what would show whether it is right."""

    limit: LimitName
    share: float = 0.0
    """Of the time of an update."""
    potential: float = 0.0
    """Of the time of an update that could be saved; of a leak, how urgent it is."""
    changes: tuple[str, ...] = ()
    """Each shows by itself whether the guess is right; none: it cannot be tried."""
    remedies: tuple[str, ...] = ()
    """What one would do about it, where that is something else."""
    line: int | None = None
    text: str = ""
    number: float | None = None
    reason: str = ""
    """Why nothing can be tried, by its key among the words."""


def hypotheses_of(watched: WatchedRecord, *, cores: int, source: str) -> tuple[Hypothesis, ...]:
    """The most promising first; `source` is the script's text."""
    parts = update_parts_ms(watched)
    if not parts:
        return ()
    total = sum(parts.values())
    shares = {name: ms / total for name, ms in parts.items()}
    found = (
        *_in_calls(watched, shares, cores),
        *_in_script(watched, shares),
        *_anomaly_checks(watched, shares),
        *_batch_size(watched, source),
        *_threads(watched, shares, cores, total),
        *_memory(watched),
    )
    return tuple(sorted(found, key=lambda one: -one.potential))


def is_rare(watched: WatchedRecord, limit: LimitName) -> bool:
    """Whether most of what a limit takes, it takes in few updates: then their mean counts, not the usual
    one."""
    if limit == "evaluation":
        return True
    part = "other" if limit in ("logging", "between") else limit
    times = zip(watched.steps, watched.steps_ms.get(part, []), strict=False)
    values = [ms for step, ms in times if step > FIRST_STEPS]
    return bool(values) and statistics.median(values) < 0.5 * statistics.fmean(values)


def chosen(found: Sequence[Hypothesis], most: int) -> tuple[Hypothesis, ...]:
    """Those to try: up to so many that promise enough, or the one that promises most."""
    can = [one for one in found if one.changes]
    return tuple([one for one in can if one.potential >= MIN_POTENTIAL][:most] or can[:1])


def left_out(found: Sequence[Hypothesis], tried: Sequence[Hypothesis]) -> tuple[Hypothesis, ...]:
    """Those that promise enough, too, and cannot be tried, or of which not all changes are."""
    limits, done = {one.limit for one in tried}, {c for one in tried for c in one.changes}
    others = (one for one in found if one.limit not in limits or not done.issuperset(one.changes))
    return tuple(replace(one, remedies=()) for one in others if one.potential >= MIN_POTENTIAL)


def asked_for(found: Sequence[Hypothesis], asked: Sequence[str]) -> tuple[Hypothesis, ...]:
    """What was asked for by name: a limit, as `data`, or a change, as `threads=1`. SpecError for others."""
    limits: dict[str, Hypothesis] = {one.limit: one for one in found}
    picked: dict[LimitName, Hypothesis] = {}
    for text in asked:
        if text in get_args(LimitName):
            limit = cast("LimitName", text)
            picked[limit] = limits.get(limit, Hypothesis(limit=limit, reason="not_seen"))
            continue
        if text.partition("=")[0] not in changes_of.CHANGE_NAMES:
            known = dict.fromkeys((*get_args(LimitName), *changes_of.CHANGE_NAMES))
            rule = f"must be one of {', '.join(known)}{did_you_mean(text, known)}"
            raise SpecError([f"--try: got {text!r}, {rule}"])
        name, value = change_parts(text, "--try")
        if name in changes_of.WITH_NUMBER and not value.isdecimal():
            raise SpecError([f"--try: got {text!r}, must have a whole number, as {name}=1"])
        seen = limits.get(LIMIT_OF[name], Hypothesis(limit=LIMIT_OF[name]))
        seen = next((one for one in found if text in one.changes), seen)
        before = picked[seen.limit].changes if seen.limit in picked else ()
        picked[seen.limit] = replace(seen, changes=(*before, text), remedies=())
    return tuple(picked.values())


def device_of(watched: WatchedRecord) -> str:
    """`cuda` where a model is on a GPU, else `cpu`."""
    return "cuda" if any("cuda" in one.devices for one in watched.models) else "cpu"


def _in_calls(
    watched: WatchedRecord, shares: Mapping[str, float], cores: int
) -> Iterator[Hypothesis]:
    """What torch's own calls take: the data, their transfer, the optimizer."""
    loaders = [one for one in watched.loaders if one.is_trained_on]
    if "data" in shares and loaders:
        workers = loaders[0].num_workers
        is_remedied = cores > 1 and shares["data"] >= REMEDIED
        more = (f"workers={max(2, 2 * workers)}",) if is_remedied else ()
        yield _guess(shares, "data", 1.0, "same_batch", remedies=more, number=workers)
    if "transfer" in shares and not all(one.pin_memory for one in loaders):
        yield _guess(shares, "transfer", 0.5, "pin_memory")
    slow = [one for one in watched.optimizers if one.code != "fused"]
    if "optimizer" in shares and slow:
        first = min(slow, key=lambda one: one.name not in HAVE_FUSED)
        change, reason = (("fused",), "") if first.name in HAVE_FUSED else ((), "no_fused_code")
        yield _guess(shares, "optimizer", FUSED_SAVES, *change, text=first.name, reason=reason)
    elif shares.get("optimizer", 0.0) >= MUCH_UPDATING and watched.optimizers:
        name = watched.optimizers[0].name
        yield _guess(shares, "optimizer", 1.0, text=name, reason="is_fused")


def _in_script(watched: WatchedRecord, shares: Mapping[str, float]) -> Iterator[Hypothesis]:
    """What statements of the script take: tests, logging, what lies between torch's calls. To show it, the
    statement that is seen most often there is left out."""
    if "evaluation" in shares:
        # Tests of several batches are cut to one; of others, the statement is left out.
        sizes = [one.num_batches or 2 for one in watched.loaders if not one.is_trained_on]
        if (most := max(sizes, default=1)) > 1:
            yield _guess(shares, "evaluation", 1 - 1 / most, "evaluation=1")
        else:
            yield _by_statement(watched, shares, "evaluation", "evaluation")
    if "logging" in shares:
        found = _by_statement(watched, shares, "logging", "logging", "logging_in_loss", *BETWEEN)
        yield replace(found, changes=("no_logging",), reason="")
    if "between" in shares:
        yield _by_statement(watched, shares, "between", *BETWEEN, "loss")


def _by_statement(
    watched: WatchedRecord, shares: Mapping[str, float], limit: LimitName, *parts: str
) -> Hypothesis:
    """Blames the statement under way most often during these parts, and hardly ever otherwise."""
    seen: dict[int, int] = {}
    for place, row in enumerate(watched.statements):
        during, updating = (
            sum(row.samples.get(name, 0) for name in names)
            for names in (parts, ("backward", "optimizer"))
        )
        whole = sum(row.samples.values())
        is_loss = "loss" in parts and row.samples.get("loss", 0) and "loss" in row.text
        # Only what holds the loop has samples of what every update does.
        if during >= PURE * whole and updating <= ENCLOSING * whole and not is_loss:
            seen[place] = during
    if not seen:
        return _guess(shares, limit, 1.0, reason="no_statement")
    place = max(seen, key=seen.__getitem__)
    row, share = watched.statements[place], shares[limit]
    found = _guess(shares, limit, 1.0, f"without={row.line}", line=row.line, text=row.text)
    if limit != "between":
        return found
    part = seen[place] / max(1, sum(watched.samples.values()))
    return replace(found, potential=max(part, min(share, part * 2)))


def _guess(
    shares: Mapping[str, float], limit: LimitName, saves: float, *changes: str, **more: Any
) -> Hypothesis:
    share, potential = shares[limit], saves * shares[limit]
    return Hypothesis(limit=limit, share=share, potential=potential, changes=changes, **more)


def _anomaly_checks(watched: WatchedRecord, shares: Mapping[str, float]) -> Iterator[Hypothesis]:
    if watched.checks_anomalies:
        computing = sum(shares.get(name, 0.0) for name in COMPUTING)
        change = ("no_anomaly_checks",)
        yield Hypothesis(limit="anomaly_checks", potential=CHECKS_TAKE * computing, changes=change)


def _batch_size(watched: WatchedRecord, source: str) -> Iterator[Hypothesis]:
    size, most = watched.batch_size, SMALL_BATCH[device_of(watched)]
    if size is None or size > most:
        return
    larger = size * (MUCH_LARGER_BATCH if size <= TINY_BATCH else LARGER_BATCH)
    samples = next((one.num_samples for one in watched.loaders if one.is_trained_on), None)
    reason = ""
    if changes_of.first_option(changes_of.BATCH_SIZE_OPTION, source) is None:
        reason = "no_argument"
    elif samples is not None and samples < 2 * larger:
        reason = "few_samples"
    yield Hypothesis(
        limit="batch_size",
        potential=0.7 if size <= most // 2 else 0.4,
        changes=() if reason else (f"batch_size={larger}",),
        number=size,
        reason=reason,
    )


def _threads(
    watched: WatchedRecord, shares: Mapping[str, float], cores: int, update_ms: float
) -> Iterator[Hypothesis]:
    computing = sum(shares.get(name, 0.0) for name in (*COMPUTING, "optimizer", "evaluation"))
    now = watched.threads
    if device_of(watched) != "cpu":
        return
    if now > cores:
        others, saved = tuple(dict.fromkeys((cores, 1))), 0.9
    elif now == 1 and cores > 1:
        others, saved = (cores,), 0.3
    elif now >= MANY_THREADS and update_ms < SHORT_UPDATE_MS:
        others, saved = (max(1, now // 4),), 0.5
    else:
        return
    changes = tuple(f"threads={number}" for number in others)
    yield Hypothesis(limit="threads", potential=saved * computing, changes=changes, number=now)


def _memory(watched: WatchedRecord) -> Iterator[Hypothesis]:
    if (grown := growth(watched)) is None:
        return
    row = max(watched.growing, key=lambda one: one.tensor_bytes, default=None)
    held = row.name if row is not None and row.tensor_bytes >= 0.25 * grown.per_update else ""
    yield Hypothesis(
        limit="memory",
        potential=0.5,
        changes=(f"drop={held}",) if held else (),
        text=held,
        number=grown.per_update,
        reason="" if held else "no_container",
    )


# What the changes that were tried show.


class Timed(NamedTuple):
    """A cell in one bench: what its process measured."""

    cell: str
    cost: CostRecord


def cell_of(change: str) -> str:
    """The id of the cell in which a change is made."""
    return f"change={change}"


def diagnosis_of(
    run: RunFolder,
    watched: WatchedRecord,
    tried: Sequence[Hypothesis],
    others: Sequence[Hypothesis],
    cores: int,
) -> DiagnosisRecord:
    """From the records as they are; `others` were left out."""
    shown = shown_by(run, watched, tried)
    parts = update_parts_ms(watched)
    limits = [_limit(one, shown, NO_TIME) for one in tried]
    limits += [_limit(one, shown, "not_chosen") for one in others]
    loads = [one.cost.load for one in shown.timed]
    # Where nothing was timed, of the run that was watched.
    loads = loads or [one.load for one in run.trials() if one.load is not None]
    return DiagnosisRecord(
        script=run.study().to_study(str(run.study_file)).workload,
        device=device_of(watched),
        num_updates=watched.num_steps,
        update_ms=sum(parts.values()),
        parts_ms=parts,
        cores=cores,
        threads=watched.threads,
        batch_size=watched.batch_size,
        min_gain=MIN_GAIN,
        others_cores=statistics.fmean(one.others_cores for one in loads) if loads else 0.0,
        limits=sorted(limits, key=_rank),
    )


@dataclass(frozen=True)
class Shown:
    """What is known of the changes by now."""

    timed: Sequence[Timed]
    rows: Mapping[str, TriedRow]
    """By change, of those that were timed beside the unchanged script."""
    failures: Mapping[str, str]
    """By cell, why others were not."""


def shown_by(run: RunFolder, watched: WatchedRecord, hypotheses: Sequence[Hypothesis]) -> Shown:
    """From the records as they are."""
    study = run.study().to_study(str(run.study_file))
    assert study.script is not None
    assert study.script.diagnosis is not None
    timed, failures = list[Timed](), dict[str, str]()
    for trial in run.trials():
        if trial.watch == "steps" and trial.state == "done":
            timed.append(Timed(trial.cell, run.trial(trial.id).cost.read()))
        elif trial.watch == "steps" and trial.state == "interrupted":
            failures[trial.cell] = CUT_SHORT
        elif trial.watch == "steps" and trial.error is not None:
            is_unused = trial.error.kind == "UnusedChangeError"
            told = "no_difference" if is_unused else trial.error.message.partition("\n")[0]
            failures[trial.cell] = told
    # Of changes that were timed, where the unchanged script was not.
    why = failures.get(BASE, "few_looks")
    failures = {one.cell: why for one in timed if one.cell != BASE} | failures
    rare = {one.limit for one in hypotheses if is_rare(watched, one.limit)}
    most = study.script.diagnosis.processes
    rows = tried_rows(figures_of(timed), hypotheses, rare, max(1, len(study.cells) - 1), most)
    return Shown(timed, rows, failures)


def _limit(hypothesis: Hypothesis, shown: Shown, why_not: str) -> LimitRow:
    def not_tried(change: str) -> TriedRow:
        default = why_not if change else hypothesis.reason
        reason = shown.failures.get(cell_of(change), default)
        return TriedRow(change=change, is_remedy=False, verdict="not tried", reason=reason)

    rows = [shown.rows.get(one) or not_tried(one) for one in hypothesis.changes or ("",)]
    remedies = [shown.rows[change] for change in hypothesis.remedies if change in shown.rows]
    kept = ("limit", "share", "potential", "line", "text", "number")
    about: dict[str, Any] = {field: getattr(hypothesis, field) for field in kept}
    verdict = min((one.verdict for one in rows), key=RANKS.index)
    return LimitRow(verdict=verdict, tried=[*rows, *remedies], **about)


def _rank(row: LimitRow) -> tuple[int, int, float]:
    """What is shown first: a leak ends a training altogether; a larger batch changes what is learned, and
    comes after what does not."""
    ratios = [one.ratio for one in row.tried if one.ratio is not None and not one.is_remedy]
    gain = 1 - min(ratios) if ratios else row.potential
    return RANKS.index(row.verdict), {"memory": -1, "batch_size": 1}.get(row.limit, 0), -gain


def verdict_of(found: Ratio, gain: float) -> LimitVerdict:
    """Confirmed: at least this gain, and surely some; refuted: surely less than this gain."""
    interval = found.interval
    if interval is None:
        return "cannot tell"
    if found.value <= 1 - gain and interval.high < 1 - SURE_GAIN:
        return "confirmed"
    return "refuted" if interval.low > 1 - gain else "cannot tell"


def processes_needed(found: Ratio, gain: float) -> int | None:
    """About how many of each would decide, were the ratio what it looks like: its interval narrows with the
    root of their number. None where it is decided, or where nothing can be said."""
    ratio, interval = found.value, found.interval
    if interval is None or verdict_of(found, gain) != "cannot tell":
        return None
    least = 1 - gain if ratio > 1 - gain else 1 - SURE_GAIN
    half, distance = math.log(interval.high / ratio), abs(math.log(ratio / least))
    return math.ceil(found.n * (half / distance) ** 2) if distance else None


Figures = Mapping[str, Sequence[tuple[str, str, float]]]
"""Of each process its cell, its bench, and a figure of each kind."""


def tried_rows(
    figures: Figures,
    hypotheses: Sequence[Hypothesis],
    rare: Collection[LimitName],
    num_changes: int,
    most: int,
) -> dict[str, TriedRow]:
    """What each change shows, as of the look that decided it, or the last. There is a look after each
    bench, up to that with `most` processes of the change; what is decided stays so. So that the error holds
    over all looks and all changes, each interval gets an equal part of it."""
    level = LEVEL / (num_changes * max(1, most - 1))
    benches = list(dict.fromkeys(bench for _, bench, _ in figures["usual"]))
    rows: dict[str, TriedRow] = {}
    for place, last in enumerate(benches, 1):
        present = {cell for cell, bench, _ in figures["usual"] if bench == last}
        seen = {
            kind: [one for one in own if one[1] in benches[:place]] for kind, own in figures.items()
        }
        found = {kind: effects(own, BASE, level) for kind, own in seen.items()}
        for hypothesis in hypotheses:
            limit = hypothesis.limit
            kind = "growth" if limit == "memory" else "mean" if limit in rare else "usual"
            for change in (*hypothesis.changes, *hypothesis.remedies):
                effect, before = found[kind].get(cell_of(change)), rows.get(change)
                is_open = before is None or before.verdict == "cannot tell"
                if not is_open or effect is None or cell_of(change) not in present:
                    continue
                about: dict[str, Any] = {"change": change, "processes": effect[2]}
                about["is_remedy"] = change in hypothesis.remedies
                if kind == "growth":
                    own = [size for cell, _, size in seen[kind] if cell == BASE]
                    rows[change] = _growth_row(statistics.fmean(own), effect, about)
                else:
                    gain = LARGER_GAINS.get(limit, MIN_GAIN)
                    rows[change] = _time_row(effect, gain, about)
    return rows


def _time_row(
    effect: tuple[float, float | None, int], gain: float, about: Mapping[str, Any]
) -> TriedRow:
    value, half, n = effect
    interval = None if half is None else Interval(value - half, value + half)
    ratio = ratio_of_logs(value, interval, n)
    ends = ratio.interval
    return TriedRow(
        **about,
        verdict=verdict_of(ratio, gain),
        ratio=ratio.value,
        low=None if ends is None else ends.low,
        high=None if ends is None else ends.high,
        processes_needed=processes_needed(ratio, gain),
    )


def _growth_row(
    before: float, effect: tuple[float, float | None, int], about: Mapping[str, Any]
) -> TriedRow:
    """Of bytes per update: confirmed where most of the growth is gone."""
    value, half, _ = effect
    after = before + value
    verdict: LimitVerdict = "cannot tell"
    if half is not None and before > 0:
        if after - half >= LEAK_SHARE * before:
            verdict = "refuted"
        elif after < LEAK_SHARE * before and -value > half:
            verdict = "confirmed"
    return TriedRow(**about, verdict=verdict, growth_bytes=(before, after))


def figures_of(timed: Sequence[Timed]) -> Figures:
    """Logs of the time per sample over the
    rounds that all processes of a bench share: by its usual turns, which other programs disturb less, and
    by the mean, which counts what happens now and then; and of memory, bytes per update."""
    found: dict[str, list[tuple[str, str, float]]] = {"usual": [], "mean": [], "growth": []}
    for bench, own in grouped(timed, lambda one: one.cost.bench).items():
        times = _rounds_ms([one.cost for one in own])
        for one, turns, usual in zip(own, times, levels(times), strict=True):
            size, memory = math.log(samples_per_update(one.cost)), one.cost.memory
            mean = math.log(statistics.fmean(turns.values()))
            found["usual"].append((one.cell, bench, usual - size))
            found["mean"].append((one.cell, bench, mean - size))
            if len(memory) > 2 and memory[-1][0] > memory[0][0]:
                slope = statistics.linear_regression(*zip(*memory, strict=True)).slope
                found["growth"].append((one.cell, bench, slope))
    return found


def _rounds_ms(costs: Sequence[CostRecord]) -> list[dict[int, float]]:
    """Of each process of a bench the time of an update by round: of rounds that all took part in, quiet
    ones where there are enough; of a process that has none of them, all."""
    rounds = [{turn.round for turn in cost.turns} for cost in costs]
    quiet = [{cost.turns[place].round for place in cost.quiet_turns()} for cost in costs]
    shared = set.intersection(*quiet)
    shared = shared if len(shared) >= MIN_SHARED_ROUNDS else set.intersection(*rounds)
    found = []
    for cost in costs:
        turns = zip(cost.turns, cost.bare_turns_ms(), strict=True)
        times = {turn.round: statistics.fmean(steps) for turn, steps in turns}
        found.append({number: ms for number, ms in times.items() if number in shared} or times)
    return found


def samples_per_update(cost: CostRecord) -> float:
    """On average over a pass: the last batch may be smaller."""
    mean = cost.num_samples / max(1, cost.steps_per_epoch)
    return mean if cost.batch_size / 2 < mean < cost.batch_size else float(cost.batch_size)


# The diagnosis as a document, the answer first.


def diagnosis_document(record: DiagnosisRecord, words: Words) -> Document:
    """The diagnosis as a report of its own."""
    return Document(
        title=words("diagnosis_title", script=record.script),
        subtitle=words("diagnosis_subtitle", **vars(record)),
        lang=words.lang,
        made_by=words("made_by", version=__version__),
        notices=(),
        sections=(Section("answer", words("answer"), tuple(diagnosis_blocks(record, words))),),
    )


def diagnosis_section(data: RunData, words: Words) -> Section | None:
    """What a report of the run begins with."""
    record = data.evidence.diagnosis
    if record is None:
        return None
    watched = words("diagnosis_subtitle", **vars(record)) + words("full_stop")
    blocks = Paragraph(words.tidy(watched.rstrip())), *diagnosis_blocks(record, words)
    return Section("answer", words("answer"), blocks)


def diagnosis_blocks(record: DiagnosisRecord, words: Words) -> Iterator[Block]:
    """The answer first, then the parts of an update, the largest first, and what was tried."""
    for lines, is_lead in ((answer_lines, True), (open_lines, False)):
        if told := tuple(map(document.Statement, lines(record, words))):
            yield document.Statements(told, is_lead)
    named, parts, whole = get_args(PartName), record.parts_ms, record.update_ms
    titles = {p: words(f"limit_name_{p}") if p in named else words.phase(p) for p in parts}
    fields: list[Field[str]] = [
        name(words("column_part"), titles.__getitem__),
        value(words("script_ms"), lambda part: number(parts[part], f"{parts[part]:.3g}")),
        value(words("column_share"), lambda part: share(parts[part] / whole)),
    ]
    note = "" if record.device == "cpu" else words("script_host_note")
    yield table_of(words("parts_table"), fields, sorted(parts, key=lambda part: -parts[part]), note)
    if record.limits:
        yield _tried_table(record, words)
    if record.others_cores > BUSY_CORES:
        yield Paragraph(words("busy_then", others=record.others_cores))


def answer_lines(record: DiagnosisRecord, words: Words) -> Iterator[str]:
    """Each thing that limits the script, its proof and what to do; where nothing is shown to, what may."""
    confirmed = [row for row in record.limits if row.verdict == "confirmed"]
    for row in confirmed:
        proofs = (one for one in row.tried if one.verdict == "confirmed" and not one.is_remedy)
        best = min(proofs, key=lambda one: one.ratio or 1.0)
        key, values = f"limits_{row.limit}", _values(best, words)
        is_other = best.change.startswith("without") and best.change != f"without={row.line}"
        if is_other or not row.potential:
            key = "limits_asked"  # by its name: another statement was seen, or nothing of it
        elif row.limit in ("logging", "between") and not row.text:
            key = f"{key}_unknown"
        yield words(key, **vars(record) | vars(row) | values)
        yield words("proof_time" if best.growth_bytes is None else "proof_memory", **values)
        yield _remedy_text(row, best, words)
    if not confirmed:
        yield from _unconfirmed_lines(record, words)


def _unconfirmed_lines(record: DiagnosisRecord, words: Words) -> Iterator[str]:
    """What may limit it; what does, where all that promised enough was tried, and saves too little."""
    timed = [row for row in record.limits if row.limit != "memory"]
    share = sum(record.parts_ms.get(name, 0.0) for name in COMPUTING) / record.update_ms
    possible = {words(f"limit_name_{row.limit}"): row.share for row in timed if _may_limit(row)}
    if possible or not any(row.verdict == "refuted" for row in timed):
        possible[words("limit_name_compute")] = share
        shares = sorted(possible.items(), key=lambda one: -one[1])
        named = (words("possible_limit", limit=n, share=s) if s else n for n, s in shares)
        yield words("limits_open", limits=words.listed(named))
    else:
        yield words("tried_nothing", gain=record.min_gain)
        yield words("limits_compute" if share >= MOSTLY else "limits_elsewhere", share=share)


def _may_limit(row: LimitRow) -> bool:
    """Whether it could save enough, as far as is known: what looks slower with the change does not."""
    ratios = [one.ratio for one in row.tried if one.ratio is not None and not one.is_remedy]
    is_open = row.verdict in ("cannot tell", "not tried") and row.potential >= MIN_POTENTIAL
    return is_open and min(ratios, default=0.0) < 1


def open_lines(record: DiagnosisRecord, words: Words) -> Iterator[str]:
    """What could not be told, and what would tell it; what was not tried, and why."""
    for row in record.limits:
        limit = words(f"limit_name_{row.limit}")
        one = next(one for one in row.tried if one.verdict == row.verdict)
        if row.verdict == "not tried":
            # What a script raised has no words of ours.
            reason = words.named("reason", one.reason).rstrip(".")
            limit = f"{limit} ({one.change})" if one.change else limit
            yield words("not_tried_limit", limit=limit, reason=reason)
        elif row.verdict == "refuted" and one.growth_bytes:
            yield words("memory_elsewhere", **_values(one, words))
        elif row.verdict == "cannot tell":
            values, needed = _values(one, words), one.processes_needed or math.inf
            key = "open_memory" if one.growth_bytes else "open_limit" if one.low else "open_lone"
            then = "open_needed" if needed <= MOST_ADVISED else "open_quiet"
            yield words.sentences(words(key, limit=limit, **values), words(then, **values))


def suspicion_text(tried: Sequence[Hypothesis], words: Words) -> str:
    """What it looks like before anything was tried."""
    first = next((one for one in tried if one.changes), None)
    if first is None:
        return words("suspected_untried")
    limit = words(f"limit_name_{first.limit}")
    if first.share and first.potential < MIN_GAIN:
        return words("suspected_nothing", limit=limit, share=first.potential)
    named = words("possible_up_to", limit=limit, share=first.potential) if first.share else limit
    return words("suspected", limit=named)


def decided_text(limit: LimitName, one: TriedRow, words: Words) -> str:
    """What was decided about a change, as soon as it is."""
    values = _values(one, words)
    key = "helps" if one.is_remedy and one.verdict == "confirmed" else one.verdict
    told = words(f"decided_{key}", limit=words(f"limit_name_{limit}"))
    if one.ratio is None or one.low is None or one.high is None:
        return words.sentences(told, words("decided_memory", **values))
    values |= {"speed": 1 / one.ratio, "slowest": 1 / one.high, "fastest": 1 / one.low}
    return words.sentences(told, words("decided_time", **values))


def _remedy_text(row: LimitRow, best: TriedRow, words: Words) -> str:
    key, values = f"todo_{row.limit}", {**_values(best, words), "text": row.text}
    for one in row.tried:
        if one.is_remedy and one.ratio and one.low and one.high and one.verdict != "cannot tell":
            key = "remedy_workers" if one.verdict == "confirmed" else f"todo_{row.limit}_alone"
            speed = {"speed": 1 / one.ratio, "low": 1 / one.high, "high": 1 / one.low}
            values = _values(one, words) | speed
    return words(key, **values)


def _values(one: TriedRow, words: Words) -> dict[str, Any]:
    """Of a change, for its sentences: batches of other sizes are compared by sample."""
    name, value = change_parts(one.change)
    change = words(f"change_{name}", value=value)
    unit = words("unit_sample" if name == "batch_size" else "unit_update")
    return vars(one) | {"change": change, "value": value, "unit": unit}


def _tried_table(record: DiagnosisRecord, words: Words) -> Table:
    """A row per change."""
    rows = []
    for row in record.limits:
        of_limit = Entry(f"{100 * row.share:.0f}%" if row.share else "", row.share)
        for one in row.tried:
            ratio = "" if one.ratio is None else f"{one.ratio:.2f}"
            if one.growth_bytes is not None:
                ratio = "{1:.2f} / {0:.2f} MiB".format(*(size / MIB for size in one.growth_bytes))
            interval = "" if one.low is None else f"{one.low:.2f} … {one.high:.2f}"
            key = "helps" if one.is_remedy and one.verdict == "confirmed" else one.verdict
            verdict = Entry(words.named("limit", key.replace(" ", "_")), mark=MARKS[one.verdict])
            told = Entry(words(f"limit_name_{row.limit}")), of_limit, Entry(one.change)
            rows.append((*told, Entry(ratio, one.ratio), Entry(interval, one.low), verdict))
    keys = enumerate(("limit", "share", "change", "ratio", "interval", "verdict"))
    fields = [Field(words(f"column_{key}"), itemgetter(n), n in (3, 4)) for n, key in keys]
    return table_of(words("tried_table"), fields, rows, words("tried_note", gain=record.min_gain))
