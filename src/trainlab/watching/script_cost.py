"""The steps of a script timed in turns: the script stands still between them, in the hook of an update.

Bare steps are those of which only batches and updates are seen; the parts of a step come from others, of
which all is. A step that fetches more batches than usual is set aside: it holds a test, or the start of a
pass over the data.
"""

import math
import statistics
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
from torch.profiler import record_function

from trainlab.errors import SpecError
from trainlab.machine.device import footprint, synchronize
from trainlab.machine.load import cpu_times
from trainlab.measure.energy_meter import EnergyMeter, EnergyWindow
from trainlab.measure.interleaved import (
    MARKED_SHARE,
    MIN_TURN_STEPS,
    WARMUP_S,
    by_phase,
    is_warm,
    load_of,
    turn_steps,
    warm_ms,
)
from trainlab.measure.operator_profile import END_OF, END_OF_STEP, Tally, add_chunk, profiler_for
from trainlab.measure.steps import Stopwatch
from trainlab.record.cost_record import CostRecord, EnergyRecord, OperatorsRecord, TurnRecord
from trainlab.record.files import replacing, temporary_folder
from trainlab.spec import CostSpec
from trainlab.watching.hooks import LIGHT, WHOLE
from trainlab.watching.timeline import PARTS, parts_ms
from trainlab.watching.tracer import Refused, Tracer
from trainlab.watching.watched_run import samples_per_update

Protocol = Generator[None, None, None]
"""Goes on at the end of every step."""
ONE_UPDATE = "the script makes one update each time it runs; give it more, as by its own arguments"
"""Its time cannot be told from that of the script's start."""
MOST_SET_ASIDE = 4
"""Times as many steps as are wanted, at most, are run for them."""
WINDOW_MS = 250.0
"""Of a turn that counts all that happens in it."""
MOST_RUNS = 50
"""They end after the script has run so many times, however few updates it makes."""


class Turns:
    """Obeys commands at the ends of steps."""

    _counts_energy = True

    def __init__(
        self,
        tracer: Tracer,
        warmup_steps: int,
        next_command: Callable[[], list[str]],
        answer: Callable[..., None],
    ) -> None:
        self._tracer, self._num_warmup = tracer, warmup_steps
        self._next_command, self._answer = next_command, answer
        self._stopwatch: Stopwatch | None = None
        self._warmup_ms: list[float] = []
        self._fetches: Counter[int] = Counter()
        self._step_ms: list[float] = []
        self._phase_steps: list[dict[str, float]] = []
        self._turns: list[TurnRecord] = []
        self._memory: list[tuple[int, int]] = []

    def protocol(self) -> Generator[None, None, CostRecord]:
        """What is done from the first step on, which is seen whole; ends with the record."""
        yield from self._warm_up()
        self._answer(footprint=asdict(footprint(self._tracer.device)))
        while command := self._next_command():
            match command:
                case ["turn", number]:
                    before = cpu_times()
                    turn_ms, counts = yield from self._turn(int(number))
                    others, stolen = cpu_times().cores_since(before)
                    counts |= {"others_cores": others, "stolen_cores": stolen}
                    self._turns.append(TurnRecord(round=int(number), **counts))
                    self._answer(turn_ms=turn_ms)
                case ["finish", bench]:
                    energy = yield from self._energy()
                    return self._finished(bench, energy)
                case _:
                    raise AssertionError(command)
        raise SystemExit(1)  # whoever gave commands is gone

    def script_ended(self) -> None:
        """The script has come to its end, and may run again."""

    def _warm_up(self) -> Protocol:
        before_s = time.perf_counter()
        synchronize(self._tracer.device)
        waited_ms = 1e3 * (time.perf_counter() - before_s)
        # The first step of the process, without the start of the script.
        self._warmup_ms = [self._tracer.steps_ns[-1] / 1e6 + waited_ms]
        self._tracer.see(LIGHT)
        self._stopwatch = Stopwatch(self._tracer.device)
        deadline_s = time.monotonic() + WARMUP_S
        while len(self._warmup_ms) < self._num_warmup or (
            not is_warm(self._warmup_ms[1:]) and time.monotonic() < deadline_s
        ):
            self._warmup_ms += yield from self._bare(1)

    def _turn(self, number: int) -> Generator[None, None, tuple[float, dict[str, Any]]]:
        """The median step, and for the record the steps of the lead, and how many bare and marked ones."""
        num_bare, num_lead = turn_steps(warm_ms(self._warmup_ms))
        place = len(self._turns) % 4
        num_marked = math.ceil(MARKED_SHARE * num_bare) if place % 2 == 0 else 0
        lead_ms = yield from self._bare(max(num_lead, self._num_queued))
        marked_before = len(self._phase_steps)
        if place == 0:
            yield from self._marked(num_marked)
        bare_ms = yield from self._bare(num_bare)
        if place == 2:
            yield from self._marked(num_marked)
        self._step_ms += bare_ms
        num_marked = len(self._phase_steps) - marked_before
        counts = {"lead_ms": lead_ms, "num_bare": len(bare_ms), "num_marked": num_marked}
        return statistics.median(bare_ms), counts

    def _bare(self, count: int) -> Generator[None, None, list[float]]:
        """So many steps, those set aside not counted; they count where there are no others."""
        tracer, stopwatch = self._tracer, self._stopwatch
        assert stopwatch is not None
        tracer.see(LIGHT)
        kept: list[float] = []
        all_ms: list[float] = []
        stopwatch.mark("start")
        for _ in range(MOST_SET_ASIDE * count):
            fetched = tracer.num_fetched
            tracer.was_restarted = False
            yield
            stopwatch.mark("step")
            laps = stopwatch.laps_ms()
            stopwatch.mark("start")
            if tracer.was_restarted:
                continue
            self._fetches[tracer.num_fetched - fetched] += 1
            ((_, ms),) = laps
            all_ms.append(ms)
            usual, _ = self._fetches.most_common(1)[0]
            if tracer.num_fetched - fetched <= usual:
                kept.append(ms)
            if len(kept) == count:
                break
        stopwatch.laps_ms()
        if not all_ms:
            raise Refused(SpecError([ONE_UPDATE]))
        return kept or all_ms[-count:]

    def _marked(self, count: int) -> Protocol:
        tracer, stopwatch = self._tracer, self._stopwatch
        assert stopwatch is not None
        tracer.see(WHOLE)
        on_device = self._tracer.device.type == "cuda"
        tracer.timeline.stopwatch = stopwatch if on_device else None
        for _ in range(count):
            stopwatch.mark("start")
            tracer.was_restarted = False
            yield
            stopwatch.mark("other")
            laps = stopwatch.laps_ms()
            if tracer.was_restarted:
                continue
            step = dict.fromkeys(PARTS, 0.0)
            if on_device:
                for name, ms in laps:
                    step[name] += ms
                self._phase_steps.append({n: ms for n, ms in step.items() if ms})
            else:
                parts = parts_ms([tracer.timeline.latest[-1]])
                self._phase_steps.append({name: values[0] for name, values in parts.items()})
        tracer.timeline.stopwatch = None
        tracer.see(LIGHT)

    def _energy(self) -> Generator[None, None, EnergyRecord | None]:
        """Of steps in a row, with all that the script does between them; None where it starts anew."""
        self._tracer.see(LIGHT)
        meter = EnergyMeter.open(self._tracer.device) if self._counts_energy else None
        if meter is None:
            return None
        window = EnergyWindow(meter, self._tracer.device)
        self._tracer.was_restarted = False
        yield
        while not window.step_ended() and not self._tracer.was_restarted:
            yield
        return None if self._tracer.was_restarted else window.record()

    def _finished(self, bench: str, energy: EnergyRecord | None) -> CostRecord:
        batch_size = samples_per_update(self._tracer) or 1
        num_samples = self._samples_per_epoch or batch_size
        return CostRecord(
            mode="train",
            batch_size=batch_size,
            num_samples=num_samples,
            steps_per_epoch=math.ceil(num_samples / batch_size),
            warmup_ms=self._warmup_ms,
            cold=[],
            settled=[],
            bench=bench,
            turns=self._turns,
            step_ms=self._step_ms,
            phases_ms=by_phase(self._phase_steps),
            energy=energy,
            memory=self._memory,
            load=load_of(self._turns),
        )

    @property
    def _num_queued(self) -> int:
        """Batches that workers have made ready while the script stood still: they come too soon."""
        loader = self._tracer.log.trained_loader
        return 0 if loader is None or not loader.num_workers else 2 * loader.num_workers + 1

    @property
    def _samples_per_epoch(self) -> int | None:
        """What a pass over the loader gives: fewer than its data where the last batch is dropped, or
        as many as a sampler draws."""
        loader = self._tracer.log.trained_loader
        if loader is None or loader.num_batches is None or not loader.batch_size:
            return None if loader is None else loader.num_samples
        num_samples = loader.num_samples
        if num_samples and math.ceil(num_samples / loader.batch_size) == loader.num_batches:
            return num_samples
        return loader.num_batches * loader.batch_size


class MeanTurns(Turns):
    """Turns that count all that happens in them: tests, logging, the ends of passes over the data, what the
    script does after its last update, but not what it does before its first. A turn gives the mean time of
    an update: what happens now and then counts by how often it does."""

    _counts_energy = False
    _spent_s = 0.0
    """Of the turn under way."""
    _since_s: float | None = None
    """When what counts began; None: nothing counts now."""
    _num_runs = 0

    def script_ended(self) -> None:
        """What it did since its last update counts."""
        self._stop()
        self._num_runs += 1

    def _turn(self, number: int) -> Generator[None, None, tuple[float, dict[str, Any]]]:
        tracer = self._tracer
        tracer.see(LIGHT)
        # Batches that workers have made ready while the script stood still do not count.
        for _ in range(self._num_queued):
            yield
        self._spent_s, runs_before = 0.0, self._num_runs
        self._go_on()
        wanted = max(MIN_TURN_STEPS, math.ceil(WINDOW_MS / warm_ms(self._warmup_ms)))
        num_steps = 0
        while num_steps < wanted and self._num_runs - runs_before < MOST_RUNS:
            tracer.was_restarted = False
            yield
            if tracer.was_restarted:
                self._go_on()  # of a script that runs again: its start counts nowhere
            else:
                num_steps += 1
        self._stop()
        mean_ms = max(1e-6, 1e3 * self._spent_s / max(1, num_steps))
        self._step_ms.append(mean_ms)
        if not self._num_runs:  # then its memory is free for the next run
            self._memory.append((tracer.num_updates, psutil.Process().memory_info().rss))
        return mean_ms, {"lead_ms": [], "num_bare": 1, "num_marked": 0}

    def _go_on(self) -> None:
        synchronize(self._tracer.device)
        self._since_s = time.perf_counter()

    def _stop(self) -> None:
        if self._since_s is not None:
            synchronize(self._tracer.device)
            self._spent_s += time.perf_counter() - self._since_s
            self._since_s = None


class _Marks(Stopwatch):
    """Leaves a named mark in the profile where a part ends."""

    def mark(self, label: str) -> None:
        with record_function(END_OF + label):
            pass

    def laps_ms(self) -> list[tuple[str, float]]:
        return []


def profiled_window(
    tracer: Tracer, cost: CostSpec, trace_file: Path
) -> Generator[None, None, OperatorsRecord | None]:
    """A window of a script's steps under torch's profiler, in a process whose speed is never reported:
    warm-up, steps without the profiler, one that is not counted, and those that are. None where another
    framework computes them, which it does not see."""
    if not tracer.log.is_of_torch:
        return None
    for _ in range(cost.warmup_steps):
        yield
    device = tracer.device
    tracer.see(LIGHT)
    stopwatch = Stopwatch(device)
    stopwatch.mark("start")
    for _ in range(cost.active_steps):
        yield
        stopwatch.mark("step")
    bare_ms = [ms for _, ms in stopwatch.laps_ms()]
    # A test in between would make a step many times as long.
    usual_ms = statistics.median(bare_ms)
    tracer.see(WHOLE)
    tracer.timeline.stopwatch = _Marks(device)
    profiler = profiler_for(device, by_shape=cost.by_shape)
    profiler.__enter__()
    for _ in range(cost.active_steps + 1):
        yield
        synchronize(device)
        with record_function(END_OF_STEP):
            pass
    profiler.__exit__(None, None, None)
    tracer.timeline.stopwatch = None
    tally = Tally(by_shape=cost.by_shape)
    add_chunk(tally, profiler.events())
    trace_steps = 0
    with temporary_folder() as folder, suppress(RuntimeError):
        part = folder / trace_file.name
        profiler.export_chrome_trace(str(part))
        if part.stat().st_size <= cost.trace_mb * 1e6:
            with replacing(trace_file) as final:
                final.write_bytes(part.read_bytes())
            trace_steps = cost.active_steps
    return tally.record(
        mode="train",
        batch_size=samples_per_update(tracer) or 1,
        bare_ms=[ms for ms in bare_ms if ms < 3 * usual_ms],
        trace_steps=trace_steps,
    )
