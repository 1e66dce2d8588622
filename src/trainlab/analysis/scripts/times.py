"""Where the time of a script went: all of it by part, and its steps; the start and the first step apart."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from trainlab.analysis.evidence import Evidence
from trainlab.record.scripts.watched import WatchedRecord
from trainlab.record.trial import State

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
