"""A bench: one fresh process for every cell, all set up and warm, which take turns in short rounds.

As many stand ready together as memory allows. Where that is not all, the first stays and the others come
in blocks, so that the ratio of any to the first is formed within rounds.
"""

import math
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from itertools import groupby
from typing import Literal, Protocol

import numpy as np

from trainlab.errors import Interrupted
from trainlab.execute.attempt import Attempt
from trainlab.execute.planned_run import IsOver, add_groups, has_run
from trainlab.execute.worker import ScriptTimer, set_up_cost
from trainlab.machine.device import Footprint, footprint
from trainlab.machine.process_state import prepare_process, random_layout
from trainlab.measure.interleaved import Rounds, TurnTaker
from trainlab.measure.timing import StepTimer
from trainlab.plan import Group, bench_of
from trainlab.record.run_folder import RunFolder
from trainlab.record.trial_record import TrialRecord
from trainlab.spec import CostSpec, Study
from trainlab.stats.cost_ratio import compare_costs, levels
from trainlab.train.engines.ddp import dismiss_crew
from trainlab.train.loader import Loader

# Whether the ratios between the cells of a study are known as well as was asked for.

Row = tuple[str, bool, str | None]
"""A cell, whether it is the second of an A/A pair, and whose weights it has."""


def is_precise(run: RunFolder, study: Study, mode: str) -> bool:
    """In that mode, from the records so far: how wide the intervals are, never what they show. Measuring
    until a difference is found would find one."""
    assert study.cost is not None
    benches: dict[str, dict[Row, dict[int, float]]] = {}
    for trial in run.trials():
        if (trial.watch, trial.mode, trial.state) == ("steps", mode, "done"):
            record = run.trial(trial.id).cost.read()
            benches.setdefault(record.bench, {})[_row(trial)] = record.quiet_medians_ms()
    rows = list(dict.fromkeys(row for bench in benches.values() for row in bench))
    figures = np.full((len(rows), len(benches)), math.nan)
    for column, bench in enumerate(benches.values()):
        for row, level in zip(bench, levels(list(bench.values())), strict=True):
            figures[rows.index(row), column] = level
    places = {row: place for place, row in enumerate(rows)}
    firsts = [row for row in rows if not row[1]]
    pairs = [(places[firsts[0]], places[row]) for row in firsts[1:]]
    twice = [
        (places[first], places[row])
        for row in rows
        if row[1] and (first := (row[0], False, row[2])) in places
    ]
    found = compare_costs(figures, pairs, twice)
    widths = [comparison.half_width for comparison in found]
    return all(width is not None and width <= study.cost.ratio_within for width in widths)


def _row(trial: TrialRecord) -> Row:
    return trial.cell, trial.again, trial.weights_of


MOST_READY = 12
"""Processes that take turns in one block: more would stretch a round over seconds."""

RunBench = Callable[[Sequence[Group]], None]


class Seat(TurnTaker, Protocol):
    """A timed trial, in this process or another; one that has ended does nothing more."""

    @property
    def has_ended(self) -> bool:
        """Whether it is finished or has failed."""

    def warm_up(self) -> Footprint | None:
        """Sets it up and runs its steps until they are warm; None where it failed."""

    def finish(self, bench: str, stopped: Literal["tight", "budget"]) -> None:
        """Writes its record."""


def run_seats(
    seats: Sequence[Seat],
    spec: CostSpec,
    name: str,
    report: Callable[[float], None],
    most_ready: int | None = None,
) -> None:
    """Lets the seats of a bench take turns until each has its record, so many in one block at most;
    `report` is told the share done."""
    rounds, token = Rounds(spec, name), uuid.uuid4().hex[:12]
    total = len(seats)
    reference: Seat | None = None
    waiting = list(seats)
    stopped: Literal["tight", "budget"] = "budget"
    while waiting:
        begun = total - len(waiting)
        ready = _warm_block(waiting, reference, most_ready or MOST_READY)
        if not ready:
            return
        until = total - len(waiting)

        def report_block(share: float, begun: int = begun, until: int = until) -> None:
            report((begun + share * (until - begun)) / total)

        stopped = rounds.run(ready, report_block)
        alive = [seat for seat in ready if not seat.has_ended]
        reference = alive[0] if alive else None
        for seat in alive[1:]:
            seat.finish(token, stopped)
    if reference is not None:
        reference.finish(token, stopped)


def _warm_block(waiting: list[Seat], reference: Seat | None, most_ready: int) -> list[Seat]:
    """The reference and as many of those waiting as fit beside it, set up and warm, one after the other."""
    ready = [] if reference is None else [reference]
    fits = True
    while waiting and len(ready) < most_ready and (fits or len(ready) < 2):
        seat = waiting.pop(0)
        if (found := seat.warm_up()) is not None:
            ready.append(seat)
            fits = found.fits_again()
    return ready


def run_benches(
    run: RunFolder, study: Study, groups: Sequence[Group], run_bench: RunBench, is_over: IsOver
) -> None:
    """Runs the benches that these groups make up, but for those that have run; then, where all that were
    planned have run, further ones until every ratio is known to the precision asked for, or time is up."""
    spec = study.cost
    assert spec is not None
    benches = {name: list(members) for name, members in groupby(groups, lambda one: one.bench)}
    bench_s = 0.0
    for members in benches.values():
        if is_over():
            return
        if not has_run(run, members):
            bench_s = max(bench_s, _timed_s(run_bench, members))
    deadline_s = time.monotonic() + spec.extra_s
    if any(f"{mode}-{spec.processes}" not in benches for mode in spec.modes):
        return
    last = {mode: _last_number(mode, benches) for mode in spec.modes}
    while True:
        wanting = [
            mode
            for mode, number in last.items()
            if number < spec.max_processes and not is_precise(run, study, mode)
        ]
        for mode in wanting:
            if is_over() or time.monotonic() + bench_s > deadline_s:
                return
            last[mode] += 1
            members = list(bench_of(study, mode, last[mode]))
            add_groups(run, members)
            bench_s = max(bench_s, _timed_s(run_bench, members))
        if not wanting:
            return


def _last_number(mode: str, benches: Iterable[str | None]) -> int:
    kinds = (name.rpartition("-") for name in benches if name is not None)
    return max(int(number) for kind, _, number in kinds if kind == mode)


def _timed_s(run_bench: RunBench, members: Sequence[Group]) -> float:
    start_s = time.monotonic()
    run_bench(members)
    return time.monotonic() - start_s


# TimedTrial: a cost trial whose steps are timed in turns, with a record of it whatever happens.


class TimedTrial:
    """One seat of a bench, in this process. Once it has failed it takes no more turns."""

    def __init__(
        self,
        run: RunFolder,
        trial_id: str,
        environment: str,
        load: Loader,
        token: str | None = None,
    ) -> None:
        self._run, self._load = run, load
        self._attempt = Attempt(run.trial(trial_id), environment, token)
        self._timer: StepTimer | ScriptTimer | None = None
        self._layout = ExitStack()
        self._is_running = self._has_ended = False

    @property
    def has_ended(self) -> bool:
        """Whether it is finished or has failed."""
        return self._has_ended

    def warm_up(self) -> Footprint | None:
        """Sets the trial up and runs its steps until they are warm; None where that fails."""
        self._attempt.begin()
        self._is_running = True
        found: Footprint | None = None
        with self._attempt:
            script = self._run.study().to_study(str(self._run.study_file)).script
            if script is not None:
                self._timer = ScriptTimer(self._attempt, script)
                found = self._timer.warm_up()
            else:
                found = self._warm_up_steps()
        if found is None:
            self._end()
        return found

    def _warm_up_steps(self) -> Footprint:
        cost = self._attempt.trial.cost
        assert cost is not None
        # Where memory comes from is settled first: it is that which is to lie elsewhere.
        prepare_process(self._attempt.trial.settings)
        self._layout.enter_context(random_layout())
        setup = set_up_cost(self._run, self._attempt, self._load)
        self._timer = timer = StepTimer(setup, cost)
        timer.warm_up()
        return footprint(setup.device)

    def turn(self, number: int) -> float | None:
        """A turn in the round of that number: its median step in ms; None where it failed."""
        if self._timer is None:
            return None
        median_ms: float | None = None
        with self._attempt:
            median_ms = self._timer.turn(number)
        if median_ms is None:
            self._end()
        return median_ms

    def finish(self, bench: str, stopped: Literal["tight", "budget"]) -> None:
        """Writes what was measured, and that the trial is done."""
        if self._timer is None:
            return
        with self._attempt:
            self._attempt.folder.cost.write(self._timer.finish(bench, stopped))
            self._attempt.progress.state = "done"
        self._end()

    def abandon(self) -> None:
        """Records a trial that was under way as interrupted."""
        if self._is_running:
            with self._attempt:
                raise Interrupted
            self._close()

    def _end(self) -> None:
        self._close()
        self._attempt.pass_on_interrupt()

    def _close(self) -> None:
        dismiss_crew()
        if isinstance(self._timer, ScriptTimer):
            self._timer.close()
        self._layout.close()
        self._timer, self._is_running, self._has_ended = None, False, True
        self._attempt.end()
