"""Measures what a step costs, in short turns: bare steps for the time, marked steps for the phases.

Warm-up is recorded apart, and so are the first steps of every turn, which find the caches cold. Bare and
marked steps alternate within a turn, so that drift hits both alike and the difference between them is
what marking costs. Step times are only ever read from bare steps.
"""

import math
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Literal

from trainlab.machine.load import cpu_times, load_average, load_record
from trainlab.machine.process import prepare_process
from trainlab.measure.cold import ColdWatch
from trainlab.measure.rounds import Rounds
from trainlab.measure.steps import running_steps, steps_of
from trainlab.measure.stopwatch import Stopwatch, stopwatch_for, timed_ms
from trainlab.record.cost import ColdStep, CostRecord, TurnRecord
from trainlab.spec.cost import CostSpec
from trainlab.train.moments import Instrument, Phase
from trainlab.train.setup import Setup

TURN_MS = 30.0
"""Bare steps of a turn: short, so that the turns of a round meet the same machine."""
MIN_TURN_STEPS = 2
LEAD_MS = 10.0
"""At least so much of a turn, and one step, is set aside: what ran before has filled the caches, and
threads of its process may still spin."""
MARKED_SHARE = 1 / 3
"""Marked steps of a turn that has some, for each bare one."""
COLD_STEPS = 5
LAST_STEPS = 3
WINDOW_STEPS = 3
WINDOW_MS = 30.0
"""Warm-up steps are looked at in windows of at least so many and so long."""
DRIFT = 0.03
"""Steps are warm once the median of a window is no lower than that of the one before, less this share."""
WARMUP_S = 3.0
"""Steps that still drift after so long are taken as they are."""

Stopped = Literal["tight", "budget"]
Work = Callable[[], object]
"""Runs the next step."""


class PhaseMarks(Instrument):
    """Marks the end of every phase on a stopwatch."""

    def __init__(self, watch: Stopwatch) -> None:
        self._mark = watch.mark

    def phase_ends(self, phase: Phase) -> None:
        self._mark(phase)


class StepTimer:
    """The steps of one trial, timed in turns that others may come between."""

    def __init__(self, setup: Setup, spec: CostSpec) -> None:
        self._setup, self._spec = setup, spec
        self._watch, self._cold = stopwatch_for(setup.device), ColdWatch(setup.device)
        self._steps = steps_of(setup, spec.mode)
        if self._steps.shows_phases:
            self._marked = self._steps.watched_by([PhaseMarks(self._watch)])
            self._observed = self._steps.watched_by([self._cold])
        self._load_before = load_average()
        self._warmup_ms: list[float] = []
        self._first: list[ColdStep] = []
        self._turns: list[TurnRecord] = []
        self._step_ms: list[float] = []
        self._phase_steps: list[dict[str, float]] = []

    def warm_up(self) -> None:
        """Runs steps until they no longer get faster; `warmup_steps` of them at least."""
        prepare_process(self._setup.settings)
        with running_steps(self._setup, self._spec.mode):
            num_first = min(COLD_STEPS, self._spec.warmup_steps) if self._steps.shows_phases else 0
            self._first = [self._observe() for _ in range(num_first)]
            self._warmup_ms = [sum(step.phases_ms.values()) for step in self._first]
            deadline = time.monotonic() + WARMUP_S
            while len(self._warmup_ms) < self._spec.warmup_steps or (
                not self._is_warm() and time.monotonic() < deadline
            ):
                self._warmup_ms.append(timed_ms(self._setup.device, self._steps.next_bare))

    def turn(self, number: int) -> float:
        """One turn, in the round of that number; returns the median of its bare steps."""
        prepare_process(self._setup.settings)
        before = cpu_times()
        num_bare, num_lead = _turn_steps(self._warm_ms())
        # Every other turn has marked steps, and these come first every other time.
        place = len(self._turns) % 4
        is_marked = place % 2 == 0 and self._steps.shows_phases
        num_marked = math.ceil(MARKED_SHARE * num_bare) if is_marked else 0
        with running_steps(self._setup, self._spec.mode):
            lead_ms = self._run_bare(num_lead)
            if place == 0:
                self._run_marked(num_marked)
            bare_ms = self._run_bare(num_bare)
            if place == 2:
                self._run_marked(num_marked)
        others, stolen = cpu_times().cores_since(before)
        self._step_ms += bare_ms
        self._turns.append(
            TurnRecord(
                round=number,
                lead_ms=lead_ms,
                num_bare=num_bare,
                num_marked=num_marked,
                others_cores=others,
                stolen_cores=stolen,
            )
        )
        return statistics.median(bare_ms)

    def finish(self, bench: str, stopped: Stopped) -> CostRecord:
        """The record of all turns, after a last look at settled steps and at the smaller last batch."""
        steps, turns = self._steps, self._turns
        prepare_process(self._setup.settings)
        with running_steps(self._setup, self._spec.mode):
            settled = [self._observe() for _ in self._first]
            last_ms = []
            if steps.last is not None:
                run_last = partial(steps.bare, steps.last)
                # The first of them meets a size it has not seen.
                last_ms = [timed_ms(self._setup.device, run_last) for _ in range(LAST_STEPS + 1)]
        names = list(dict.fromkeys(name for step in self._phase_steps for name in step))
        return CostRecord(
            mode=self._spec.one_mode,
            batch_size=steps.batch_size,
            num_samples=steps.batches.num_samples,
            steps_per_epoch=len(steps.batches),
            warmup_ms=self._warmup_ms,
            cold=self._first,
            settled=settled,
            bench=bench,
            turns=turns,
            step_ms=self._step_ms,
            phases_ms={n: [step.get(n, 0.0) for step in self._phase_steps] for n in names},
            last_ms=last_ms[1:],
            stopped=stopped,
            load=load_record(
                statistics.fmean(turn.others_cores for turn in turns),
                statistics.fmean(turn.stolen_cores for turn in turns),
                self._load_before,
            ),
        )

    def _observe(self) -> ColdStep:
        return self._cold.observe(lambda: self._observed(next(self._steps.endless)))

    def _warm_ms(self) -> float:
        """A step as the warm-up left it."""
        return statistics.median(self._warmup_ms[-WINDOW_STEPS:])

    def _is_warm(self) -> bool:
        ms = self._warmup_ms[len(self._first) :]
        size = max(WINDOW_STEPS, math.ceil(WINDOW_MS / statistics.median(ms))) if ms else 1
        if len(ms) < 2 * size:
            return False
        before, last = ms[-2 * size : -size], ms[-size:]
        return statistics.median(last) >= (1 - DRIFT) * statistics.median(before)

    def _run_bare(self, count: int) -> list[float]:
        self._watch.mark("start")
        for _ in range(count):
            self._steps.next_bare()
            self._watch.mark("step")
        return [ms for _, ms in self._watch.laps_ms()]

    def _run_marked(self, count: int) -> None:
        self._watch.mark("start")
        for _ in range(count):
            self._marked(next(self._steps.endless))
            self._watch.mark("other")
        step: dict[str, float] = {}
        for name, ms in self._watch.laps_ms():
            step[name] = step.get(name, 0.0) + ms
            if name == "other":
                self._phase_steps.append(step)
                step = {}


def measure(setup: Setup, spec: CostSpec) -> CostRecord:
    """One trial by itself: warms up, then takes turn after turn until tight or time is up."""
    timer = StepTimer(setup, spec)
    timer.warm_up()
    rounds = Rounds(spec)
    return timer.finish("", rounds.run([timer]))


def _turn_steps(step_ms: float) -> tuple[int, int]:
    """Bare steps of a turn, and steps set aside before them."""
    return max(MIN_TURN_STEPS, round(TURN_MS / step_ms)), max(1, math.ceil(LEAD_MS / step_ms))
