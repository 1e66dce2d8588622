"""Measures what a step costs: warm-up apart, bare steps for the time, marked steps for the phases.

Bare and marked rounds take turns, so that drift hits both alike and the difference between them is
what marking costs. Step times are only ever read from bare rounds.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal

import torch

from trainlab.record.machine import LoadMeter
from trainlab.record.schema import CostRecord
from trainlab.record.spread import median_interval
from trainlab.spec.cost import CostSpec
from trainlab.train.batches import Batches
from trainlab.train.bench import Bench
from trainlab.train.device import synchronize
from trainlab.train.moments import Instrument, Moments, Phase
from trainlab.train.seeds import data_order, drawing_from
from trainlab.train.step import make_step, make_test_step
from trainlab.train.stopwatch import Stopwatch, stopwatch_for

ROUND_S = 0.2
MIN_ROUND_STEPS = 3
MIN_STEPS = 30
"""Bare steps without which no interval is called tight."""

Work = Callable[[], None]
"""Runs the next step."""


@dataclass(frozen=True)
class Steps:
    """The steps of one mode: what runs them and which batches they run on."""

    batches: Batches
    bare: Callable[[Any], None]
    marked: Callable[[Any], None]
    """The same step, its phases told to an instrument."""
    endless: Iterator[Any]
    """Full batches, epoch after epoch: a smaller last one would pass for a faster step."""
    one_pass: Iterator[Any]
    """Every batch of one epoch or pass, the smaller last one included."""


class PhaseMarks(Instrument):
    """Marks the end of every phase on a stopwatch."""

    def __init__(self, watch: Stopwatch) -> None:
        self._mark = watch.mark

    def phase_ends(self, phase: Phase) -> None:
        self._mark(phase)


def measure(bench: Bench, spec: CostSpec) -> CostRecord:
    """Warms up, then alternates bare and marked rounds until the interval is tight or time is up."""
    watch, load = stopwatch_for(bench.device), LoadMeter()
    with stepping(bench, spec.mode, PhaseMarks(watch)) as steps:
        bare, marked = (_next_of(steps, run) for run in (steps.bare, steps.marked))
        warmup_ms = [_timed_ms(bench, bare) for _ in range(spec.warmup_steps)]
        round_steps = max(MIN_ROUND_STEPS, int(ROUND_S * 1e3 / _timed_ms(bench, bare)))
        step_ms: list[float] = []
        phase_steps: list[dict[str, float]] = []
        deadline = time.monotonic() + spec.budget_s
        stopped: Literal["tight", "budget"] = "budget"
        while not phase_steps or time.monotonic() < deadline:
            step_ms += _bare_round(bare, watch, round_steps)
            phase_steps += _marked_round(marked, watch, round_steps)
            if len(step_ms) >= MIN_STEPS and _is_tight(step_ms, spec.tight):
                stopped = "tight"
                break
    phases = list(dict.fromkeys(name for step in phase_steps for name in step))
    return CostRecord(
        mode=spec.mode,
        batch_size=min(steps.batches.batch_size, steps.batches.num_samples),
        num_samples=steps.batches.num_samples,
        steps_per_epoch=len(steps.batches),
        warmup_ms=warmup_ms,
        step_ms=step_ms,
        phases_ms={name: [step.get(name, 0.0) for step in phase_steps] for name in phases},
        stopped=stopped,
        load=load.read(),
    )


@contextmanager
def stepping(bench: Bench, mode: str, marks: Instrument) -> Iterator[Steps]:
    """The steps of a mode, ready to run inside this block and drawing from the trial's seed."""
    with drawing_from(bench.trial.seed, "dropout", bench.device):
        if mode == "train":
            bench.model.train()
            yield _training(bench, marks)
        else:
            bench.model.eval()
            with torch.no_grad():
                yield _inference(bench, marks)


def _training(bench: Bench, marks: Instrument) -> Steps:
    batches = bench.train_batches
    bare, marked = (make_step(bench, Moments(watching)) for watching in ([], [marks]))

    def epoch(number: int) -> tuple[Any, ...]:
        return batches.rows(data_order(bench.trial.seed, number, batches.num_samples))

    return Steps(
        batches=batches,
        bare=lambda rows: _forget(bare(rows)),
        marked=lambda rows: _forget(marked(rows)),
        endless=(rows for number in count(1) for rows in epoch(number) if _is_full(rows, batches)),
        one_pass=iter(epoch(1)),
    )


def _inference(bench: Bench, marks: Instrument) -> Steps:
    batches = Batches(bench.dataset.test, bench.settings.batch_size, bench.device)
    bare, marked = (make_test_step(bench, Moments(watching)) for watching in ([], [marks]))
    return Steps(
        batches=batches,
        bare=lambda batch: _forget(bare(*batch)),
        marked=lambda batch: _forget(marked(*batch)),
        endless=(b for _ in count(1) for b in batches.in_order() if _is_full(b[0], batches)),
        one_pass=batches.in_order(),
    )


def _is_full(batch: torch.Tensor, batches: Batches) -> bool:
    return len(batch) == min(batches.batch_size, batches.num_samples)


def _next_of(steps: Steps, run: Callable[[Any], None]) -> Work:
    return lambda: run(next(steps.endless))


def _forget(results: object) -> None:
    """A step's results are not kept: they would be memory the next step cannot reuse."""


def _timed_ms(bench: Bench, work: Work) -> float:
    """One step by itself, the device waited for on both sides."""
    synchronize(bench.device)
    start = time.perf_counter_ns()
    work()
    synchronize(bench.device)
    return (time.perf_counter_ns() - start) / 1e6


def _bare_round(work: Work, watch: Stopwatch, steps: int) -> list[float]:
    watch.mark("start")
    for _ in range(steps):
        work()
        watch.mark("step")
    return [ms for _, ms in watch.laps_ms()]


def _marked_round(work: Work, watch: Stopwatch, steps: int) -> list[dict[str, float]]:
    watch.mark("start")
    for _ in range(steps):
        work()
        watch.mark("other")
    found: list[dict[str, float]] = [{}]
    for name, ms in watch.laps_ms():
        found[-1][name] = found[-1].get(name, 0.0) + ms
        if name == "other":
            found.append({})
    return found[:-1]


def _is_tight(step_ms: list[float], share: float) -> bool:
    middle, low, high = median_interval(step_ms)
    return (high - low) <= share * middle
