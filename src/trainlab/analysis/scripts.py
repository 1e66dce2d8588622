"""A script that was watched: where its time went, what grows, what it repeats, what it uses."""

import math
import shlex
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from operator import itemgetter
from pathlib import PurePath
from typing import Any, Literal, NamedTuple

from trainlab.analysis.charts import bar_figure
from trainlab.analysis.document import Block, Entry, Paragraph, Section, Table
from trainlab.analysis.energy import energy_of_runs, script_energy_table
from trainlab.analysis.evidence import Evidence, grouped
from trainlab.analysis.finding import (
    MOST_CELLS,
    Finding,
    Kind,
    RunData,
    by_importance,
    level_name,
)
from trainlab.analysis.tables import (
    Field,
    Parts,
    bullets,
    name,
    part_columns,
    part_of,
    table_of,
    value,
)
from trainlab.record.script_record import WatchedRecord
from trainlab.spec.facts import AS_OBJECT
from trainlab.spec.script import ScriptSpec
from trainlab.spec.study import BASE, level_text, short_name
from trainlab.words import Words
from trainlab.words.numbers import MIB, figure, percent

STARTUP, FIRST_STEP, EVALUATION = "startup", "first_step", "evaluation"
INFERENCE = "inference"
"""Passes that no training follows and that nothing tells to be a test."""
ORDER = (
    *(STARTUP, FIRST_STEP, "data", "transfer", "prepare", "zero_grad", "forward", "loss"),
    *("backward", "optimizer", "train_step", INFERENCE, EVALUATION, "other"),
)
"""The parts as they are listed."""
HOST_PARTS = ("data", "transfer", "prepare", "other")
"""Parts whose time is that of the host, on any device."""
COUNTED_PARTS = (*HOST_PARTS, "zero_grad", "loss", "optimizer")
NOTABLE_OF_RUN = {EVALUATION: 0.2, INFERENCE: 0.2, STARTUP: 0.3}
"""From this share of a run on, a part is worth a sentence."""
NOTABLE_OF_STEP = 0.25
"""From this share of a step on, a part other than the passes themselves is worth a sentence."""
EACH_STEP = 0.9
"""What is done so often in a step is done in each."""
FEW_SAMPLES = {"cpu": 4, "cuda": 16}
"""Batches of up to so many keep no device busy."""
MOST_SO_FAR = 3
"""Lines of what was seen so far;"""
MOST_PARTS = 4
"""and parts of a step that are named in it."""
LEAST_OTHER = 0.01
"""Of the run: less counts as training."""
LEAST_S = 1e-8
"""What is left of a part of one step alone is no more, by rounding."""
FEWEST_LOOKS = 9
NUM_STRETCHES = 4
EVEN = 0.5
"""Every quarter must have at least this share of the mean growth of a quarter."""
LEAST_BYTES = 16 << 20
LEAST_SHARE = 0.03
"""Of the memory at first, that it must have grown by."""
MIN_UPDATES = 3
"""The first loss is the same whatever is varied."""
IN_ORDER = "in order"
MOST_COLUMNS = 4
"""Settings side by side; of more, each has a row of its own."""

Cut = Literal["", "interrupted", "failed"]
"""How runs ended that did not come to their end."""


@dataclass(frozen=True)
class ScriptTimes:
    """The runs of one cell that came to their end, in the order of their seeds; or those that did not,
    where the study has no other."""

    cell: str
    runs: tuple[WatchedRecord, ...]
    is_on_cpu: bool
    """Elsewhere calls return before their work is done: parts of a step do not say what takes it."""
    num_processes: int
    """That torchrun started for each run; the records are those of the first."""
    cut: Cut

    @property
    def is_of_keras(self) -> bool:
        """Whether another framework than torch alone was trained with."""
        return any(run.framework for run in self.runs)

    @cached_property
    def parts_s(self) -> dict[str, float]:
        """Seconds by part, means over runs, so that they add up to the mean of the whole."""
        return _mean_parts([whole_parts_s(run) for run in self.runs])

    @cached_property
    def step_parts_ms(self) -> dict[str, float]:
        """Of a typical step, means over runs, so that they add up; empty where no run made two updates."""
        means = _mean_parts([parts for run in self.runs if (parts := typical_step_ms(run))])
        return {part: ms for part, ms in means.items() if ms}


def _mean_parts(by_run: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = [name for name in ORDER if any(name in parts for parts in by_run)]
    return {name: statistics.fmean(parts.get(name, 0.0) for parts in by_run) for name in names}


def script_times(evidence: Evidence) -> list[ScriptTimes]:
    """By cell, in the order asked; those of which no run came to its end are left out, unless there is no
    other to compare them with: then of the runs that were cut short, or that failed with a step to show."""
    script, found = evidence.study.script, list[ScriptTimes]()
    cuts: tuple[Cut, ...] = ("", "interrupted", "failed") if len(evidence.cells) == 1 else ("",)
    for cut in cuts:
        if found:
            break
        for cell in evidence.cells:
            ended = [
                (one.watched, one.trial)
                for _, one in sorted(evidence.learned.get(cell.id, {}).items())
                if one.watched is not None and one.trial.state == (cut or "done")
                if cut != "failed" or one.watched.num_steps
            ]
            runs = tuple(run for run, _ in ended)
            is_on_cpu = all(trial.resolved.get("device", "cpu") == "cpu" for _, trial in ended)
            num_processes = 1 if script is None else script.processes
            found += [ScriptTimes(cell.id, runs, is_on_cpu, num_processes, cut)] if runs else []
    return found


def whole_parts_s(run: WatchedRecord) -> dict[str, float]:
    """All time of a run by part, the first step apart from the others."""
    first_s = {name: steps[0] / 1e3 for name, steps in run.steps_ms.items() if run.steps[:1] == [1]}
    parts = {name: spent for name, spent in run.parts_s.items() if name != STARTUP}
    rest = {name: spent - first_s.get(name, 0.0) for name, spent in parts.items()}
    rest = {name: spent for name, spent in rest.items() if spent > LEAST_S}
    apart = sum(parts.values()) - sum(rest.values())
    started = {STARTUP: run.parts_s[STARTUP]} if STARTUP in run.parts_s else {}
    return started | ({FIRST_STEP: apart} if apart else {}) | rest


def later_steps_ms(run: WatchedRecord) -> list[dict[str, float]]:
    """Milliseconds by part, of each step after the first."""
    steps = zip(*run.steps_ms.values(), strict=True)
    found = [dict(zip(run.steps_ms, parts, strict=True)) for parts in steps]
    return found[1:] if run.steps[:1] == [1] else found


def typical_step_ms(run: WatchedRecord) -> dict[str, float]:
    """By part, the mean over the middle fifth of the steps after the first by how long they took: the parts
    add up to about the median step, whatever others were held up by. Empty where there is none."""
    steps = sorted(later_steps_ms(run), key=lambda parts: sum(parts.values()))
    middle = steps[2 * len(steps) // 5 : len(steps) - 2 * len(steps) // 5]
    names = run.steps_ms if middle else ()
    return {name: statistics.fmean(parts[name] for parts in middle) for name in names}


class Growth(NamedTuple):
    """Of the memory of a process: the first update and the last, and the bytes then."""

    first_step: int
    first: int
    last_step: int
    last: int

    @property
    def per_update(self) -> float:
        """In bytes."""
        return (self.last - self.first) / (self.last_step - self.first_step)


def growth(run: WatchedRecord) -> Growth | None:
    """Where memory has grown in every quarter of the run, about evenly; None otherwise. What is taken once,
    at the first test say, is no growth. The first tenth is left out: memory fills at first."""
    looks = run.memory[len(run.memory) // 10 :]
    if len(looks) < FEWEST_LOOKS or looks[0][0] == looks[-1][0]:
        return None
    ends = [looks[(len(looks) - 1) * n // NUM_STRETCHES] for n in range(NUM_STRETCHES + 1)]
    grown = [after[1] - before[1] for before, after in pairwise(ends)]
    whole = ends[-1][1] - ends[0][1]
    least = EVEN * whole / NUM_STRETCHES
    if whole < max(LEAST_BYTES, LEAST_SHARE * ends[0][1]) or min(grown) < least:
        return None
    return Growth(*ends[0], *ends[-1])


def _where(one: Finding, words: Words) -> dict[str, object]:
    """In which cells, unless it is all of the study: one cell needs no name."""
    is_all = len(one.cells) == one.num_cells
    return {"where": "" if is_all else words("script_where", cell=words.listed(one.cells))}


def _ranged(one: Finding, words: Words, low: str, high: str) -> str:
    """The range over the seeds, where there are several."""
    return words("script_range", low=low, high=high, seeds=one.n) if one.n > 1 else ""


def script_whole(one: Finding, words: Words) -> str:
    """The first sentence about the time of a script alone."""
    range_text = _ranged(one, words, figure(one.low_s), figure(one.high_s))
    if one.is_of_others:
        return one.fill(words, "script_time_others", range=range_text)
    if not one.cut and not one.num_updates:
        return one.fill(words, "script_time_no_updates", range=range_text)
    parts = [words("script_starting", share=percent(one.startup_share))]
    other_share = one.other_share if one.other_share >= LEAST_OTHER else 0.0
    if one.num_updates:
        training_share = one.training_share - other_share
        parts.append(words("script_training", share=percent(training_share)))
    if one.evaluation_share:
        parts.append(words("script_testing", share=percent(one.evaluation_share)))
    if other_share:
        parts.append(words("script_other", share=percent(other_share)))
    key = f"script_time_{one.cut}" if one.cut else "script_time"
    updates = words.counted("one_update", "num_updates", one.num_updates)
    return one.fill(words, key, range=range_text, parts=words.listed(parts), updates=updates)


def _time_text(one: Finding, words: Words) -> str:
    steps = "" if one.step_ms is None else one.fill(words, "script_steps")
    own = one.fill(words, "script_instruments") if one.instruments_s else ""
    return words.sentences(script_whole(one, words), steps, one.fill(words, "script_watching"), own)


def _part_text(one: Finding, words: Words) -> str:
    range_text = _ranged(one, words, percent(one.low), percent(one.high))
    key = f"script_part_{one.subject}" if one.of == "run" else "script_part_step"
    if one.of == "step" and one.subject in ("data", "optimizer", "other"):
        key = f"script_step_{one.subject}"
        key += "_keras" if one.subject == "other" and one.is_of_keras else ""
    return one.fill(words, key, range=range_text, part=words.capital(words.phase(one.subject)))


def _order_text(one: Finding, words: Words) -> str:
    return one.fill(words, "script_order" if one.num_passes > 1 else "script_order_once")


def _kind(
    name: str,
    rank: int,
    statement: Callable[[Finding, Words], str] | None = None,
    weight: Callable[[Finding], float] | None = None,
) -> Kind:
    return Kind(name, "script", rank, statement=statement, phrases=_where, weight=weight)


def _same_text(one: Finding, words: Words) -> str:
    return one.fill(words, "script_same", argument=short_name(one.subject))


def _seeds_text(one: Finding, words: Words) -> str:
    return one.fill(words, "script_seeds" if one.num_different == 1 else "script_seeds_some")


def _memory_text(one: Finding, words: Words) -> str:
    return one.fill(words, "script_memory_seeds" if one.n > 1 else "script_memory")


SCRIPT_SAME = _kind("script_same", 1, _same_text, lambda one: len(one.cells))
"""Settings that differ in one argument, and were all trained alike to the last bit."""
SCRIPT_SEEDS = _kind("script_seeds", 1, _seeds_text)
"""Seeds that the script does not heed: so many runs of each setting are different."""
SCRIPT_MEMORY = _kind("script_memory", 2, _memory_text, lambda one: one.last_mib - one.first_mib)
"""Memory that keeps growing with the updates."""
SCRIPT_TIME = _kind("script_time", 3, _time_text, lambda one: float(one.wall_s))
"""How long the script ran, what of it was training, and what watching took (beside the whole)."""
SCRIPT_PART = _kind("script_part", 4, _part_text, lambda one: float(one.share))
"""A part that takes a large share of the `run` or of its `step`s: seconds, or milliseconds of a typical
step."""
SCRIPT_ENERGY = _kind(
    "script_energy",
    6,
    lambda one, words: one.fill(words, "script_energy" if one.sample_mj else "script_power"),
    lambda one: one.sample_mj or one.epoch_j,
)
"""What the GPU took from the first update on: per epoch, per sample where that is known, and on average."""
SCRIPT_BATCH = _kind("script_batch", 6)
"""Batches so small that a step of them costs nearly as much as one of larger ones."""
SCRIPT_READS = _kind("script_reads", 7, None, lambda one: float(one.share))
"""A line that reads a number from a tensor in each step: on a GPU that waits for all work before it."""
SCRIPT_ORDER = _kind("script_order", 5, _order_text)
"""Training data that no loader shuffles."""


def script_findings(evidence: Evidence) -> Iterator[Finding]:
    """Of each cell, in the order asked; then of what was repeated."""
    all_times, num_cells = script_times(evidence), len(evidence.cells)
    for times in all_times:
        shared = {"cells": (times.cell,), "num_cells": num_cells}
        yield SCRIPT_TIME(subject="script", n=len(times.runs), **shared, **_time(times))
        # Of a run that was cut short its parts say when that was; of one that waits for others, nothing.
        is_told = not times.cut and not any(run.is_of_others for run in times.runs)
        for part, least in NOTABLE_OF_RUN.items() if is_told else ():
            shares = [run.parts_s.get(part, 0.0) / (run.wall_s or 1.0) for run in times.runs]
            spent_s = statistics.median(run.parts_s.get(part, 0.0) for run in times.runs)
            yield from _part(part, "run", shares, least, spent_s, shared)
        yield from _of_steps(times, shared)
    yield from _orders(all_times, num_cells)
    yield from _same_losses(evidence)
    # Cells with runs that are the same, those with as many together.
    repeated = (
        (len(evidence.learned[cell.id]), len(evidence.repeats[cell.id]), cell.id)
        for cell in evidence.cells
        if cell.id in evidence.repeats
    )
    for (n, num_repeats), some in grouped(repeated, itemgetter(0, 1)).items():
        numbers = {"num_cells": num_cells, "num_different": n - num_repeats}
        yield SCRIPT_SEEDS(subject="seeds", cells=tuple(c for *_, c in some), n=n, **numbers)


def _of_steps(times: ScriptTimes, shared: dict[str, Any]) -> Iterator[Finding]:
    """What stands out in the steps of a cell."""
    steps = [parts for run in times.runs if (parts := typical_step_ms(run))]
    for part in COUNTED_PARTS if times.is_on_cpu else HOST_PARTS:
        if part in times.step_parts_ms and len(times.step_parts_ms) > 1:
            shares = [parts.get(part, 0.0) / sum(parts.values()) for parts in steps]
            spent_ms = times.step_parts_ms[part]
            of_step = {**shared, "is_of_keras": times.is_of_keras}
            yield from _part(part, "step", shares, NOTABLE_OF_STEP, spent_ms, of_step)
    energy = {key: one and one.value for key, one in energy_of_runs(times.runs).items()}
    if energy.get("mean_w"):
        num_epochs = sum(max(0, len(run.energy) - 1) for run in times.runs)
        yield SCRIPT_ENERGY(subject="energy", n=num_epochs, **shared, **energy)
    grown = [one for run in times.runs if (one := growth(run)) is not None]
    if grown and len(grown) == len(times.runs):
        middle = sorted(grown, key=lambda one: one.per_update)[len(grown) // 2]
        yield SCRIPT_MEMORY(
            subject="memory",
            n=len(grown),
            mib_per_update=middle.per_update / MIB,
            first_mib=middle.first / MIB,
            last_mib=middle.last / MIB,
            num_updates=middle.last_step - middle.first_step,
            **shared,
        )
    first, n = times.runs[0], len(times.runs)
    size, device = first.batch_size, "cpu" if times.is_on_cpu else "cuda"
    if size is not None and size <= FEW_SAMPLES[device]:
        yield SCRIPT_BATCH(subject="batch", n=n, size=size, **shared)
    rows = [row for row in first.reads if row.per_step >= EACH_STEP]
    if rows and times.step_parts_ms:
        most = max(rows, key=lambda row: row.ms)
        share = most.ms / sum(times.step_parts_ms.values())
        values = {"ms": most.ms, "share": share, "line": most.line}
        yield SCRIPT_READS(subject="reads", n=n, file=PurePath(most.file).name, **values, **shared)


def lines_so_far(watched: WatchedRecord, words: Words) -> list[str]:
    """What a script that runs alone was seen to do so far, in few lines: where the time of a step goes, and
    what looks wrong, the most important first."""
    is_on_cpu = all(one.devices == ["cpu"] for one in watched.models)
    times = ScriptTimes(BASE, (watched,), is_on_cpu, 1, "")
    parts = times.step_parts_ms
    if watched.is_of_others or not parts:
        return []
    shared = {"cells": (BASE,), "num_cells": 1}
    found = by_importance([*_of_steps(times, shared), *_orders([times], 1)])
    step_ms = sum(parts.values())
    largest = sorted(parts, key=lambda part: -parts[part])[:MOST_PARTS]
    named = (f"{words.phase(part)} {percent(parts[part] / step_ms)}" for part in largest)
    numbers = {"step_ms": step_ms, "num_updates": watched.num_steps}
    line = words.tidy(words("script_so_far", **numbers, parts=words.listed(named)))
    return [line, *(one.sentence(words) for one in found[: MOST_SO_FAR - 1])]


def _time(times: ScriptTimes) -> dict[str, Any]:
    """How long the runs took, what of it was training, and what watching took."""
    walls = [run.wall_s for run in times.runs]
    steps = [
        statistics.median(sum(parts.values()) for parts in found)
        for run in times.runs
        if (found := later_steps_ms(run))
    ]
    first_runs = [run.steps_ms.values() for run in times.runs if run.steps[:1] == [1]]
    firsts = [sum(ms[0] for ms in parts) for parts in first_runs]

    def share(read: Callable[[WatchedRecord], float]) -> float:
        return statistics.median(read(run) / (run.wall_s or 1.0) for run in times.runs)

    return {
        "wall_s": statistics.median(walls),
        "low_s": min(walls),
        "high_s": max(walls),
        "startup_share": share(lambda run: run.parts_s.get(STARTUP, 0.0)),
        "training_share": share(lambda run: run.trained_s),
        "other_share": share(lambda run: run.parts_s.get("other", 0.0)),
        "evaluation_share": share(lambda run: run.parts_s.get(EVALUATION, 0.0)),
        "step_ms": statistics.median(steps) if steps else None,
        "first_step_ms": statistics.median(firsts) if firsts else None,
        "overhead_s": statistics.median(run.overhead_s for run in times.runs),
        "overhead_share": share(lambda run: run.overhead_s),
        "instruments_s": statistics.median(run.instruments_s for run in times.runs),
        "num_updates": round(statistics.median(run.num_steps for run in times.runs)),
        "is_of_others": any(run.is_of_others for run in times.runs),
        "cpu_s": statistics.median(run.cpu_s for run in times.runs),
        "others_cpu_s": statistics.median(run.others_cpu_s for run in times.runs),
        "cut": times.cut,
    }


def _part(
    part: str, of: str, shares: Sequence[float], least: float, spent: float, shared: dict[str, Any]
) -> Iterator[Finding]:
    """A part of the run or of its steps, where it takes enough of them."""
    if (share := statistics.median(shares)) >= least:
        known = {"share": share, "low": min(shares), "high": max(shares), "time": spent}
        yield SCRIPT_PART(subject=part, n=len(shares), of=of, **known, **shared)


def _orders(all_times: Sequence[ScriptTimes], num_cells: int) -> Iterator[Finding]:
    """Cells whose loaders do not shuffle, those with as many passes together."""
    by_passes: dict[int, list[ScriptTimes]] = {}
    for times in all_times:
        by_run = [[one for one in run.loaders if one.is_trained_on] for run in times.runs]
        loaders = [one for trained in by_run for one in trained]
        if all(by_run) and all(one.order == IN_ORDER and one.num_batches != 1 for one in loaders):
            passes = max(math.ceil(one.passes or one.num_passes) for one in loaders)
            by_passes.setdefault(passes, []).append(times)
    for passes, found in by_passes.items():
        cells, n = tuple(times.cell for times in found), sum(len(times.runs) for times in found)
        yield SCRIPT_ORDER(
            subject="order", cells=cells, n=n, num_cells=num_cells, num_passes=passes
        )


def _same_losses(evidence: Evidence) -> Iterator[Finding]:
    """Of each argument that is varied, in the order asked, where all of its levels gave the same."""
    # By cell and seed: the updates, and every loss.
    losses: dict[str, tuple[tuple[int, int, tuple[float | None, ...]], ...]] = {}
    for cell in evidence.cells:
        runs = {
            seed: one.watched
            for seed, one in sorted(evidence.learned.get(cell.id, {}).items())
            if one.watched is not None and one.trial.state == "done"
        }
        # Only of cells that were watched to the end, and of which enough losses are known.
        if runs and all(r.num_steps >= MIN_UPDATES and None not in r.losses for r in runs.values()):
            losses[cell.id] = tuple((s, r.num_steps, tuple(r.losses)) for s, r in runs.items())
    for factor in evidence.factors:
        beside: dict[str, list[str]] = {}  # cells that differ in this argument alone
        for cell in evidence.cells:
            if cell.id in losses:
                rest = repr(sorted(item for item in cell.levels.items() if item[0] != factor))
                beside.setdefault(rest, []).append(cell.id)
        groups = [group for group in beside.values() if len(group) > 1]
        if groups and all(len({losses[cell_id] for cell_id in group}) == 1 for group in groups):
            cells = [cell_id for group in groups for cell_id in group]
            n = sum(len(losses[cell_id]) for cell_id in cells)
            yield SCRIPT_SAME(
                subject=factor, cells=tuple(cells), n=n, num_cells=len(evidence.cells)
            )


def command_text(script: ScriptSpec) -> str:
    """The script with the arguments that all its trials have: `mnist.py --epochs 2`."""
    own = [PurePath(script.path).name.removesuffix(AS_OBJECT)]
    return shlex.join([*(["-m", script.module] if script.module else own), *script.arguments])


def seen_texts(seen: Mapping[str, Any], words: Words) -> list[str]:
    """What a trial was seen to use, in short: `CPU`, `2 threads`, `batch 64`, `Adadelta lr 1`."""
    texts = [seen["framework"]] if "framework" in seen else []
    texts += [level_name("device", seen["device"], words)] if "device" in seen else []
    if "threads" in seen:
        texts.append(words.counted("one_thread", "num_threads", seen["threads"]))
    if "batch_size" in seen:
        key = "batch_of_several" if "accumulate" in seen else "batch_of"
        texts.append(words(key, size=seen["batch_size"], number=seen.get("accumulate")))
    elif "first_dimension" in seen:
        texts.append(words("seen_dimension", size=seen["first_dimension"]))
    if "optimizer" in seen:
        key = "seen_lr_up_to" if "lr_varies" in seen else "seen_lr"
        lr = f" {words(key, lr=level_text(seen['lr']))}" if "lr" in seen else ""
        texts.append(f"{seen['optimizer']}{lr}")
    if "parameters" in seen:
        texts.append(words("seen_parameters", number=f"{seen['parameters']:,}"))
    return texts


def time_table(all_times: Sequence[ScriptTimes], words: Words) -> Table:
    """All time of the script by part; the parts add up."""
    rows = [(times.cell, times.parts_s) for times in all_times]
    notes = [
        words("script_cut_note") if any(times.cut for times in all_times) else "",
        words("script_means") if any(len(times.runs) > 1 for times in all_times) else "",
        words("script_table_note_keras" if all_times[0].is_of_keras else "script_table_note"),
        ""
        if all(times.is_on_cpu or times.is_of_keras for times in all_times)
        else words("script_host_note"),
        _first_process(all_times, words),
    ]
    return _part_table(words("script_table"), rows, "script_s", words, words.sentences(*notes))


def step_parts_table(all_times: Sequence[ScriptTimes], words: Words) -> Table | None:
    """A typical step by part; None where no script made two updates."""
    rows = [(times.cell, parts) for times in all_times if (parts := times.step_parts_ms)]
    if not rows:
        return None
    note = words("script_step_note")
    return _part_table(words("script_step_table"), rows, "script_ms", words, note)


def _part_table(caption: str, rows: Sequence[Parts], unit: str, words: Words, note: str) -> Table:
    def whole(row: Parts) -> float:
        return sum(row[1].values())

    if len(rows) > MOST_COLUMNS:
        columns = [*part_columns(rows, words), value(words(unit), whole)]
        return table_of(caption, columns, rows, note, cell=lambda row: row[0])
    # A row per part; None stands for the whole.
    parts = [*dict.fromkeys(part for _, own in rows for part in own), None]
    fields: list[Field[str | None]] = [
        name(
            words("script_part_heading"),
            lambda part: words("script_whole") if part is None else words.phase(part),
        )
    ]
    for row in rows:
        heading = words(unit) if len(rows) == 1 else f"{row[0]}{words('list_comma')}{words(unit)}"
        entries: dict[str | None, Entry | float] = {None: whole(row)}
        entries |= {part: part_of(row, part) for part in parts if part is not None}
        fields.append(value(heading, entries.get))
    return table_of(caption, fields, parts, note)


def _first_process(all_times: Sequence[ScriptTimes], words: Words) -> str:
    """Whose records they are, where torchrun started several processes."""
    number = max(times.num_processes for times in all_times)
    return words("script_first_process", number=number) if number > 1 else ""


def seen_table(all_times: Sequence[ScriptTimes], words: Words) -> Table:
    """Loaders, models and optimizers; settings in which the same was seen stand together."""
    cells: dict[tuple[str, str], list[str]] = {}
    for times in all_times:
        for what in dict.fromkeys(row for run in times.runs for row in _counted(run, words)):
            cells.setdefault(what, []).append(times.cell)
    kinds = list(dict.fromkeys(kind for kind, _ in cells))
    rows = sorted(cells, key=lambda row: kinds.index(row[0]))
    fields: list[Field[tuple[str, str]]] = [
        name(words("what"), itemgetter(0)),
        name(words("seen"), itemgetter(1)),
    ]
    if len(all_times) > 1:
        fields.append(name(words("seen_in"), lambda row: words.listed(cells[row])))
    note = words.sentences(words("seen_note"), _first_process(all_times, words))
    return table_of(words("seen_table"), fields, rows, note)


def _counted(run: WatchedRecord, words: Words) -> Iterator[tuple[str, str]]:
    """Each thing once and what was seen of it; with how many there were, where several are alike."""
    seen: list[tuple[str, list[str]]] = []
    for loader in run.loaders:
        parts = [] if (size := loader.batch_size) is None else [words("batch_of", size=size)]
        if size is None and loader.is_trained_on and run.first_dimension is not None:
            parts = [words("seen_dimension", size=run.first_dimension)]
        if loader.num_samples is not None:
            parts.append(words("seen_samples", number=f"{loader.num_samples:,}"))
        parts.append(words.named("seen_order", loader.order.replace(" ", "_")))
        parts.append(words.counted("one_worker", "num_workers", loader.num_workers))
        parts += [words("seen_pinned")] if loader.pin_memory else []
        parts += [words("seen_drop_last")] if loader.drop_last else []
        passes = round(loader.num_passes if loader.passes is None else loader.passes, 2)
        key = "part_of_pass" if passes < 1 else "one_pass" if passes == 1 else "num_passes"
        parts.append(words(key, number=f"{passes:,g}"))
        key = "seen_training_loader" if loader.is_trained_on else "seen_other_loader"
        seen.append((key, parts))
    for model in run.models:
        size_text = words("seen_parameters", number=f"{model.num_parameters:,}")
        devices = [level_name("device", device, words) for device in model.devices]
        compiled = [words("seen_compiled")] if model.is_compiled else []
        seen.append(("seen_model", [model.name, size_text, *model.dtypes, *devices, *compiled]))
    for optimizer in run.optimizers:
        parts, lr = [optimizer.name], optimizer.lr
        low, high = optimizer.lowest_lr, optimizer.highest_lr
        if low != high and low is not None and high is not None:
            parts.append(words("seen_lr_range", low=f"{low:.4g}", high=f"{high:.4g}"))
        else:
            parts += [] if lr is None else [words("seen_lr", lr=level_text(lr))]
        parts += [] if optimizer.code == "auto" else [words("seen_code", code=optimizer.code)]
        updates = words.counted("one_update", "num_updates", optimizer.num_steps)
        seen.append(("seen_optimizer", [*parts, updates]))
    # Those of several optimizers together are no number of the script's.
    updates = words.counted("one_update", "num_updates", run.num_steps)
    parts = [updates] * (len(run.optimizers) < 2)
    is_of_torch = not run.framework or "PyTorch" in run.framework
    parts += [words.counted("one_thread", "num_threads", run.threads)] * is_of_torch
    parts += [run.framework] * bool(run.framework)
    seen.append(("seen_process", parts))
    rows = ((words(key), words.listed(parts)) for key, parts in seen)
    for (kind, told), times in Counter(rows).items():
        yield kind, told if times == 1 else words("seen_alike", number=times, told=told)


def script_section(data: RunData, words: Words) -> Section | None:
    """Where the time of the script goes; None where nothing of that is known."""
    all_times = script_times(data.evidence)
    if not all_times:
        return None
    # What its time is: of a script or a block, whole or until it stopped.
    script, is_cut = data.evidence.study.script, any(times.cut for times in all_times)
    intro = "script_intro_cut" if is_cut else "script_intro"
    if script is not None and script.from_inside:
        intro = "script_intro_inside_cut" if is_cut else "script_intro_inside"
    bars = {one.cell: one.parts_s for one in all_times[:MOST_CELLS]}
    blocks: list[Block] = [
        Paragraph(words(intro)),
        bar_figure(bars, "script", "whole", words("script_s"), words, words.phase),
        time_table(all_times, words),
    ]
    if (steps := step_parts_table(all_times, words)) is not None:
        blocks.append(steps)
    if (energy := script_energy_table([(t.cell, t.runs) for t in all_times], words)) is not None:
        blocks.append(energy)
    blocks.append(bullets(data.findings_in("script"), words))
    return Section("script", words("script"), tuple(blocks))


def seen_section(data: RunData, words: Words) -> Section | None:
    """What the script was seen to use; None where nothing of that is known."""
    if not (all_times := script_times(data.evidence)):
        return None
    return Section("seen", words("seen_heading"), (seen_table(all_times, words),), is_folded=True)
