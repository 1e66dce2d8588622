"""Measures what a step costs: warm-up apart, bare steps for the time, marked steps for the phases.

Bare and marked rounds take turns, so that drift hits both alike and the difference between them is
what marking costs. Step times are only ever read from bare rounds.
"""

import time
from collections.abc import Callable
from typing import Literal

from trainlab.machine.load import LoadMeter
from trainlab.measure.cold import ColdWatch
from trainlab.measure.steps import stepping
from trainlab.measure.stopwatch import Stopwatch, stopwatch_for, timed_ms
from trainlab.record.cost import CostRecord
from trainlab.spec.cost import CostSpec
from trainlab.stats.median import median_interval
from trainlab.train.moments import Instrument, Phase
from trainlab.train.setup import Setup

ROUND_S = 0.05
"""Short, so that a bare round and the marked one beside it meet the same machine."""
MIN_ROUND_STEPS = 3
MIN_STEPS = 30
"""Bare steps without which no interval is called tight."""
COLD_STEPS = 5

Work = Callable[[], object]
"""Runs the next step."""


class PhaseMarks(Instrument):
    """Marks the end of every phase on a stopwatch."""

    def __init__(self, watch: Stopwatch) -> None:
        self._mark = watch.mark

    def phase_ends(self, phase: Phase) -> None:
        self._mark(phase)


def measure(setup: Setup, spec: CostSpec) -> CostRecord:
    """Warms up, then alternates bare and marked rounds until the interval is tight or time is up."""
    device = setup.device
    watch, load, cold = stopwatch_for(device), LoadMeter(), ColdWatch(device)
    with stepping(setup, spec.mode) as steps:
        bare = steps.next_bare
        with_marks, cold_step = steps.watched_by([PhaseMarks(watch)]), steps.watched_by([cold])

        def marked() -> object:
            return with_marks(next(steps.endless))

        def observed() -> object:
            return cold_step(next(steps.endless))

        first = [cold.observe(observed) for _ in range(min(COLD_STEPS, spec.warmup_steps))]
        warmup_ms = [sum(step.phases_ms.values()) for step in first]
        warmup_ms += [timed_ms(device, bare) for _ in range(spec.warmup_steps - len(first))]
        rounds = _Rounds(bare, marked, watch, _steps_per_round(timed_ms(device, bare)))
        deadline = time.monotonic() + spec.budget_s
        stopped: Literal["tight", "budget"] = "budget"
        while not rounds.phase_steps or time.monotonic() < deadline:
            rounds.run_both()
            if len(rounds.step_ms) >= MIN_STEPS and _is_tight(rounds.step_ms, spec.tight):
                stopped = "tight"
                break
        settled = [cold.observe(observed) for _ in range(COLD_STEPS)]
    phases = list(dict.fromkeys(name for step in rounds.phase_steps for name in step))
    return CostRecord(
        mode=spec.one_mode,
        batch_size=steps.batch_size,
        num_samples=steps.batches.num_samples,
        steps_per_epoch=len(steps.batches),
        warmup_ms=warmup_ms,
        cold=first,
        settled=settled,
        round_steps=rounds.steps,
        step_ms=rounds.step_ms,
        phases_ms={name: [step.get(name, 0.0) for step in rounds.phase_steps] for name in phases},
        stopped=stopped,
        load=load.read(),
    )


class _Rounds:
    """Bare and marked rounds in turn, each first every other time: drift within a pair cancels out."""

    def __init__(self, bare: Work, marked: Work, watch: Stopwatch, steps: int) -> None:
        self.steps = steps
        self.step_ms: list[float] = []
        self.phase_steps: list[dict[str, float]] = []
        self._bare, self._marked, self._watch = bare, marked, watch
        self._bare_first = True

    def run_both(self) -> None:
        """One round of each."""
        turns = (self._run_bare, self._run_marked)
        for run in turns if self._bare_first else reversed(turns):
            run()
        self._bare_first = not self._bare_first

    def _run_bare(self) -> None:
        self._watch.mark("start")
        for _ in range(self.steps):
            self._bare()
            self._watch.mark("step")
        self.step_ms += [ms for _, ms in self._watch.laps_ms()]

    def _run_marked(self) -> None:
        self._watch.mark("start")
        for _ in range(self.steps):
            self._marked()
            self._watch.mark("other")
        step: dict[str, float] = {}
        for name, ms in self._watch.laps_ms():
            step[name] = step.get(name, 0.0) + ms
            if name == "other":
                self.phase_steps.append(step)
                step = {}


def _steps_per_round(step_ms: float) -> int:
    return max(MIN_ROUND_STEPS, int(ROUND_S * 1e3 / step_ms))


def _is_tight(step_ms: list[float], share: float) -> bool:
    middle, low, high = median_interval(step_ms)
    return (high - low) <= share * middle
