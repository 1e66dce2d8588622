"""Diagnosis: what may limit a script, from its record, and what the changes that were tried show.

A hypothesis is a guess with a change that would show it; it is worth trying by how much of the time of an
update it could save.
"""

import math
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, get_args

import numpy as np
from scipy import special

from trainlab import __version__
from trainlab.analysis.document import (
    Block,
    Column,
    Document,
    Entry,
    Mark,
    Paragraph,
    Row,
    Section,
    Statement,
    Statements,
    Table,
)
from trainlab.analysis.finding import RunData
from trainlab.analysis.tables import Field, name, number, share, table_of, value
from trainlab.errors import SpecError
from trainlab.record.cost_record import CostRecord
from trainlab.record.run_folder import RunFolder
from trainlab.record.script_record import (
    DiagnosisRecord,
    LimitName,
    LimitRow,
    LimitVerdict,
    StatementRow,
    TriedRow,
    WatchedRecord,
)
from trainlab.spec.base import did_you_mean
from trainlab.spec.script import (
    CHANGE_NAMES,
    WITH_NUMBER,
    ChangeName,
    batch_size_argument_of,
    change_parts,
)
from trainlab.spec.study import BASE
from trainlab.stats.contrasts import Floats
from trainlab.stats.cost_ratio import CostComparison, compare_costs, levels
from trainlab.words import Words
from trainlab.words.numbers import MIB

FIRST_STEPS = 5
"""What they take is start-up; memory grows in them in any script."""
BETWEEN = ("other", "prepare")
COMPUTING = ("forward", "loss", "backward")
HAVE_FUSED, FUSED_SAVES = ("Adam", "AdamW", "SGD", "Adagrad"), 0.6
"""Optimizers of torch's with fused code, and about how much of their time it saves."""
SMALL_BATCH = {"cpu": 16, "cuda": 64}
"""Batches of up to so many samples may be too small for the device."""
LARGER_BATCH, TINY_BATCH, MUCH_LARGER_BATCH = 4, 4, 8
MANY_THREADS, SHORT_UPDATE_MS = 8, 50.0
"""So many threads, though there are cores for them, may be too many for updates as short as this."""
PURE = 0.8
"""Share of a statement's samples that must lie where it is blamed for."""
ENCLOSING = 0.01
"""Share of them in backward passes and updates from which on it holds the training itself."""
MIN_GROWTH_BYTES, MIN_GROWN_BYTES, MIN_LOOKS = 50_000, 16 * 2**20, 6
STEADY = 0.8
"""Share of the pairs of looks between which memory must have grown."""
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
MIN_BENCHES, MIN_SHARED_ROUNDS = 2, 5
ORDER: Mapping[LimitVerdict, int] = {
    "confirmed": 0,
    "cannot tell": 1,
    "not tried": 2,
    "refuted": 3,
}


def update_parts_ms(record: WatchedRecord) -> dict[str, float]:
    """Milliseconds of an update by part, tests included; what lies between torch's calls is `logging`,
    where something was written, or `between`. Empty where no update was seen."""
    later = [place for place, step in enumerate(record.steps) if step > FIRST_STEPS]
    if not later:
        return {}
    parts = {
        name: statistics.fmean(values[place] for place in later)
        for name, values in record.steps_ms.items()
    }
    between_ms = sum(parts.pop(name, 0.0) for name in BETWEEN)
    writing = record.samples.get("logging", 0)
    share = writing / ((writing + sum(record.samples.get(name, 0) for name in BETWEEN)) or 1)
    parts["between"] = (1 - share) * between_ms
    parts["logging"] = share * between_ms
    parts["evaluation"] = 1e3 * record.parts_s.get("evaluation", 0.0) / record.num_steps
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
    is_rare: bool = False
    """Whether it happens in some updates only: then their mean counts, not the usual one."""


def hypotheses_of(record: WatchedRecord, *, cores: int, source: str) -> tuple[Hypothesis, ...]:
    """The most promising first; `source` is the script's text."""
    parts = update_parts_ms(record)
    total = sum(parts.values())
    shares = {name: ms / total for name, ms in parts.items()}
    found = (
        replace(one, is_rare=_is_rare(record, one.limit))
        for one in (
            *_in_calls(record, shares, cores),
            *_in_script(record, shares),
            *_batch_size(record, source),
            *_threads(record, shares, cores, total),
            *_memory(record),
        )
    )
    return tuple(sorted(found, key=lambda one: -one.potential)) if parts else ()


def _is_rare(record: WatchedRecord, limit: LimitName) -> bool:
    """Whether most of what a limit takes, it takes in few updates."""
    if limit == "evaluation":
        return True
    part = "other" if limit in ("logging", "between") else limit
    times = zip(record.steps, record.steps_ms.get(part, []), strict=False)
    values = [ms for step, ms in times if step > FIRST_STEPS]
    return bool(values) and statistics.median(values) < 0.5 * statistics.fmean(values)


def chosen(found: Sequence[Hypothesis], most: int) -> tuple[Hypothesis, ...]:
    """Those to try: up to so many that promise enough, or the one that promises most; with them what
    would have been tried, but cannot be."""
    can = [one for one in found if one.changes]
    tried = [one for one in can if one.potential >= MIN_POTENTIAL][:most] or can[:1]
    cannot = [one for one in found if not one.changes and one.potential >= MIN_POTENTIAL]
    return tuple(sorted([*tried, *cannot], key=lambda one: -one.potential))


def asked_for(found: Sequence[Hypothesis], asked: Sequence[str]) -> tuple[Hypothesis, ...]:
    """What was asked for by name: a limit, as `data`, or a change, as `threads=1`. SpecError for others."""
    limits = {one.limit: one for one in found}
    names: tuple[LimitName, ...] = get_args(LimitName)
    picked: dict[LimitName, Hypothesis] = {}
    for text in asked:
        if (limit := next((name for name in names if name == text), None)) is not None:
            picked[limit] = limits.get(limit, Hypothesis(limit=limit, reason="not_seen"))
            continue
        if text.partition("=")[0] not in CHANGE_NAMES:
            known = dict.fromkeys((*names, *CHANGE_NAMES))
            rule = f"must be one of {', '.join(known)}{did_you_mean(text, known)}"
            raise SpecError([f"--try: got {text!r}, {rule}"])
        name, value = change_parts(text, "--try")
        if name in WITH_NUMBER and not value.isdecimal():
            raise SpecError([f"--try: got {text!r}, must have a whole number, as {name}=1"])
        limit = LIMIT_OF[name]
        before = picked[limit].changes if limit in picked else ()
        seen = limits.get(limit, Hypothesis(limit=limit))
        picked[limit] = replace(seen, changes=(*before, text), remedies=())
    return tuple(picked.values())


def device_of(record: WatchedRecord) -> str:
    """`cuda` where a model is on a GPU, else `cpu`."""
    return "cuda" if any("cuda" in one.devices for one in record.models) else "cpu"


def _in_calls(
    record: WatchedRecord, shares: Mapping[str, float], cores: int
) -> Iterator[Hypothesis]:
    """What torch's own calls take: the data, their transfer, the optimizer."""
    loaders = [one for one in record.loaders if one.is_trained_on]
    if "data" in shares and loaders:
        workers = loaders[0].num_workers
        is_remedied = cores > 1 and shares["data"] >= REMEDIED
        more = (f"workers={max(2, 2 * workers)}",) if is_remedied else ()
        yield _guess(shares, "data", 1.0, "same_batch", remedies=more, number=workers)
    if "transfer" in shares and not all(one.pin_memory for one in loaders):
        yield _guess(shares, "transfer", 0.5, "pin_memory")
    slow = [one for one in record.optimizers if one.code != "fused"]
    if "optimizer" in shares and slow:
        can = any(one.name in HAVE_FUSED for one in slow)
        found = _guess(shares, "optimizer", FUSED_SAVES, "fused", text=slow[0].name)
        yield found if can else replace(found, changes=(), reason="no_fused_code")


def _in_script(record: WatchedRecord, shares: Mapping[str, float]) -> Iterator[Hypothesis]:
    """What statements of the script take: tests, logging, what lies between torch's calls."""

    def blamed(limit: LimitName, *parts: str) -> tuple[Hypothesis, StatementRow | None]:
        """The statement that is most often seen there, shown by leaving it out."""
        row = _blamed(record, parts)
        if row is None:
            return _guess(shares, limit, 1.0, reason="no_statement"), None
        change = f"without={row.line}"
        return _guess(shares, limit, 1.0, change, line=row.line, text=row.text), row

    if "evaluation" in shares:
        # Tests of several batches are cut to one; of others, the statement is left out.
        found, _ = blamed("evaluation", "evaluation")
        sizes = [one.num_batches or 2 for one in record.loaders if not one.is_trained_on]
        if (most := max(sizes, default=1)) > 1:
            potential = (1 - 1 / most) * found.share
            found = replace(found, potential=potential, changes=("evaluation=1",), reason="")
        yield found
    if "logging" in shares:
        found, _ = blamed("logging", "logging", *BETWEEN)
        yield replace(found, changes=("no_logging",), reason="")
    if "between" in shares:
        found, row = blamed("between", *BETWEEN, "loss")
        if row is not None:
            seen = sum(row.samples.get(name, 0) for name in (*BETWEEN, "loss"))
            part = seen / max(1, sum(record.samples.values()))
            found = replace(found, potential=max(part, min(found.share, part * 2)))
        yield found


def _guess(
    shares: Mapping[str, float], limit: LimitName, saves: float, *changes: str, **more: Any
) -> Hypothesis:
    share, potential = shares[limit], saves * shares[limit]
    return Hypothesis(limit=limit, share=share, potential=potential, changes=changes, **more)


def _blamed(record: WatchedRecord, parts: Collection[str]) -> StatementRow | None:
    """The statement that was under way most often during these parts, and hardly ever otherwise."""

    def seen(row: StatementRow, names: Collection[str] = parts) -> int:
        return sum(row.samples.get(name, 0) for name in names)

    rows = [
        row
        for row in record.statements
        if seen(row) >= PURE * sum(row.samples.values())
        # Only what holds the loop has samples of what every update does.
        and seen(row, ("backward", "optimizer")) <= ENCLOSING * sum(row.samples.values())
        and not ("loss" in parts and row.samples.get("loss", 0) and "loss" in row.text)
    ]
    return max(rows, key=seen, default=None)


def _batch_size(record: WatchedRecord, source: str) -> Iterator[Hypothesis]:
    size, limit = record.batch_size, SMALL_BATCH[device_of(record)]
    if size is None or size > limit:
        return
    larger = size * (MUCH_LARGER_BATCH if size <= TINY_BATCH else LARGER_BATCH)
    samples = next((one.num_samples for one in record.loaders if one.is_trained_on), None)
    reason = ""
    if batch_size_argument_of(source) is None:
        reason = "no_argument"
    elif samples is not None and samples < 2 * larger:
        reason = "few_samples"
    yield Hypothesis(
        limit="batch_size",
        potential=0.7 if size <= limit // 2 else 0.4,
        changes=() if reason else (f"batch_size={larger}",),
        number=size,
        reason=reason,
    )


def _threads(
    record: WatchedRecord, shares: Mapping[str, float], cores: int, update_ms: float
) -> Iterator[Hypothesis]:
    computing = sum(shares.get(name, 0.0) for name in (*COMPUTING, "optimizer", "evaluation"))
    now = record.threads
    if device_of(record) != "cpu":
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
    potential = saved * computing
    yield Hypothesis(
        limit="threads", share=computing, potential=potential, changes=changes, number=now
    )


def _memory(record: WatchedRecord) -> Iterator[Hypothesis]:
    if (growth := growth_bytes(record.memory)) is None:
        return
    row = max(record.growing, key=lambda one: one.tensor_bytes, default=None)
    held = row.name if row is not None and row.tensor_bytes >= 0.25 * growth else ""
    yield Hypothesis(
        limit="memory",
        potential=0.5,
        changes=(f"drop={held}",) if held else (),
        text=held,
        number=growth,
        reason="" if held else "no_container",
    )


def growth_bytes(memory: Sequence[tuple[int, int]]) -> float | None:
    """Bytes per update by which the memory of a process grew, steadily; None where it did not."""
    looks = [look for look in memory if look[0] > FIRST_STEPS]
    looks = looks[len(looks) // 3 :]
    if len(looks) < MIN_LOOKS:
        return None
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(looks, 2) if b[0] > a[0]]
    growth = statistics.median(slopes) if slopes else 0.0
    grown = growth * (looks[-1][0] - looks[0][0])
    steady = sum(slope > 0 for slope in slopes) >= STEADY * len(slopes)
    is_leak = steady and growth >= MIN_GROWTH_BYTES and grown >= MIN_GROWN_BYTES
    return growth if is_leak else None


@dataclass(frozen=True)
class Timed:
    """A cell in one bench: what its process measured."""

    cell: str
    again: bool
    bench: str
    cost: CostRecord


def cell_of(change: str) -> str:
    """The id of the cell in which a change is made."""
    return f"change={change}"


def diagnosis_of(
    run: RunFolder, watched: WatchedRecord, hypotheses: Sequence[Hypothesis], cores: int
) -> DiagnosisRecord:
    """Of a run whose trials have ended."""
    timed, failures = _timed(run)
    parts = update_parts_ms(watched)
    rare = {
        cell_of(change)
        for one in hypotheses
        if one.is_rare
        for change in (*one.changes, *one.remedies)
    }
    found = compared(timed, BASE, rare)
    limits = [_limit(one, timed, found, failures) for one in hypotheses]
    busy = [one.cost.load.others_cores for one in timed]
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
        others_cores=statistics.fmean(busy) if busy else 0.0,
        limits=sorted(limits, key=_rank),
    )


def _timed(run: RunFolder) -> tuple[list[Timed], dict[str, str]]:
    """What was measured, and why cells could not be."""
    timed, failures = list[Timed](), dict[str, str]()
    for trial in run.trials():
        if trial.watch != "steps":
            continue
        if trial.state == "done":
            cost = run.trial(trial.id).cost.read()
            timed.append(Timed(trial.cell, trial.again, cost.bench, cost))
        elif trial.error is None:
            failures.setdefault(trial.cell, "no_time")
        elif trial.error.kind == "UnusedChangeError":
            failures[trial.cell] = "no_difference"
        else:
            failures[trial.cell] = trial.error.message.partition("\n")[0]
    return timed, failures


def _limit(
    hypothesis: Hypothesis,
    timed: Sequence[Timed],
    found: Mapping[str, CostComparison],
    failures: Mapping[str, str],
) -> LimitRow:
    def tried(change: str, *, is_remedy: bool = False) -> TriedRow:
        cell = cell_of(change)
        if hypothesis.limit == "memory" and cell in found:
            return growth_compared(timed, BASE, change, len(found))
        if cell not in found:
            reason = failures.get(cell, "not_chosen") if change else hypothesis.reason
            return TriedRow(change=change, is_remedy=is_remedy, verdict="not tried", reason=reason)
        interval = found[cell].ratio.interval
        return TriedRow(
            change=change,
            is_remedy=is_remedy,
            verdict=verdict_of(found[cell], min_gain(hypothesis.limit)),
            ratio=found[cell].ratio.value,
            low=None if interval is None else interval.low,
            high=None if interval is None else interval.high,
            processes=found[cell].n,
            processes_needed=found[cell].processes_needed,
        )

    shown = [tried(change) for change in hypothesis.changes or ("",)]
    remedies = [
        tried(change, is_remedy=True)
        for change in hypothesis.remedies
        if cell_of(change) in found or cell_of(change) in failures
    ]
    kept = ("limit", "share", "potential", "line", "text", "number")
    return LimitRow(
        verdict=min((one.verdict for one in shown), key=ORDER.__getitem__),
        tried=[*shown, *remedies],
        **{field: getattr(hypothesis, field) for field in kept},
    )


def _rank(row: LimitRow) -> tuple[int, int, float]:
    """What is shown first: a leak ends a training altogether; a larger batch changes what is learned, and
    comes after what does not."""
    is_leak, is_batch = row.limit == "memory", row.limit == "batch_size"
    ratios = [one.ratio for one in row.tried if one.ratio is not None and not one.is_remedy]
    gain = 1 - min(ratios) if ratios else row.potential
    return ORDER[row.verdict], -1 if is_leak else int(is_batch), -gain


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
    ways = sorted({cell in rare for cell in cells})
    rows = [(cell, again, by_mean) for by_mean in ways for cell, again in members]
    places = {row: place for place, row in enumerate(rows)}
    figures = _figures(timed, places)
    pairs = {}
    for cell in cells:
        first, second = places[base, False, cell in rare], places[cell, False, cell in rare]
        if np.isfinite(figures[first] + figures[second]).any():
            pairs[cell] = first, second
    twice = [
        (places[cell, False, by_mean], place)
        for (cell, again, by_mean), place in places.items()
        if again and (cell, False, by_mean) in places
    ]
    return dict(zip(pairs, compare_costs(figures, list(pairs.values()), twice), strict=True))


def _figures(timed: Sequence[Timed], places: Mapping[tuple[str, bool, bool], int]) -> Floats:
    """Logs of the time per sample, over the rounds that all processes of a bench share."""
    benches = list(dict.fromkeys(one.bench for one in timed))
    figures = np.full((len(places), len(benches)), math.nan)
    for column, bench in enumerate(benches):
        members = [one for one in timed if one.bench == bench]
        shared = _shared_rounds([one.cost for one in members])
        times = [_round_ms(one.cost, shared) for one in members]
        for one, own, usual in zip(members, times, levels(times), strict=True):
            size = math.log(samples_per_update(one.cost))
            mean = math.log(statistics.fmean(own.values()))
            for by_mean, level in ((False, usual), (True, mean)):
                if (place := places.get((one.cell, one.again, by_mean))) is not None:
                    figures[place, column] = level - size
    return figures


def _round_ms(cost: CostRecord, shared: Collection[int]) -> dict[int, float]:
    """The time of an update by round, of those rounds; of all where it has none of them."""
    turns = zip(cost.turns, cost.bare_turns_ms(), strict=True)
    times = {turn.round: statistics.fmean(steps) for turn, steps in turns}
    return {number: ms for number, ms in times.items() if number in shared} or times


def _shared_rounds(costs: Sequence[CostRecord]) -> set[int]:
    """Rounds that every process took part in, quiet ones where there are enough."""
    rounds = [{turn.round for turn in cost.turns} for cost in costs]
    quiet = [{cost.turns[place].round for place in cost.quiet_turns()} for cost in costs]
    both = set.intersection(*quiet)
    return both if len(both) >= MIN_SHARED_ROUNDS else set.intersection(*rounds)


def samples_per_update(cost: CostRecord) -> float:
    """On average over a pass: the last batch may be smaller."""
    mean = cost.num_samples / max(1, cost.steps_per_epoch)
    return mean if cost.batch_size / 2 < mean < cost.batch_size else float(cost.batch_size)


def growth_compared(timed: Sequence[Timed], base: str, change: str, num_changes: int) -> TriedRow:
    """Bytes per update in processes of the same benches, without a change and with it: confirmed where
    most of the growth is gone. The error rate is shared by so many changes."""
    slopes = {
        (one.bench, one.cell): slope
        for one in timed
        if not one.again and (slope := process_growth(one.cost.memory)) is not None
    }
    pairs = [
        (slopes[bench, base], slopes[bench, cell_of(change)])
        for bench in dict.fromkeys(one.bench for one in timed)
        if (bench, base) in slopes and (bench, cell_of(change)) in slopes
    ]
    if not pairs:
        return TriedRow(change=change, is_remedy=False, verdict="not tried", reason="few_looks")
    before, after = (statistics.fmean(side) for side in zip(*pairs, strict=True))
    n, saved = len(pairs), [first - second for first, second in pairs]
    verdict: LimitVerdict = "cannot tell"
    if n >= MIN_BENCHES and before > 0:
        quantile = float(special.stdtrit(n - 1, 1 - 0.025 / max(1, num_changes)))
        least = statistics.fmean(saved) - quantile * statistics.stdev(saved) / math.sqrt(n)
        if after >= LEAK_SHARE * before:
            verdict = "refuted"
        elif least > 0:
            verdict = "confirmed"
    return TriedRow(
        change=change,
        is_remedy=False,
        verdict=verdict,
        processes=n,
        growth_bytes=(before, after),
    )


def process_growth(memory: Sequence[tuple[int, int]]) -> float | None:
    """Bytes per update from the first look to the last; None with fewer than three looks."""
    if len(memory) < 3 or memory[-1][0] <= memory[0][0]:
        return None
    steps, sizes = np.array(memory, dtype=float).T
    return statistics.linear_regression(steps, sizes).slope


BUSY_CORES = 0.3
MOST_ADVISED = 30
"""More processes than this nobody will wait for."""
VERDICTS: dict[str, tuple[str, Mark]] = {
    "confirmed": ("limit_confirmed", "different"),
    "refuted": ("limit_refuted", "equivalent"),
    "cannot tell": ("limit_open", "cannot tell"),
    "not tried": ("limit_not_tried", "cannot tell"),
}
REASONS = (
    *("no_time", "not_chosen", "few_looks", "no_difference", "no_fused_code", "no_statement"),
    *("no_argument", "few_samples", "no_container", "not_seen"),
)


def diagnosis_document(record: DiagnosisRecord, words: Words) -> Document:
    """The diagnosis as a report of its own."""
    return Document(
        title=words("diagnosis_title", script=record.script),
        subtitle=_subtitle(record, words),
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
    watched = words.tidy((_subtitle(record, words) + words("full_stop")).rstrip())
    blocks = Paragraph(watched), *diagnosis_blocks(record, words)
    return Section("answer", words("answer"), blocks)


def _subtitle(record: DiagnosisRecord, words: Words) -> str:
    """What was watched."""
    values = {"updates": record.num_updates, "device": record.device, "time": record.update_ms}
    return words("diagnosis_subtitle", **values)


def diagnosis_blocks(record: DiagnosisRecord, words: Words) -> Iterator[Block]:
    """The answer first."""
    yield Statements(tuple(map(Statement, answer_lines(record, words))), is_lead=True)
    if left := tuple(open_lines(record, words)):
        yield Statements(tuple(map(Statement, left)))
    yield _parts_table(record, words)
    if record.limits:
        yield _tried_table(record, words)
    if record.others_cores > BUSY_CORES:
        yield Paragraph(words("busy_then", others=record.others_cores))


def answer_lines(record: DiagnosisRecord, words: Words) -> Iterator[str]:
    """Each thing that limits the script, its proof and what to do; where nothing does, that."""
    confirmed = [row for row in record.limits if row.verdict == "confirmed"]
    for row in confirmed:
        best = min(row.proofs, key=lambda one: 1.0 if one.ratio is None else one.ratio)
        is_unknown = row.limit in ("logging", "between", "memory") and not row.text
        yield words(
            f"limits_{row.limit}" + "_unknown" * is_unknown,
            share=row.share,
            text=row.text,
            line=row.line,
            number=row.number or 0.0,
            cores=record.cores,
        )
        yield _proof_text(best, words)
        yield _remedy_text(row, best, words)
    if not confirmed:
        share = sum(record.parts_ms.get(name, 0.0) for name in COMPUTING) / record.update_ms
        is_open = any(row.verdict == "cannot tell" for row in record.limits)
        yield words("limits_nothing_shown" if is_open else "limits_compute", share=share)
        if any(row.verdict == "refuted" for row in record.limits) and not is_open:
            yield words("tried_nothing", gain=record.min_gain)


def open_lines(record: DiagnosisRecord, words: Words) -> Iterator[str]:
    """What could not be told, and what would tell it; what could not be tried, and why."""
    for row in record.limits:
        limit = words(f"limit_name_{row.limit}")
        one = next((one for one in row.tried if not one.is_remedy), None)
        if one is None:
            continue
        if row.verdict == "not tried":
            # What a script raised is as it was.
            is_known = one.reason in REASONS
            reason = words(f"reason_{one.reason}") if is_known else one.reason.rstrip(".")
            yield words("not_tried_limit", limit=limit, reason=reason)
        if row.verdict != "cannot tell":
            continue
        change = words.capital(_change_text(one.change, words))
        if one.ratio and one.low and one.high:
            ends = {"ratio": one.ratio, "low": one.low, "high": one.high}
            said = words("open_limit", limit=limit, change=change, **ends)
            needed, then = one.processes_needed, words("open_quiet")
            if needed is not None and needed <= MOST_ADVISED:
                then = words("open_needed", processes=needed)
            yield said + words.language.sentence_gap + then
        elif one.growth_bytes is not None:
            before, after = one.growth_bytes
            yield words("open_memory", limit=limit, change=change, before=before, after=after)


def _proof_text(one: TriedRow, words: Words) -> str:
    change, processes = _change_text(one.change, words), one.processes
    if one.growth_bytes is not None:
        before, after = one.growth_bytes
        return words("proof_memory", change=change, before=before, after=after, processes=processes)
    key = "proof_sample" if one.change.startswith("batch_size") else "proof_update"
    ends = {"ratio": one.ratio, "low": one.low, "high": one.high}
    return words(key, change=change, processes=processes, **ends)


def _remedy_text(row: LimitRow, best: TriedRow, words: Words) -> str:
    for one in row.tried:
        if one.is_remedy and one.verdict == "confirmed" and one.ratio and one.low and one.high:
            name, value = change_parts(one.change)
            speed, low, high = 1 / one.ratio, 1 / one.high, 1 / one.low
            return words(f"remedy_{name}", value=value, speed=speed, low=low, high=high)
    _, value = change_parts(best.change)
    return words(f"todo_{row.limit}", text=row.text, value=value)


def _change_text(change: str, words: Words) -> str:
    name, value = change_parts(change)
    return words(f"change_{name}", value=value)


def _parts_table(record: DiagnosisRecord, words: Words) -> Table:
    """The parts of an update, the largest first."""
    named = ("data", "transfer", "optimizer", "evaluation", "logging", "between")
    parts, whole = record.parts_ms, record.update_ms

    def text(part: str) -> str:
        return words(f"limit_name_{part}") if part in named else words.phase(part)

    fields: list[Field[str]] = [
        name(words("column_part"), text),
        value(words("script_ms"), lambda part: number(parts[part], f"{parts[part]:.3g}")),
        value(words("column_share"), lambda part: share(parts[part] / whole)),
    ]
    return table_of(words("parts_table"), fields, sorted(parts, key=lambda part: -parts[part]))


def _tried_table(record: DiagnosisRecord, words: Words) -> Table:
    """A row per change."""

    def entries(row: LimitRow, one: TriedRow) -> tuple[Entry, ...]:
        key, mark = VERDICTS[one.verdict]
        if one.is_remedy and one.verdict in ("confirmed", "refuted"):
            key = key.replace("limit", "remedy", 1)
        ratio = "" if one.ratio is None else f"{one.ratio:.2f}"
        if one.growth_bytes is not None:
            ratio = "{1:.2f} / {0:.2f} MiB".format(*(size / MIB for size in one.growth_bytes))
        has_ends = one.low is not None and one.high is not None
        return (
            Entry(words(f"limit_name_{row.limit}")),
            Entry(f"{100 * row.share:.0f}%" if row.share else "", row.share),
            Entry(one.change),
            Entry(ratio, one.ratio),
            Entry(f"{one.low:.2f} … {one.high:.2f}" if has_ends else "", one.low),
            Entry(words(key), mark=mark),
        )

    keys = (
        *("column_limit", "column_share", "column_change", "column_ratio", "interval"),
        "column_verdict",
    )
    columns = (Column(words(key), key in ("column_ratio", "interval")) for key in keys)
    rows = (Row(entries(row, one)) for row in record.limits for one in row.tried)
    note = words("tried_note", gain=record.min_gain)
    return Table(words("tried_table"), tuple(columns), tuple(rows), note)
