"""A bench: a fresh process for every cell, or one for all cells on a GPU, all set up and warm, which take
turns in short rounds.

As many stand ready together as memory allows. Where that is not all, the first stays and the others come
in blocks, so that the ratio of any to the first is formed within rounds.
"""

import math
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import groupby
from typing import Protocol

from trainlab.execute.attempt import Attempt, EventWriter
from trainlab.execute.planned_run import IsOver, add_groups, has_run
from trainlab.machine.host import Footprint
from trainlab.measure.interleaved import Rounds, TurnTaker
from trainlab.plan import Group, bench_of
from trainlab.record.cost_record import CostRecord
from trainlab.record.run_folder import RunFolder
from trainlab.record.study_record import Event
from trainlab.spec import Study

MOST_READY = 12
"""Processes that take turns in one block: more would stretch a round over seconds."""


class Seat(TurnTaker, Protocol):
    """A timed trial, in this process or another; one that has ended does nothing more."""

    has_ended: bool
    """Whether it is finished or has failed."""

    def begin(self) -> object:
        """Starts what may start beside others, a script; the others begin as they warm up."""

    def warm_up(self) -> Footprint | None:
        """Sets it up and runs its steps until they are warm; None where it failed."""

    def finish(self, bench: str) -> None:
        """Writes its record."""


class Timer(Protocol):
    """Times the steps of a trial that is set up."""

    def warm_up(self) -> Footprint:
        """Runs steps until they are warm."""

    def turn(self, number: int) -> float:
        """A turn in the round of that number: its median step in ms."""

    def finish(self, bench: str) -> CostRecord:
        """What was measured."""


class TimedTrial:
    """A cost trial whose steps are timed in turns, in this process, with a record of it whatever happens.
    Once it has failed it takes no more turns."""

    def __init__(
        self,
        attempt: Attempt,
        make_timer: Callable[[Attempt, ExitStack], Timer],
        *,
        is_script: bool = False,
    ) -> None:
        """`make_timer` sets the trial up; what it puts on the stack is undone at the end."""
        self._attempt, self._make_timer, self._is_script = attempt, make_timer, is_script
        self._timer: Timer | None = None
        self._open = ExitStack()
        self.has_ended = False

    def begin(self) -> bool | None:
        """Starts the process of a script; None where that fails."""
        if self._is_script and self._timer is None and not self.has_ended:
            self._set_up()
            if self._timer is None:
                self._end()
        return None if self.has_ended else True

    def _set_up(self) -> None:
        self._attempt.begin()
        with self._attempt:
            self._timer = self._make_timer(self._attempt, self._open)

    def warm_up(self) -> Footprint | None:
        if self.has_ended:
            return None
        if self._timer is None:
            self._set_up()
        found: Footprint | None = None
        with self._attempt:
            if self._timer is not None:
                found = self._timer.warm_up()
        if found is None:
            self._end()
        return found

    def turn(self, number: int) -> float | None:
        median_ms: float | None = None
        if self._timer is not None:
            with self._attempt:
                median_ms = self._timer.turn(number)
            if median_ms is None:
                self._end()
        return median_ms

    def finish(self, bench: str) -> None:
        if self._timer is not None:
            with self._attempt:
                self._attempt.folder.cost.write(self._timer.finish(bench))
                self._attempt.progress.state = "done"
            self._end()

    def abandon(self) -> None:
        """Records a trial that was under way as interrupted."""
        self._close()
        self._attempt.interrupt()

    def _end(self) -> None:
        self._close()
        self._attempt.end()
        self._attempt.pass_on_interrupt()

    def _close(self) -> None:
        self._timer, self.has_ended = None, True
        self._open.close()


def take_turns(
    seats: Sequence[Seat],
    groups: Sequence[Group],
    events: EventWriter,
    until_s: float,
    turns_s: float | None = None,
) -> None:
    """Lets the seats of a bench take turns until each has its record, and tells how far they are. The turns
    end by then, on the clock that never goes back, but for the few that each has in any case.
    `turns_s`: for all of them; not given: `turns_s` of the study for each."""
    spec, trial_ids = groups[0].trials[0].cost, tuple(one for group in groups for one in group.ids)
    assert spec is not None
    rounds, token = Rounds(spec, groups[0].bench or ""), uuid.uuid4().hex[:12]
    reference: Seat | None = None
    waiting = list(seats)
    events.write(Event(kind="group_begins", trials=trial_ids))
    while waiting:
        begun = len(seats) - len(waiting)
        ready = [] if reference is None else [reference]
        fits = True  # beside those that stand ready
        while waiting and len(ready) < MOST_READY and (fits or len(ready) < 2):
            seat = waiting.pop(0)
            if (found := seat.warm_up()) is not None:
                ready.append(seat)
                fits = found.fits_again()
                if len(ready) == 1 and found.fits_again(len(waiting)):
                    for other in waiting:
                        other.begin()
        if not ready:
            break
        until = len(seats) - len(waiting)

        def report(share: float, begun: int = begun, until: int = until) -> None:
            done = (begun + share * (until - begun)) / len(seats)
            events.write(Event(kind="progress", trials=trial_ids[:1], share=done))

        # Of several blocks each gets its part.
        left_s = (until_s - time.monotonic()) / (len(seats) - begun)
        each_s = spec.turns_s if turns_s is None else turns_s / len(seats)
        most_s = min(left_s, each_s) * (until - begun)
        rounds.run(ready, report, most_s)
        alive = [seat for seat in ready if not seat.has_ended]
        reference = alive[0] if alive else None
        for seat in alive[1:]:
            seat.finish(token)
    if reference is not None:
        reference.finish(token)
    events.write(Event(kind="group_ends", trials=trial_ids))


RunBench = Callable[[Sequence[Group], float], None]
"""Runs the groups of a bench, whose turns end by that time."""


def run_benches(
    run: RunFolder,
    study: Study,
    groups: Sequence[Group],
    run_bench: RunBench,
    is_over: IsOver,
    events: EventWriter,
    num_repeats: int = 1,
) -> None:
    """Runs the benches that these groups make up, but for those that have run; then, where all that were
    planned have run, further ones, `num_repeats` times as many at least, until every ratio is known to the
    precision asked for, or the time for them is spent."""
    spec = study.cost
    assert spec is not None
    deadline_s, bench_s = time.monotonic() + spec.budget_s, 0.0
    last: dict[str, int] = {}
    known: dict[str, bool] = {}

    def run_timed(name: str, members: Sequence[Group], num_left: int) -> None:
        nonlocal bench_s
        start_s = time.monotonic()
        run_bench(members, start_s + (deadline_s - start_s) / num_left)
        bench_s = max(bench_s, time.monotonic() - start_s)
        known[name] = tell_ratios(run, study, name, events)

    planned = [(name, list(some)) for name, some in groupby(groups, lambda one: one.bench or "")]
    for place, (name, members) in enumerate(planned):
        if is_over():
            return
        mode, _, number = name.rpartition("-")
        last[mode] = max(int(number), last.get(mode, 0))
        if not has_run(run, members):
            run_timed(mode, members, len(planned) - place)
    if any(last.get(mode, 0) < spec.processes for mode in spec.modes):
        return
    for mode in set(spec.modes) - known.keys():
        known[mode] = tell_ratios(run, study, mode, events)
    fewest = min(num_repeats * spec.processes, spec.max_processes)
    while wanting := [
        mode
        for mode in spec.modes
        if last[mode] < fewest or (last[mode] < spec.max_processes and not known[mode])
    ]:
        for place, mode in enumerate(wanting):
            if is_over() or time.monotonic() + bench_s > deadline_s:
                return
            last[mode] += 1
            members = list(bench_of(study, mode, last[mode]))
            add_groups(run, members)
            run_timed(mode, members, len(wanting) - place)


# How well the ratios between the cells of a study are known.

Row = tuple[str, bool, str | None]
"""A cell, whether it is the second of an A/A pair, and whose weights it has."""


def tell_ratios(run: RunFolder, study: Study, mode: str, events: EventWriter) -> bool:
    """Whether every ratio of that mode is known as well as was asked for, from the records so far; says
    what they are by now. How wide the intervals are decides, never what they show: measuring until a
    difference is found would find one."""
    import numpy as np

    from trainlab.stats.cost_ratio import compare_costs, levels

    assert study.cost is not None
    if study.cost.max_processes < 2:
        return True  # one has no interval
    benches: dict[str, dict[Row, dict[int, float]]] = {}
    first_of: dict[Row, tuple[str, int]] = {}
    for trial in run.trials():
        if (trial.watch, trial.mode, trial.state) == ("steps", mode, "done"):
            record = run.trial(trial.id).cost.read()
            row = trial.cell, trial.again, trial.weights_of
            first_of.setdefault(row, (trial.id, record.batch_size))
            benches.setdefault(record.bench, {})[row] = record.quiet_medians_ms()
    rows = list(first_of)
    figures = np.full((len(rows), len(benches)), math.nan)
    for column, bench in enumerate(benches.values()):
        for row, level in zip(bench, levels(list(bench.values())), strict=True):
            figures[rows.index(row), column] = level - math.log(first_of[row][1])
    places = {row: place for place, row in enumerate(rows)}
    firsts = [(row[2] is not None, places[row]) for row in rows if not row[1]]
    same_kind = [[place for kind, place in firsts if kind == wanted] for wanted in (False, True)]
    pairs = [(some[0], other) for some in same_kind for other in some[1:]]
    twice = [
        (places[first], places[row])
        for row in rows
        if row[1] and (first := (row[0], False, row[2])) in places
    ]
    found = compare_costs(figures, pairs, twice)
    for pair, one in zip(pairs, found, strict=True):
        ids = tuple(first_of[rows[place]][0] for place in pair)
        told = {"ratio": one.ratio.value, "off_by": one.half_width}
        events.write(Event(kind="ratio", trials=ids, metrics=told))
    widths = [one.half_width for one in found]
    return all(width is not None and width <= study.cost.ratio_within for width in widths)
