"""The time of a step in two runs, setting by setting.

A process is one value: its steps share its luck. The processes of a run took turns with those of its other
settings, but with none of the other run, so that whole times are compared, as independent samples.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean

from trainlab.analysis.evidence import Evidence
from trainlab.analysis.gate.check import COST_SUBJECT, USUAL_STD, Check, Disturbance
from trainlab.analysis.measurement import OTHERS_LIMIT_CORES, STOLEN_LIMIT_CORES, Measurement
from trainlab.stats.contrasts import LEVEL
from trainlab.stats.means import Interval, ratio_of_logs
from trainlab.stats.one_sided import Levels, assumed, welch


def cost_checks(
    run: Evidence, baseline: Evidence, cells: Sequence[str], mode: str, margin: float, number: int
) -> Iterator[Check]:
    """One per setting; `number` is that of all comparisons of the gate."""
    levels = Levels(LEVEL / number, together=number)
    for cell in cells:
        measured = baseline.measurement(cell, mode), run.measurement(cell, mode)
        yield _check(cell, f"{mode}/{COST_SUBJECT}", *measured, margin, levels)


def disturbances(evidence: Evidence, cells: Sequence[str], mode: str) -> Iterator[Disturbance]:
    """What else the machine did while these cells were timed, where it was too much to be passed over."""
    measured = [m for cell in cells if (m := evidence.measurement(cell, mode)) is not None]
    loads = [cost.load for one in measured for cost in one.costs]
    stolen = max((load.stolen_cores for load in loads), default=0.0)
    others = max((load.others_cores for load in loads), default=0.0)
    if stolen > STOLEN_LIMIT_CORES:
        yield Disturbance(evidence.path, "stolen", stolen)
    if others > OTHERS_LIMIT_CORES:
        yield Disturbance(evidence.path, "others_busy", others)


def _check(
    cell: str,
    subject: str,
    baseline: Measurement | None,
    run: Measurement | None,
    margin: float,
    levels: Levels,
) -> Check:
    before, after = _logs(baseline), _logs(run)
    limit = math.log1p(margin)
    value = None if not before or not after else fmean(after) - fmean(before)
    plain = Check(
        cell=cell,
        subject=subject,
        baseline=math.exp(fmean(before)) if before else None,
        run=math.exp(fmean(after)) if after else None,
        change=None if value is None else math.exp(value),
        margin=margin,
        num_baseline=len(before),
        num_run=len(after),
    )
    change = welch(before, after)
    if change is None:
        # What would be decided at the noise that is usual; nothing is known of this machine's.
        usual = assumed(USUAL_STD).number_for(0.0, limit, levels)
        return replace(plain, needed_unchanged=usual)
    bounds = Interval(change.low(levels.low), change.high(levels.high))
    verdict = change.judged(limit, levels)
    is_open = verdict == "cannot tell"
    return replace(
        plain,
        interval=ratio_of_logs(change.value, bounds, len(after)).interval,
        verdict=verdict,
        needed=change.number_for(change.value, limit, levels) if is_open else None,
        needed_unchanged=change.number_for(0.0, limit, levels) if is_open else None,
    )


def _logs(measurement: Measurement | None) -> list[float]:
    """The log of each process's step; none where it was not measured."""
    return [] if measurement is None else [math.log(ms) for ms in measurement.process_ms]
