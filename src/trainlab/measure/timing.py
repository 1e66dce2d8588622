"""Measures what a step costs, in short turns: bare steps for the time, marked steps for the phases.

Warm-up is recorded apart, and so are the first steps of every turn, which find the caches cold. Bare and
marked steps alternate within a turn, so that drift hits both alike and the difference between them is
what marking costs. Step times are only ever read from bare steps.
"""

import math
import resource
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

import torch

from trainlab.machine.device import footprint, synchronize
from trainlab.machine.host import Footprint
from trainlab.machine.load import cpu_times
from trainlab.machine.process_state import prepare_process, switch, switched
from trainlab.measure.energy_meter import EnergyMeter, EnergyWindow
from trainlab.measure.interleaved import (
    MARKED_SHARE,
    WARMUP_S,
    Rounds,
    by_phase,
    is_warm,
    load_of,
    turn_steps,
    warm_ms,
)
from trainlab.measure.steps import Steps, Stopwatch, running_steps, timed_ms
from trainlab.record.cost_record import ColdStep, CostRecord, EnergyRecord, TurnRecord
from trainlab.spec.study import CostSpec
from trainlab.train.callbacks import Instrument, Phase
from trainlab.train.setup import Setup

MAPS = Path("/proc/self/maps")


class PhaseMarks(Instrument):
    def __init__(self, mark: Callable[[str], None]) -> None:
        self._mark = mark

    def phase_ends(self, phase: Phase) -> None:
        self._mark(phase)


class ColdWatch:
    """Times the phases of single steps, waiting for the device after each: exact, but slow."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def observe(self, work: Callable[[], object]) -> ColdStep:
        """Runs one step, whose phases must be marked here."""
        self._phases_ms: dict[str, float] = {}
        self._in_phases: dict[str, Counter[str]] = {}
        synchronize(self._device)
        self._look()
        work()
        self.mark("other")
        whole = {name: sum(one[name] for one in self._in_phases.values()) for name in self._counts}
        not_here = dict.fromkeys(("libraries_loaded", "device_allocations"))
        told = {"phases_ms": self._phases_ms, "in_phases": self._in_phases}
        return ColdStep.model_validate({**told, **not_here, **whole})

    def mark(self, phase: str) -> None:
        synchronize(self._device)
        ms, before = (time.perf_counter_ns() - self._since) / 1e6, self._counts
        self._phases_ms[phase] = self._phases_ms.get(phase, 0.0) + ms
        after = self._look()
        gone = {name: count - before[name] for name, count in after.items()}
        self._in_phases.setdefault(phase, Counter()).update(gone)

    def _look(self) -> dict[str, int]:
        """What has been counted so far; what looking itself takes is in no phase."""
        counts = _counts(self._device)
        self._counts = counts | {"page_faults": _page_faults()}
        self._since = time.perf_counter_ns()
        return counts


def _counts(device: torch.device) -> dict[str, int]:
    """Running counts of this process, those that the system has; the difference over a phase is what
    happened in it."""
    counts = {"page_faults": _page_faults(), "modules_imported": len(sys.modules)}
    if MAPS.exists():
        lines = MAPS.read_text().splitlines()
        counts["libraries_loaded"] = len({line.split()[5] for line in lines if ".so" in line})
    if device.type == "cuda":
        counts["device_allocations"] = torch.cuda.memory_stats(device).get("num_device_alloc", 0)
    return counts


def _page_faults() -> int:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_minflt + used.ru_majflt


COLD_STEPS = 5
LAST_STEPS = 3


class StepTimer:
    """The steps of one trial, timed in turns that others may come between."""

    def __init__(self, setup: Setup, spec: CostSpec) -> None:
        self._setup, self._spec = setup, spec
        self._watch, self._cold = Stopwatch(setup.device), ColdWatch(setup.device)
        self._steps = Steps(setup, spec.mode)
        if self._steps.shows_phases:
            self._marked = self._steps.watched_by([PhaseMarks(self._watch.mark)])
            self._observed = self._steps.watched_by([PhaseMarks(self._cold.mark)])
        self._warmup_ms: list[float] = []
        self._first: list[ColdStep] = []
        self._turns: list[TurnRecord] = []
        self._step_ms: list[float] = []
        self._queued_ms = 0.0
        self._phase_steps: list[dict[str, float]] = []

    def warm_up(self) -> Footprint:
        """Runs steps until they no longer get faster; `warmup_steps` of them at least."""
        prepare_process(self._setup.settings)
        with running_steps(self._setup, self._spec.mode):
            num_first = min(COLD_STEPS, self._spec.warmup_steps) if self._steps.shows_phases else 0
            self._first = [self._observe() for _ in range(num_first)]
            self._warmup_ms = [sum(step.phases_ms.values()) for step in self._first]
            deadline = time.monotonic() + WARMUP_S
            while len(self._warmup_ms) < self._spec.warmup_steps or (
                not is_warm(self._warmup_ms[num_first:]) and time.monotonic() < deadline
            ):
                self._warmup_ms.append(timed_ms(self._setup.device, self._steps.next_bare))
        self._switched = switched()
        return footprint(self._setup.device)

    def turn(self, number: int) -> float:
        """One turn, in the round of that number; returns the median of its bare steps."""
        self._resume()
        before = cpu_times()
        num_bare, num_lead = turn_steps(warm_ms(self._warmup_ms))
        # Every other turn has marked steps, and these come first every other time.
        place = len(self._turns) % 4
        is_marked = place % 2 == 0 and self._steps.shows_phases
        num_marked = math.ceil(MARKED_SHARE * num_bare) if is_marked else 0
        with running_steps(self._setup, self._spec.mode):
            lead_ms, _ = self._run_bare(num_lead)
            if place == 0:
                self._run_marked(num_marked)
            bare_ms, queued_ms = self._run_bare(num_bare)
            if place == 2:
                self._run_marked(num_marked)
        others, stolen = cpu_times().cores_since(before)
        self._step_ms += bare_ms
        self._queued_ms += queued_ms
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

    def finish(self, bench: str, stopped: Literal["tight", "budget"]) -> CostRecord:
        """The record of all turns, after a last look at the energy of steps, at settled ones and at the
        smaller last batch."""
        steps, turns = self._steps, self._turns
        self._resume()
        with running_steps(self._setup, self._spec.mode):
            energy = self._energy()
            settled = [self._observe() for _ in self._first]
            last_ms = []
            if steps.last is not None:
                run_last = partial(steps.bare, steps.last)
                # The first of them meets a size it has not seen.
                last_ms = [timed_ms(self._setup.device, run_last) for _ in range(LAST_STEPS + 1)]
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
            queued_ms=self._queued_ms if self._setup.device.type == "cuda" else None,
            phases_ms=by_phase(self._phase_steps),
            last_ms=last_ms[1:],
            stopped=stopped,
            energy=energy,
            load=load_of(turns),
        )

    def _energy(self) -> EnergyRecord | None:
        """None, too, for a step that several processes share, each with a GPU of its own; and beyond the
        processes that were asked for: these are added for the time."""
        is_further = self._setup.trial.process > self._spec.processes
        if self._setup.settings.processes > 1 or is_further:
            return None
        if (meter := EnergyMeter.open(self._setup.device)) is None:
            return None
        window = EnergyWindow(meter, self._setup.device)
        self._steps.next_bare()
        while not window.step_ended():
            self._steps.next_bare()
        return window.record()

    def _resume(self) -> None:
        """The process as it was at the last turn: others may be timed in it meanwhile."""
        prepare_process(self._setup.settings)
        switch(self._switched)

    def _observe(self) -> ColdStep:
        return self._cold.observe(lambda: self._observed(next(self._steps.endless)))

    def _run_bare(self, count: int) -> tuple[list[float], float]:
        """Milliseconds of each, and how long this thread was busy with all."""
        self._watch.mark("start")
        begun_ns = time.perf_counter_ns()
        for _ in range(count):
            self._steps.next_bare()
            self._watch.mark("step")
        queued_ms = (time.perf_counter_ns() - begun_ns) / 1e6
        return [ms for _, ms in self._watch.laps_ms()], queued_ms

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
    return timer.finish("", Rounds(spec).run([timer]))
