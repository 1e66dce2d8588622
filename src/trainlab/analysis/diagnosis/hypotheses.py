"""What may limit a script, from the record of a run of it: guesses, each with a change that would show it.

A guess is worth trying by how much of the time of an update it could save.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import get_args

from trainlab.analysis.diagnosis.parts import FIRST_STEPS, update_parts_ms
from trainlab.errors import SpecError
from trainlab.record.scripts.diagnosis import LimitName
from trainlab.record.scripts.watched import GrowingRow, StatementRow, WatchedRecord
from trainlab.spec.script import (
    CHANGE_NAMES,
    WITH_NUMBER,
    ChangeName,
    batch_size_argument_of,
    change_parts,
)
from trainlab.spec.suggestion import did_you_mean

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
