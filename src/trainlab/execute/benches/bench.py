"""A bench: one fresh process for every cell, all set up and warm, which take turns in short rounds.

As many stand ready together as memory allows. Where that is not all, the first stays and the others come
in blocks, so that the ratio of any to the first is formed within rounds.
"""

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Literal, Protocol

from trainlab.execute.benches.precision import is_precise
from trainlab.execute.run import IsOver, add_groups
from trainlab.machine.footprint import Footprint
from trainlab.measure.turning.rounds import Rounds, TurnTaker
from trainlab.plan import Group, bench_of
from trainlab.record.run_folder import RunFolder
from trainlab.spec import CostSpec, Study

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


def has_run(run: RunFolder, members: Sequence[Group]) -> bool:
    """Whether every trial of a bench is done. A bench that was cut short is run again as a whole: its
    figures are ratios within rounds, which all of its processes must share."""
    trials = [run.trial(trial_id).read() for group in members for trial_id in group.ids]
    return all(trial.state == "done" for trial in trials)


def _last_number(mode: str, benches: Iterable[str | None]) -> int:
    kinds = (name.rpartition("-") for name in benches if name is not None)
    return max(int(number) for kind, _, number in kinds if kind == mode)


def _timed_s(run_bench: RunBench, members: Sequence[Group]) -> float:
    start_s = time.monotonic()
    run_bench(members)
    return time.monotonic() - start_s
