"""A script that was watched: where its time went, what grows, what it repeats, what it uses."""

import shlex
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import PurePath
from typing import Any, Literal

from trainlab.analysis.evidence import Evidence
from trainlab.analysis.finding import Finding, level_name
from trainlab.record.script_record import LoaderRow, WatchedRecord
from trainlab.record.trial_record import State
from trainlab.spec import Cell
from trainlab.spec.facts import AS_OBJECT
from trainlab.spec.script import ScriptSpec
from trainlab.spec.study import level_text, short_name
from trainlab.words import Words
from trainlab.words.numbers import MIB, figure, percent

STARTUP, FIRST_STEP, EVALUATION, OTHER = "startup", "first_step", "evaluation", "other"
ORDER = (
    *(STARTUP, FIRST_STEP, "data", "transfer", "prepare", "zero_grad", "forward", "loss"),
    *("backward", "optimizer", EVALUATION, OTHER),
)
"""The parts as they are listed."""


Cut = Literal["", "interrupted", "failed"]
"""How runs ended that did not come to their end."""


@dataclass(frozen=True)
class Spread:
    """A number of every run of a cell: the median, and the range."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class ScriptTimes:
    """The runs of one cell that came to their end, in the order of their seeds; or those that did not,
    where the study has no other."""

    cell: str
    runs: tuple[WatchedRecord, ...]
    is_on_cpu: bool
    """Elsewhere calls return before their work is done: parts of a step do not say what takes it."""
    num_processes: int = 1
    """That torchrun started for each run; the records are those of the first."""
    cut: Cut = ""

    def over_runs(self, read: Callable[[WatchedRecord], float]) -> Spread:
        """Something of every run."""
        values = [read(run) for run in self.runs]
        return Spread(statistics.median(values), min(values), max(values))

    @property
    def parts_s(self) -> dict[str, float]:
        """Seconds by part, means over runs, so that they add up to the mean of the whole."""
        by_run = [whole_parts_s(run) for run in self.runs]
        names = [name for name in ORDER if any(name in parts for parts in by_run)]
        return {name: statistics.fmean(parts.get(name, 0.0) for parts in by_run) for name in names}

    @property
    def step_parts_ms(self) -> dict[str, float]:
        """Of a typical step, means over runs, so that they add up; empty where no run made two updates."""
        by_run = [parts for run in self.runs if (parts := typical_step_ms(run))]
        names = [name for name in ORDER if any(parts.get(name) for parts in by_run)]
        return {name: statistics.fmean(parts.get(name, 0.0) for parts in by_run) for name in names}


def script_times(evidence: Evidence) -> list[ScriptTimes]:
    """By cell, in the order asked; those of which no run came to its end are left out, unless there is no
    other to compare them with."""
    cells = [cell.id for cell in evidence.cells]
    found = [_times_of(evidence, cell, "done") for cell in cells]
    if found == [None]:  # there is one cell, and no run of it
        found = [
            _times_of(evidence, cells[0], "interrupted") or _times_of(evidence, cells[0], "failed")
        ]
    return [times for times in found if times is not None]


def _times_of(evidence: Evidence, cell: str, state: State) -> ScriptTimes | None:
    """Of the runs that ended so; of those that failed, with a step to show for it."""
    script = evidence.study.script
    ended = [
        (one.watched, one.trial)
        for _, one in sorted(evidence.learned.get(cell, {}).items())
        if one.watched is not None and one.trial.state == state
        if state != "failed" or one.watched.num_steps
    ]
    if not ended:
        return None
    return ScriptTimes(
        cell,
        tuple(run for run, _ in ended),
        is_on_cpu=all(trial.resolved.get("device", "cpu") == "cpu" for _, trial in ended),
        num_processes=1 if script is None else script.processes,
        cut=state if state in ("interrupted", "failed") else "",
    )


def whole_parts_s(run: WatchedRecord) -> dict[str, float]:
    """All time of a run by part, the first step apart from the others."""
    first_s = {name: steps[0] / 1e3 for name, steps in run.steps_ms.items() if run.steps[:1] == [1]}
    parts = {name: spent for name, spent in run.parts_s.items() if name != STARTUP}
    rest = {name: max(0.0, spent - first_s.get(name, 0.0)) for name, spent in parts.items()}
    apart = sum(parts.values()) - sum(rest.values())
    started = {STARTUP: run.parts_s[STARTUP]} if STARTUP in run.parts_s else {}
    return started | ({FIRST_STEP: apart} if apart else {}) | rest


def later(run: WatchedRecord, part: str) -> Sequence[float]:
    """Milliseconds of a part in the steps after the first."""
    steps = run.steps_ms.get(part, [])
    return steps[1:] if run.steps[:1] == [1] else steps


def steps_ms(run: WatchedRecord) -> list[float]:
    """Of the steps after the first, whole."""
    return list(map(sum, zip(*(later(run, part) for part in run.steps_ms), strict=True)))


def typical_step_ms(run: WatchedRecord) -> dict[str, float]:
    """By part, the mean over the middle half of the steps after the first by how long they took: the parts
    add up, and a step that something else held up does not count. Empty where there is none."""
    wholes = steps_ms(run)
    places = sorted(range(len(wholes)), key=lambda place: wholes[place])
    middle = places[len(places) // 4 : len(places) - len(places) // 4]
    if not middle:
        return {}
    return {
        part: statistics.fmean(later(run, part)[place] for place in middle) for part in run.steps_ms
    }


def step_share(run: WatchedRecord, part: str) -> float:
    """What a part takes of a typical step."""
    parts = typical_step_ms(run)
    return parts.get(part, 0.0) / (sum(parts.values()) or 1.0)


def first_step_ms(run: WatchedRecord) -> float | None:
    """The first update; None where there was none."""
    if run.steps[:1] != [1]:
        return None
    return sum(steps[0] for steps in run.steps_ms.values())


@dataclass(frozen=True)
class Growth:
    """The memory of a process that kept growing."""

    first_bytes: float
    last_bytes: float
    first_step: int
    last_step: int

    @property
    def bytes_per_update(self) -> float:
        """How much each update has left behind."""
        return (self.last_bytes - self.first_bytes) / (self.last_step - self.first_step)


FEWEST_LOOKS = 12
NUM_STRETCHES = 4
EVEN = 0.5
"""Every quarter must have at least this share of the mean growth of a quarter."""
LEAST_BYTES = 16 << 20
LEAST_SHARE = 0.03
"""Of the memory at first, that it must have grown by."""


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
    (first_step, first), (last_step, last) = ends[0], ends[-1]
    return Growth(first, last, first_step, last_step)


def grown(times: ScriptTimes) -> Iterator[Growth]:
    """Of the runs of a cell whose memory kept growing."""
    return (found for run in times.runs if (found := growth(run)) is not None)


NOTABLE_OF_RUN = 0.2
"""From this share of a run on, evaluation is worth a sentence."""
NOTABLE_START = 0.3
NOTABLE_OF_STEP = 0.25
"""From this share of a step on, a part other than the passes themselves is worth a sentence."""
HOST_PARTS = ("data", "transfer", "prepare", "other")
"""Parts whose time is that of the host, on any device."""
COUNTED_PARTS = (*HOST_PARTS, "zero_grad", "loss", "optimizer")
IN_ORDER = "in order"
WHOLE: dict[Cut, str] = {
    "": "script_time",
    "interrupted": "script_time_interrupted",
    "failed": "script_time_failed",
}
"""The sentence about all time, by how the runs ended."""


@dataclass(frozen=True, kw_only=True)
class ScriptFinding(Finding):
    """What the findings about a script share."""

    section = "script"

    num_cells: int
    """Of the study: one cell needs no name."""

    def phrases(self, words: Words) -> dict[str, object]:
        is_all = len(self.cells) == self.num_cells
        where = "" if is_all else words("script_where", cell=words.listed(self.cells))
        return super().phrases(words) | {"where": where}

    def ranged(self, words: Words, low: str, high: str) -> str:
        """The range over the seeds, where there are several."""
        return words("script_range", low=low, high=high, seeds=self.n) if self.n > 1 else ""


@dataclass(frozen=True, kw_only=True)
class ScriptTime(ScriptFinding):
    """How long the script ran, what of it was training, and what watching took."""

    kind = "script_time"
    rank = 3

    wall_s: float
    low_s: float
    high_s: float
    startup_share: float
    training_share: float
    evaluation_share: float
    step_ms: float | None
    """The median after the first."""
    first_step_ms: float | None
    overhead_s: float
    overhead_share: float
    instruments_s: float
    """Beside the whole."""
    num_updates: int
    cut: Cut

    def statement(self, words: Words) -> str:
        steps = "" if self.step_ms is None else self.fill(words, "script_steps")
        own = self.fill(words, "script_instruments") if self.instruments_s else ""
        watching = self.fill(words, "script_watching")
        return words.sentences(self.whole(words), steps, watching, own)

    def whole(self, words: Words) -> str:
        """The first sentence alone."""
        range_text = self.ranged(words, figure(self.low_s), figure(self.high_s))
        if not self.cut and not self.training_share and self.first_step_ms is None:
            return self.fill(words, "script_time_no_updates", range=range_text)
        parts = [words("script_starting", share=percent(self.startup_share))]
        parts.append(words("script_training", share=percent(self.training_share)))
        if self.evaluation_share:
            parts.append(words("script_testing", share=percent(self.evaluation_share)))
        return self.fill(words, WHOLE[self.cut], range=range_text, parts=words.listed(parts))

    @property
    def weight(self) -> float:
        return self.wall_s


@dataclass(frozen=True, kw_only=True)
class ScriptPart(ScriptFinding):
    """A part that takes a large share of the run or of its steps."""

    kind = "script_part"
    rank = 4

    of: str
    """`run` or `step`."""
    share: float
    low: float
    high: float
    time: float
    """Seconds of the run, or milliseconds of a typical step."""

    def statement(self, words: Words) -> str:
        range_text = self.ranged(words, percent(self.low), percent(self.high))
        part = words.phase(self.subject)
        key = f"script_part_{self.subject}" if self.of == "run" else "script_part_step"
        if self.of == "step" and self.subject in ("data", "optimizer", "other"):
            key = f"script_step_{self.subject}"
        return self.fill(words, key, range=range_text, part=words.capital(part))

    @property
    def weight(self) -> float:
        return self.share


@dataclass(frozen=True, kw_only=True)
class ScriptMemory(ScriptFinding):
    """Memory that keeps growing with the updates."""

    kind = "script_memory"
    rank = 2

    mib_per_update: float
    first_mib: float
    last_mib: float
    num_updates: int

    def statement(self, words: Words) -> str:
        return self.fill(words, "script_memory_seeds" if self.n > 1 else "script_memory")

    @property
    def weight(self) -> float:
        return self.last_mib - self.first_mib


@dataclass(frozen=True, kw_only=True)
class ScriptOrder(ScriptFinding):
    """Training data that come in the same order in every pass."""

    kind = "script_order"
    rank = 5

    num_passes: int
    shuffles: bool
    """Whether its loader shuffles, and begins every pass alike all the same."""

    def statement(self, words: Words) -> str:
        if self.shuffles:
            return self.fill(words, "script_order_alike")
        return self.fill(words, "script_order" if self.num_passes > 1 else "script_order_once")


def script_findings(evidence: Evidence) -> Iterator[Finding]:
    """Of each cell, in the order asked."""
    all_times = script_times(evidence)
    for times in all_times:
        yield _time(times, len(evidence.cells))
        yield from _parts(times, len(evidence.cells))
        yield from _memory(times, len(evidence.cells))
    yield from _orders(all_times, len(evidence.cells))


def _time(times: ScriptTimes, num_cells: int) -> Finding:
    wall = times.over_runs(lambda run: run.wall_s)
    steps = [statistics.median(found) for run in times.runs if (found := steps_ms(run))]
    firsts = [first for run in times.runs if (first := first_step_ms(run)) is not None]

    return ScriptTime(
        subject="script",
        cells=(times.cell,),
        n=len(times.runs),
        num_cells=num_cells,
        wall_s=wall.value,
        low_s=wall.low,
        high_s=wall.high,
        startup_share=times.over_runs(partial(_run_share, STARTUP)).value,
        training_share=times.over_runs(lambda run: run.trained_s / (run.wall_s or 1.0)).value,
        evaluation_share=times.over_runs(partial(_run_share, EVALUATION)).value,
        step_ms=statistics.median(steps) if steps else None,
        first_step_ms=statistics.median(firsts) if firsts else None,
        overhead_s=times.over_runs(lambda run: run.overhead_s).value,
        overhead_share=times.over_runs(lambda run: run.overhead_s / (run.wall_s or 1.0)).value,
        instruments_s=times.over_runs(lambda run: run.instruments_s).value,
        num_updates=round(times.over_runs(lambda run: run.num_steps).value),
        cut=times.cut,
    )


def _parts(times: ScriptTimes, num_cells: int) -> Iterator[Finding]:
    # Of a run that was cut short these say when that was.
    of_run = () if times.cut else ((EVALUATION, NOTABLE_OF_RUN), (STARTUP, NOTABLE_START))
    for part, least in of_run:
        share = times.over_runs(partial(_run_share, part))
        if share.value >= least:
            spent = times.over_runs(partial(_run_s, part))
            yield _part(times, num_cells, part, "run", share, spent.value)
    in_steps = times.step_parts_ms
    for part in COUNTED_PARTS if times.is_on_cpu else HOST_PARTS:
        share = times.over_runs(partial(_step_share, part))
        if part in in_steps and share.value >= NOTABLE_OF_STEP:
            yield _part(times, num_cells, part, "step", share, in_steps[part])


def _part(
    times: ScriptTimes, num_cells: int, part: str, of: str, share: Spread, time: float
) -> Finding:
    return ScriptPart(
        subject=part,
        cells=(times.cell,),
        n=len(times.runs),
        num_cells=num_cells,
        of=of,
        share=share.value,
        low=share.low,
        high=share.high,
        time=time,
    )


def _run_s(part: str, run: WatchedRecord) -> float:
    return run.parts_s.get(part, 0.0)


def _run_share(part: str, run: WatchedRecord) -> float:
    return _run_s(part, run) / run.wall_s if run.wall_s else 0.0


def _step_share(part: str, run: WatchedRecord) -> float:
    return step_share(run, part)


def _memory(times: ScriptTimes, num_cells: int) -> Iterator[Finding]:
    """Where it grew in every run."""
    found = list(grown(times))
    if found and len(found) == len(times.runs):
        middle = sorted(found, key=lambda one: one.bytes_per_update)[len(found) // 2]
        yield ScriptMemory(
            subject="memory",
            cells=(times.cell,),
            n=len(found),
            num_cells=num_cells,
            mib_per_update=middle.bytes_per_update / MIB,
            first_mib=middle.first_bytes / MIB,
            last_mib=middle.last_bytes / MIB,
            num_updates=middle.last_step - middle.first_step,
        )


def _orders(all_times: Sequence[ScriptTimes], num_cells: int) -> Iterator[Finding]:
    """Cells whose loaders do not shuffle, those with as many passes together."""
    by_passes: dict[tuple[int, bool], list[ScriptTimes]] = {}
    for times in all_times:
        trained = [[one for one in run.loaders if one.is_trained_on] for run in times.runs]
        if all(loaders and all(map(_is_alike, loaders)) for loaders in trained):
            passes = max(one.num_passes for loaders in trained for one in loaders)
            shuffles = any(one.order != IN_ORDER for loaders in trained for one in loaders)
            by_passes.setdefault((passes, shuffles), []).append(times)
    for (passes, shuffles), found in by_passes.items():
        yield ScriptOrder(
            subject="order",
            cells=tuple(times.cell for times in found),
            n=sum(len(times.runs) for times in found),
            num_cells=num_cells,
            num_passes=passes,
            shuffles=shuffles,
        )


def _is_alike(loader: LoaderRow) -> bool:
    """Whether every pass has the same order, as far as was seen: a data set may shuffle by itself, and a
    loader that shuffles may be seeded anew before every pass."""
    if loader.order == IN_ORDER:
        return loader.begins_alike is not False
    return loader.begins_alike is True


MIN_UPDATES = 3
"""The first loss is the same whatever is varied."""

Losses = tuple[tuple[int, int, tuple[float | None, ...]], ...]
"""By seed: the updates, and every loss."""


@dataclass(frozen=True, kw_only=True)
class SameLosses(ScriptFinding):
    """Settings that differ in one argument, and were trained alike to the last bit."""

    kind = "script_same"
    rank = 1

    is_whole: bool
    """Whether all levels of the argument gave the same."""

    def statement(self, words: Words) -> str:
        key = "script_same" if self.is_whole else "script_same_levels"
        return self.fill(words, key, argument=short_name(self.subject))

    @property
    def weight(self) -> float:
        return len(self.cells)


@dataclass(frozen=True, kw_only=True)
class ScriptSeeds(ScriptFinding):
    """Seeds that the script does not heed."""

    kind = "script_seeds"
    rank = 1

    num_different: int
    """Of its runs, in each setting."""

    def statement(self, words: Words) -> str:
        return self.fill(words, "script_seeds" if self.num_different == 1 else "script_seeds_some")


def repeat_findings(evidence: Evidence) -> Iterator[Finding]:
    """Of each argument that is varied, in the order asked; then of seeds."""
    yield from _same_losses(evidence)
    yield from _seeds(evidence)


def _same_losses(evidence: Evidence) -> Iterator[Finding]:
    losses = {cell.id: found for cell in evidence.cells if (found := _losses(evidence, cell))}
    for factor in evidence.factors:
        groups = [
            [cell for cell in group if cell.id in losses] for group in _beside(evidence, factor)
        ]
        groups = [group for group in groups if len(group) > 1]
        alike = [same for group in groups for same in _alike(group, losses)]
        is_whole = bool(groups) and [len(one) for one in alike] == [len(one) for one in groups]
        if is_whole:
            alike = [[cell for group in groups for cell in group]]
        for cells in alike:
            yield SameLosses(
                subject=factor,
                cells=tuple(cell.id for cell in cells),
                n=sum(len(losses[cell.id]) for cell in cells),
                num_cells=len(evidence.cells),
                is_whole=is_whole,
            )


def _seeds(evidence: Evidence) -> Iterator[Finding]:
    """Cells with runs that are the same, those with as many together."""
    by_number: dict[tuple[int, int], list[str]] = {}
    for cell in evidence.cells:
        if repeats := evidence.repeats.get(cell.id):
            num_runs = len(evidence.learned[cell.id])
            by_number.setdefault((num_runs, num_runs - len(repeats)), []).append(cell.id)
    for (num_runs, num_different), cells in by_number.items():
        yield ScriptSeeds(
            subject="seeds",
            cells=tuple(cells),
            n=num_runs,
            num_cells=len(evidence.cells),
            num_different=num_different,
        )


def _beside(evidence: Evidence, factor: str) -> list[list[Cell]]:
    """Cells that differ in this argument alone."""
    groups: dict[str, list[Cell]] = {}
    for cell in evidence.cells:
        rest = repr(sorted((name, cell.levels[name]) for name in cell.levels if name != factor))
        groups.setdefault(rest, []).append(cell)
    return list(groups.values())


def _alike(group: list[Cell], losses: dict[str, Losses]) -> list[list[Cell]]:
    """Those of a group that gave the same, two or more."""
    by_losses: dict[Losses, list[Cell]] = {}
    for cell in group:
        by_losses.setdefault(losses[cell.id], []).append(cell)
    return [cells for cells in by_losses.values() if len(cells) > 1]


def _losses(evidence: Evidence, cell: Cell) -> Losses | None:
    """None where the cell was not watched to the end, or too few losses are known."""
    runs: dict[int, WatchedRecord] = {
        seed: one.watched
        for seed, one in sorted(evidence.learned.get(cell.id, {}).items())
        if one.watched is not None and one.trial.state == "done"
    }
    if not runs or any(run.num_steps < MIN_UPDATES or None in run.losses for run in runs.values()):
        return None
    return tuple((seed, run.num_steps, tuple(run.losses)) for seed, run in runs.items())


def command_text(script: ScriptSpec) -> str:
    """The script with the arguments that all its trials have: `mnist.py --epochs 2`."""
    own = (
        ["-m", script.module]
        if script.module
        else [PurePath(script.path).name.removesuffix(AS_OBJECT)]
    )
    return shlex.join([*own, *script.arguments])


def seen_texts(seen: Mapping[str, Any], words: Words) -> list[str]:
    """What a trial was seen to use, in short: `CPU`, `2 threads`, `batch 64`, `Adadelta lr 1`."""
    texts = [level_name("device", seen["device"], words)] if "device" in seen else []
    if "threads" in seen:
        texts.append(words.counted("one_thread", "num_threads", seen["threads"]))
    if "batch_size" in seen:
        texts.append(words("batch_of", size=seen["batch_size"]))
    if "optimizer" in seen:
        lr = f" lr {level_text(seen['lr'])}" if "lr" in seen else ""
        texts.append(f"{seen['optimizer']}{lr}")
    if "parameters" in seen:
        texts.append(words("seen_parameters", number=f"{seen['parameters']:,}"))
    return texts
