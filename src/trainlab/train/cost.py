"""Measures what a step costs: warm-up apart, bare steps for the time, marked steps for the phases.

Bare and marked rounds take turns, so that drift hits both alike and the difference between them is
what marking costs. Step times are only ever read from bare rounds.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Literal

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


class PhaseMarks(Instrument):
    """Marks the end of every phase on a stopwatch."""

    def __init__(self, watch: Stopwatch) -> None:
        self._mark = watch.mark

    def phase_ends(self, phase: Phase) -> None:
        self._mark(phase)


def measure(bench: Bench, spec: CostSpec) -> CostRecord:
    """Warms up, then alternates bare and marked rounds until the interval is tight or time is up."""
    watch, load = stopwatch_for(bench.device), LoadMeter()
    with ExitStack() as stack:
        stack.enter_context(drawing_from(bench.trial.seed, "dropout", bench.device))
        batches, bare, marked = _work(bench, spec.mode, PhaseMarks(watch), stack)
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
        batch_size=min(batches.batch_size, batches.num_samples),
        num_samples=batches.num_samples,
        steps_per_epoch=len(batches),
        warmup_ms=warmup_ms,
        step_ms=step_ms,
        phases_ms={name: [step.get(name, 0.0) for step in phase_steps] for name in phases},
        stopped=stopped,
        load=load.read(),
    )


def _work(
    bench: Bench, mode: str, marks: Instrument, stack: ExitStack
) -> tuple[Batches, Work, Work]:
    """What is measured: its batches, a bare step and a marked one, over the same stream of batches."""
    if mode == "train":
        bench.model.train()
        batches = bench.train_batches
        rows = _rows(bench)
        bare, marked = (make_step(bench, Moments(watching)) for watching in ([], [marks]))
        return batches, lambda: _forget(bare(next(rows))), lambda: _forget(marked(next(rows)))
    bench.model.eval()
    stack.enter_context(torch.no_grad())
    batches = Batches(bench.dataset.test, bench.settings.batch_size, bench.device)
    pieces = _pieces(batches)
    run, run_marked = (make_test_step(bench, Moments(watching)) for watching in ([], [marks]))
    return batches, lambda: _forget(run(*next(pieces))), lambda: _forget(run_marked(*next(pieces)))


def _forget(results: object) -> None:
    """A step's results are not kept: they would be memory the next step cannot reuse."""


def _rows(bench: Bench) -> Iterator[torch.Tensor]:
    """Full batches of one shuffled epoch after another."""
    batches, epoch = bench.train_batches, 0
    while True:
        epoch += 1
        pieces = batches.rows(data_order(bench.trial.seed, epoch, batches.num_samples))
        yield from (piece for piece in pieces if len(piece) == len(pieces[0]))


def _pieces(batches: Batches) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Full batches of the test set, over and over."""
    size = min(batches.batch_size, batches.num_samples)
    while True:
        yield from (piece for piece in batches.in_order() if len(piece[0]) == size)


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
