"""Measures what a step costs: warm-up apart, bare steps for the time, marked steps for the phases.

Bare and marked rounds take turns, so that drift hits both alike and the difference between them is
what marking costs. Step times are only ever read from bare rounds.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal

import torch

from trainlab.machine.load import LoadMeter
from trainlab.measure.cold import ColdWatch
from trainlab.measure.stopwatch import Stopwatch, stopwatch_for, timed_ms
from trainlab.record.cost import CostRecord
from trainlab.spec.cost import CostSpec
from trainlab.stats.median import median_interval
from trainlab.train.batches import Batches
from trainlab.train.moments import Instrument, Moments, Phase
from trainlab.train.seeds import data_order, drawing_from
from trainlab.train.setup import Bench
from trainlab.train.step import make_step, make_test_step

ROUND_S = 0.05
"""Short, so that a bare round and the marked one beside it meet the same machine."""
MIN_ROUND_STEPS = 3
MIN_STEPS = 30
"""Bare steps without which no interval is called tight."""
COLD_STEPS = 5

Work = Callable[[], None]
"""Runs the next step."""


Run = Callable[[Any], None]
"""Runs the step of one batch."""


@dataclass(frozen=True)
class Steps:
    """The steps of one mode: what runs them and which batches they run on."""

    batches: Batches
    watched_by: Callable[[Sequence[Instrument]], Run]
    """The step, its phases told to these instruments."""
    bare: Run
    marked: Run
    """The same step, its phases told to the instruments given to `stepping`."""
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
    watch, load, cold = stopwatch_for(bench.device), LoadMeter(), ColdWatch(bench.device)
    with stepping(bench, spec.mode, PhaseMarks(watch)) as steps:
        bare, marked, watched = (
            _next_of(steps, run) for run in (steps.bare, steps.marked, steps.watched_by([cold]))
        )
        first = [cold.observe(watched) for _ in range(min(COLD_STEPS, spec.warmup_steps))]
        warmup_ms = [sum(step.phases_ms.values()) for step in first]
        warmup_ms += [timed_ms(bench.device, bare) for _ in range(spec.warmup_steps - len(first))]
        rounds = _Rounds(bare, marked, watch, _round_steps(bench, bare))
        deadline = time.monotonic() + spec.budget_s
        stopped: Literal["tight", "budget"] = "budget"
        while not rounds.phase_steps or time.monotonic() < deadline:
            rounds.run_both()
            if len(rounds.step_ms) >= MIN_STEPS and _is_tight(rounds.step_ms, spec.tight):
                stopped = "tight"
                break
        settled = [cold.observe(watched) for _ in range(COLD_STEPS)]
    phases = list(dict.fromkeys(name for step in rounds.phase_steps for name in step))
    return CostRecord(
        mode=spec.one_mode,
        batch_size=min(steps.batches.batch_size, steps.batches.num_samples),
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


@contextmanager
def stepping(bench: Bench, mode: str, *marks: Instrument) -> Iterator[Steps]:
    """The steps of a mode, ready to run inside this block and drawing from the trial's seed."""
    with drawing_from(bench.trial.seed, "dropout", bench.device):
        if mode == "train":
            bench.model.train()
            yield _training(bench, marks)
        else:
            bench.model.eval()
            with torch.no_grad():
                yield _inference(bench, marks)


def _training(bench: Bench, marks: Sequence[Instrument]) -> Steps:
    batches = bench.train_batches

    def watched_by(instruments: Sequence[Instrument]) -> Run:
        step = make_step(bench, Moments(instruments))
        return lambda rows: _forget(step(rows))

    def epoch(number: int) -> tuple[Any, ...]:
        return batches.rows(data_order(bench.trial.seed, number, batches.num_samples))

    return Steps(
        batches=batches,
        watched_by=watched_by,
        bare=watched_by([]),
        marked=watched_by(marks),
        endless=(rows for number in count(1) for rows in epoch(number) if _is_full(rows, batches)),
        one_pass=iter(epoch(1)),
    )


def _inference(bench: Bench, marks: Sequence[Instrument]) -> Steps:
    batches = bench.test_batches.resized(bench.settings.batch_size)

    def watched_by(instruments: Sequence[Instrument]) -> Run:
        step = make_test_step(bench, Moments(instruments))
        return lambda batch: _forget(step(*batch))

    return Steps(
        batches=batches,
        watched_by=watched_by,
        bare=watched_by([]),
        marked=watched_by(marks),
        endless=(b for _ in count(1) for b in batches.in_order() if _is_full(b[0], batches)),
        one_pass=batches.in_order(),
    )


def _is_full(batch: torch.Tensor, batches: Batches) -> bool:
    return len(batch) == min(batches.batch_size, batches.num_samples)


def _next_of(steps: Steps, run: Callable[[Any], None]) -> Work:
    return lambda: run(next(steps.endless))


def _forget(results: object) -> None:
    """A step's results are not kept: they would be memory the next step cannot reuse."""


def _round_steps(bench: Bench, work: Work) -> int:
    return max(MIN_ROUND_STEPS, int(ROUND_S * 1e3 / timed_ms(bench.device, work)))


def _is_tight(step_ms: list[float], share: float) -> bool:
    middle, low, high = median_interval(step_ms)
    return (high - low) <= share * middle
