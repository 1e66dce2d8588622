"""Diagnosis: what may limit a script, from its record, and what the changes that were tried show."""

import math
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import get_args

import numpy as np
from scipy import special

from trainlab.errors import SpecError
from trainlab.record.cost_record import CostRecord
from trainlab.record.run_folder import RunFolder
from trainlab.record.script_record import (
    DiagnosisRecord,
    GrowingRow,
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
from trainlab.stats.cost_ratio import CostComparison, Floats, compare_costs
from trainlab.stats.rounds import levels

FIRST_STEPS = 5
"""What they take is start-up."""
BETWEEN = ("other", "prepare")


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
    share = _logging_share(record)
    parts["between"] = (1 - share) * between_ms
    parts["logging"] = share * between_ms
    parts["evaluation"] = 1e3 * record.parts_s.get("evaluation", 0.0) / record.num_steps
    return {name: ms for name, ms in parts.items() if ms > 0}


def _logging_share(record: WatchedRecord) -> float:
    """Of what lies between calls, by samples of the script's stack."""
    writing = record.samples.get("logging", 0)
    both = writing + sum(record.samples.get(name, 0) for name in BETWEEN)
    return writing / both if both else 0.0


HAVE_FUSED = ("Adam", "AdamW", "SGD", "Adagrad")
"""Optimizers of torch's with fused code."""
FUSED_SAVES = 0.6
"""Of the optimizer's time, about."""
SMALL_BATCH = {"cpu": 16, "cuda": 64}
"""Batches of up to so many samples may be too small for the device."""
LARGER_BATCH = 4
TINY_BATCH, MUCH_LARGER_BATCH = 4, 8
MANY_THREADS = 8
SHORT_UPDATE_MS = 50.0
"""So many threads, though there are cores for them, may be too many for updates as short as this."""
PURE = 0.8
"""Share of a statement's samples that must lie where it is blamed for."""
ENCLOSING = 0.01
"""Share of them in backward passes and updates from which on it holds the training itself."""
MIN_GROWTH_BYTES = 50_000
MIN_GROWN_BYTES = 16 * 2**20
MIN_LOOKS = 6
STEADY = 0.8
"""Share of the pairs of looks between which memory must have grown."""


@dataclass(frozen=True, kw_only=True)
class Hypothesis:
    """A guess, and what would show whether it is right."""

    limit: LimitName
    share: float
    """Of the time of an update."""
    potential: float
    """Of the time of an update that could be saved; of a leak, how urgent it is."""
    changes: tuple[str, ...]
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
    if not parts:
        return ()
    total = sum(parts.values())
    shares = {name: ms / total for name, ms in parts.items()}
    found = [
        *_data(record, shares, cores),
        *_transfer(record, shares),
        *_optimizer(record, shares),
        *_evaluation(record, shares),
        *_logging(record, shares),
        *_between(record, shares),
        *_batch_size(record, source),
        *_threads(record, shares, cores, total),
        *_memory(record),
    ]
    found = [replace(one, is_rare=_is_rare(record, one.limit)) for one in found]
    return tuple(sorted(found, key=lambda one: -one.potential))


def _is_rare(record: WatchedRecord, limit: LimitName) -> bool:
    """Whether most of what a limit takes, it takes in few updates."""
    if limit == "evaluation":
        return True
    part = "other" if limit in ("logging", "between") else limit
    values = [
        ms
        for step, ms in zip(record.steps, record.steps_ms.get(part, []), strict=False)
        if step > FIRST_STEPS
    ]
    return bool(values) and statistics.median(values) < 0.5 * statistics.fmean(values)


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
        if (asked_limit := next((name for name in names if name == text), None)) is not None:
            none = Hypothesis(
                limit=asked_limit, share=0.0, potential=0.0, changes=(), reason="not_seen"
            )
            picked[asked_limit] = limits.get(asked_limit, none)
            continue
        if text.partition("=")[0] not in CHANGE_NAMES:
            known_names = (*names, *(name for name in CHANGE_NAMES if name not in names))
            hint = did_you_mean(text, known_names)
            rule = f"must be one of {', '.join(known_names)}"
            raise SpecError([f"--try: got {text!r}, {rule}{hint}"])
        name, value = change_parts(text, "--try")
        if name in WITH_NUMBER and not value.isdecimal():
            raise SpecError([f"--try: got {text!r}, must have a whole number, as {name}=1"])
        limit = LIMIT_OF[name]
        known = limits.get(limit, Hypothesis(limit=limit, share=0.0, potential=0.0, changes=()))
        before = picked[limit].changes if limit in picked else ()
        picked[limit] = replace(known, changes=(*before, text), remedies=())
    return tuple(picked.values())


def device_of(record: WatchedRecord) -> str:
    """`cuda` where a model is on a GPU, else `cpu`."""
    return "cuda" if any("cuda" in one.devices for one in record.models) else "cpu"


def _data(record: WatchedRecord, shares: dict[str, float], cores: int) -> Iterator[Hypothesis]:
    loader = next((one for one in record.loaders if one.is_trained_on), None)
    share = shares.get("data", 0.0)
    if loader is None or not share:
        return
    more = max(2, 2 * loader.num_workers)
    remedies = (f"workers={more}",) if cores > 1 and share >= REMEDIED else ()
    yield Hypothesis(
        limit="data",
        share=share,
        potential=share,
        changes=("same_batch",),
        remedies=remedies,
        number=loader.num_workers,
    )


def _transfer(record: WatchedRecord, shares: dict[str, float]) -> Iterator[Hypothesis]:
    share = shares.get("transfer", 0.0)
    if share and any(one.is_trained_on and not one.pin_memory for one in record.loaders):
        yield Hypothesis(
            limit="transfer", share=share, potential=0.5 * share, changes=("pin_memory",)
        )


def _optimizer(record: WatchedRecord, shares: dict[str, float]) -> Iterator[Hypothesis]:
    share = shares.get("optimizer", 0.0)
    slow = [one for one in record.optimizers if one.code != "fused"]
    if not share or not slow:
        return
    can = any(one.name in HAVE_FUSED for one in slow)
    yield Hypothesis(
        limit="optimizer",
        share=share,
        potential=FUSED_SAVES * share,
        changes=("fused",) if can else (),
        text=slow[0].name,
        reason="" if can else "no_fused_code",
    )


def _evaluation(record: WatchedRecord, shares: dict[str, float]) -> Iterator[Hypothesis]:
    share = shares.get("evaluation", 0.0)
    if not share:
        return
    sizes = [one.num_batches or 2 for one in record.loaders if not one.is_trained_on]
    row = _blamed(record, ("evaluation",))
    changes: tuple[str, ...]
    if (most := max(sizes, default=1)) > 1:
        saved, changes, reason = 1 - 1 / most, ("evaluation=1",), ""
    elif row is not None:
        saved, changes, reason = 1.0, (f"without={row.line}",), ""
    else:
        saved, changes = 1.0, ()
        reason = "no_statement"
    yield Hypothesis(
        limit="evaluation",
        share=share,
        potential=saved * share,
        changes=changes,
        line=None if row is None else row.line,
        text="" if row is None else row.text,
        reason=reason,
    )


def _logging(record: WatchedRecord, shares: dict[str, float]) -> Iterator[Hypothesis]:
    row = _blamed(record, ("logging", "other", "prepare"))
    if share := shares.get("logging", 0.0):
        yield Hypothesis(
            limit="logging",
            share=share,
            potential=share,
            changes=("no_logging",),
            line=None if row is None else row.line,
            text="" if row is None else row.text,
        )


def _between(record: WatchedRecord, shares: dict[str, float]) -> Iterator[Hypothesis]:
    share = shares.get("between", 0.0)
    row = _blamed(record, ("other", "prepare", "loss"))
    if not share:
        return
    if row is None:
        yield Hypothesis(
            limit="between", share=share, potential=share, changes=(), reason="no_statement"
        )
        return
    seen = sum(row.samples.get(name, 0) for name in ("other", "prepare", "loss"))
    part = seen / max(1, sum(record.samples.values()))
    yield Hypothesis(
        limit="between",
        share=share,
        potential=max(part, min(share, part * 2)),
        changes=(f"without={row.line}",),
        line=row.line,
        text=row.text,
    )


def _blamed(record: WatchedRecord, parts: tuple[str, ...]) -> StatementRow | None:
    """The statement that was under way most often during these parts, and hardly ever otherwise."""

    def seen(row: StatementRow) -> int:
        return sum(row.samples.get(name, 0) for name in parts)

    rows = [
        row
        for row in record.statements
        if seen(row) >= PURE * sum(row.samples.values())
        and _trained(row) <= ENCLOSING * sum(row.samples.values())
        and not ("loss" in parts and row.samples.get("loss", 0) and "loss" in row.text)
    ]
    return max(rows, key=seen, default=None)


def _trained(row: StatementRow) -> int:
    """Samples of what every update does: only what holds the loop has them."""
    return row.samples.get("backward", 0) + row.samples.get("optimizer", 0)


def _batch_size(record: WatchedRecord, source: str) -> Iterator[Hypothesis]:
    size, limit = record.batch_size, SMALL_BATCH[device_of(record)]
    if size is None or size > limit:
        return
    larger = size * (MUCH_LARGER_BATCH if size <= TINY_BATCH else LARGER_BATCH)
    loader = next((one for one in record.loaders if one.is_trained_on), None)
    samples = None if loader is None else loader.num_samples
    has_argument = batch_size_argument_of(source) is not None
    fits = samples is None or samples >= 2 * larger
    reason = "" if has_argument else "no_argument"
    if has_argument and not fits:
        reason = "few_samples"
    yield Hypothesis(
        limit="batch_size",
        share=0.0,
        potential=0.7 if size <= limit // 2 else 0.4,
        changes=(f"batch_size={larger}",) if has_argument and fits else (),
        number=size,
        reason=reason,
    )


def _threads(
    record: WatchedRecord, shares: dict[str, float], cores: int, update_ms: float
) -> Iterator[Hypothesis]:
    computing = sum(
        shares.get(name, 0.0) for name in ("forward", "loss", "backward", "optimizer", "evaluation")
    )
    now, on_cpu = record.threads, device_of(record) == "cpu"
    changes: tuple[str, ...] = ()
    if now > cores and on_cpu:
        changes, saved = tuple(dict.fromkeys((f"threads={cores}", "threads=1"))), 0.9
    elif now == 1 and cores > 1 and on_cpu:
        changes, saved = (f"threads={cores}",), 0.3
    elif now >= MANY_THREADS and update_ms < SHORT_UPDATE_MS and on_cpu:
        changes, saved = (f"threads={max(1, now // 4)}",), 0.5
    if changes:
        yield Hypothesis(
            limit="threads",
            share=computing,
            potential=saved * computing,
            changes=changes,
            number=now,
        )


def _memory(record: WatchedRecord) -> Iterator[Hypothesis]:
    growth = growth_bytes(record.memory)
    if growth is None:
        return
    row = max(record.growing, key=lambda one: one.tensor_bytes, default=None)
    found = row is not None and row.tensor_bytes >= 0.25 * growth
    yield Hypothesis(
        limit="memory",
        share=0.0,
        potential=0.5,
        changes=(f"drop={_name(row)}",) if found else (),
        text=_name(row) if found else "",
        number=growth,
        reason="" if found else "no_container",
    )


def _name(row: GrowingRow | None) -> str:
    return "" if row is None else row.name


def growth_bytes(memory: list[tuple[int, int]]) -> float | None:
    """Bytes per update by which the memory of a process grew, steadily; None where it did not."""
    looks = [look for look in memory if look[0] > FIRST_LOOKS_AT]
    looks = looks[len(looks) // 3 :]
    if len(looks) < MIN_LOOKS:
        return None
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(looks, 2) if b[0] > a[0]]
    growth = statistics.median(slopes) if slopes else 0.0
    grown = growth * (looks[-1][0] - looks[0][0])
    steady = sum(slope > 0 for slope in slopes) >= STEADY * len(slopes)
    is_leak = steady and growth >= MIN_GROWTH_BYTES and grown >= MIN_GROWN_BYTES
    return growth if is_leak else None


FIRST_LOOKS_AT = 5
"""Memory at the first updates grows in any script."""


MIN_GAIN = 0.10
"""Saving less of the time of an update does not make something a limit."""
LARGER_GAINS: Mapping[str, float] = {"batch_size": 0.40, "threads": 0.15}
"""A larger batch is nearly always cheaper per sample, and the best number of threads is rarely the one that
is used: only a large gain counts."""
SURE_GAIN = 0.03
"""The whole interval must lie beyond this."""
LEAK_SHARE = 0.5
"""A container holds what leaks if without it memory grows by less than this share."""
MIN_BENCHES = 2


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


@dataclass(frozen=True)
class Timed:
    """A cell in one bench: what its process measured."""

    cell: str
    again: bool
    bench: str
    cost: CostRecord


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
    rows = [(cell, again, by_mean) for by_mean in (False, True) for cell, again in members]
    if not any(cell in rare for cell in cells):
        rows = [row for row in rows if not row[2]]
    elif all(cell in rare for cell in cells):
        rows = [row for row in rows if row[2]]
    figures, places = _figures(timed, rows), {row: place for place, row in enumerate(rows)}
    pairs = {
        cell: (places[base, False, cell in rare], places[cell, False, cell in rare])
        for cell in cells
    }
    twice = [
        (places[cell, False, by_mean], place)
        for (cell, again, by_mean), place in places.items()
        if again and (cell, False, by_mean) in places
    ]
    usable = {cell: pair for cell, pair in pairs.items() if _num_shared(figures, pair)}
    found = compare_costs(figures, list(usable.values()), twice)
    return dict(zip(usable, found, strict=True))


def _num_shared(figures: Floats, pair: tuple[int, int]) -> int:
    return int(np.isfinite(figures[pair[0]] + figures[pair[1]]).sum())


def _figures(timed: Sequence[Timed], rows: Sequence[tuple[str, bool, bool]]) -> Floats:
    """Logs of the time per sample, over the rounds that all processes of a bench share."""
    benches = list(dict.fromkeys(one.bench for one in timed))
    figures = np.full((len(rows), len(benches)), math.nan)
    for column, bench in enumerate(benches):
        members = [one for one in timed if one.bench == bench]
        shared = _shared_rounds([one.cost for one in members])
        times = [_round_ms(one.cost, shared) for one in members]
        usual = levels(times)
        for one, own, level in zip(members, times, usual, strict=True):
            size = math.log(samples_per_update(one.cost))
            by_mean = math.log(statistics.fmean(own.values()))
            for row, value in (
                ((one.cell, one.again, False), level),
                ((one.cell, one.again, True), by_mean),
            ):
                if row in rows:
                    figures[rows.index(row), column] = value - size
    return figures


def _round_ms(cost: CostRecord, shared: Collection[int]) -> dict[int, float]:
    """The time of an update by round, of those rounds; of all where it has none of them."""
    times = dict(zip((turn.round for turn in cost.turns), _turn_ms(cost), strict=True))
    return {number: ms for number, ms in times.items() if number in shared} or times


def _turn_ms(cost: CostRecord) -> list[float]:
    return [statistics.fmean(steps) for steps in cost.bare_turns_ms()]


def _shared_rounds(costs: Sequence[CostRecord]) -> set[int]:
    """Rounds that every process took part in, quiet ones where there are enough."""
    rounds = [{turn.round for turn in cost.turns} for cost in costs]
    quiet = [{cost.turns[place].round for place in cost.quiet_turns()} for cost in costs]
    both = set.intersection(*quiet)
    return both if len(both) >= MIN_SHARED_ROUNDS else set.intersection(*rounds)


MIN_SHARED_ROUNDS = 5


def samples_per_update(cost: CostRecord) -> float:
    """On average over a pass: the last batch may be smaller."""
    mean = cost.num_samples / max(1, cost.steps_per_epoch)
    return mean if cost.batch_size / 2 < mean < cost.batch_size else float(cost.batch_size)


@dataclass(frozen=True)
class GrowthComparison:
    """How memory grows without a change and with it."""

    before_bytes: float
    after_bytes: float
    n: int
    is_less: bool
    """Whether it surely grows by less."""

    @property
    def verdict(self) -> LimitVerdict:
        """Confirmed where most of the growth is gone."""
        if self.n < MIN_BENCHES or self.before_bytes <= 0:
            return "cannot tell"
        is_gone = self.after_bytes < LEAK_SHARE * self.before_bytes
        if self.is_less and is_gone:
            return "confirmed"
        return "cannot tell" if is_gone else "refuted"


def growth_compared(
    timed: Sequence[Timed], base: str, cell: str, num_changes: int
) -> GrowthComparison | None:
    """Bytes per update in processes of the same benches; the error rate is shared by so many changes."""
    slopes: dict[tuple[str, str], float] = {}
    for one in timed:
        slope = process_growth(one.cost.memory)
        if not one.again and slope is not None:
            slopes[one.bench, one.cell] = slope
    pairs = [
        (slopes[bench, base], slopes[bench, cell])
        for bench in dict.fromkeys(one.bench for one in timed)
        if (bench, base) in slopes and (bench, cell) in slopes
    ]
    if not pairs:
        return None
    saved = [before - after for before, after in pairs]
    n, mean = len(saved), statistics.fmean(saved)
    is_less = False
    if n >= MIN_BENCHES:
        quantile = float(special.stdtrit(n - 1, 1 - 0.025 / max(1, num_changes)))
        is_less = mean - quantile * statistics.stdev(saved) / math.sqrt(n) > 0
    befores, afters = zip(*pairs, strict=True)
    return GrowthComparison(statistics.fmean(befores), statistics.fmean(afters), n, is_less)


def process_growth(memory: Sequence[tuple[int, int]]) -> float | None:
    """Bytes per update from the first look to the last; None with fewer than three looks."""
    if len(memory) < 3 or memory[-1][0] <= memory[0][0]:
        return None
    steps = np.array([step for step, _ in memory], dtype=float)
    sizes = np.array([size for _, size in memory], dtype=float)
    centred = steps - steps.mean()
    return float((centred * sizes).sum() / (centred**2).sum())


ORDER: Mapping[LimitVerdict, int] = {
    "confirmed": 0,
    "cannot tell": 1,
    "not tried": 2,
    "refuted": 3,
}


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
    study = run.study().to_study(str(run.study_file))
    busy = [one.cost.load.others_cores for one in timed]
    return DiagnosisRecord(
        script=study.workload,
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
    def tried(change: str, *, is_remedy: bool) -> TriedRow:
        cell = cell_of(change)
        if hypothesis.limit == "memory" and cell in found:
            return _growth_row(change, timed, len(found))
        if cell in found:
            return _row(change, found[cell], min_gain(hypothesis.limit), is_remedy)
        reason = failures.get(cell, "not_chosen")
        return TriedRow(change=change, is_remedy=is_remedy, verdict="not tried", reason=reason)

    shown = [tried(change, is_remedy=False) for change in hypothesis.changes]
    if not hypothesis.changes:
        shown = [
            TriedRow(change="", is_remedy=False, verdict="not tried", reason=hypothesis.reason)
        ]
    remedies = [
        tried(change, is_remedy=True)
        for change in hypothesis.remedies
        if cell_of(change) in found or cell_of(change) in failures
    ]
    return LimitRow(
        limit=hypothesis.limit,
        share=hypothesis.share,
        potential=hypothesis.potential,
        verdict=min((one.verdict for one in shown), key=ORDER.__getitem__),
        tried=[*shown, *remedies],
        line=hypothesis.line,
        text=hypothesis.text,
        number=hypothesis.number,
    )


def _row(change: str, found: CostComparison, gain: float, is_remedy: bool) -> TriedRow:
    interval = found.ratio.interval
    return TriedRow(
        change=change,
        is_remedy=is_remedy,
        verdict=verdict_of(found, gain),
        ratio=found.ratio.value,
        low=None if interval is None else interval.low,
        high=None if interval is None else interval.high,
        processes=found.n,
        processes_needed=found.processes_needed,
    )


def _growth_row(change: str, timed: Sequence[Timed], num_changes: int) -> TriedRow:
    found = growth_compared(timed, BASE, cell_of(change), num_changes)
    if found is None:
        return TriedRow(change=change, is_remedy=False, verdict="not tried", reason="few_looks")
    return TriedRow(
        change=change,
        is_remedy=False,
        verdict=found.verdict,
        processes=found.n,
        growth_bytes=(found.before_bytes, found.after_bytes),
    )


def _rank(row: LimitRow) -> tuple[int, int, float]:
    """What is shown first: a leak ends a training altogether; a larger batch changes what is learned, and
    comes after what does not."""
    is_leak, is_batch = row.limit == "memory", row.limit == "batch_size"
    ratios = [one.ratio for one in row.tried if one.ratio is not None and not one.is_remedy]
    gain = 1 - min(ratios) if ratios else row.potential
    return ORDER[row.verdict], -1 if is_leak else int(is_batch), -gain
