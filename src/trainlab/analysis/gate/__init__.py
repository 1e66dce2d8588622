"""The gate: whether a run is slower, or learns worse, than an earlier run of the same thing.

"Slower" needs a lower bound beyond the margin, "not slower" an upper bound within it; all else is "cannot
tell", with what would tell. Over all comparisons of a gate, at most 5% of those without any change beyond
the margin fail.
"""

from collections.abc import Mapping

from trainlab.analysis.evidence import Evidence
from trainlab.analysis.gate.check import Check
from trainlab.analysis.gate.learning import metric_checks, metric_names
from trainlab.analysis.gate.matching import (
    CellsOfRuns,
    check_finished,
    check_same_machine,
    check_same_settings,
    mode_of,
    other_differences,
    shared_cells,
    trial_pairs,
)
from trainlab.analysis.gate.speed import cost_checks, disturbances
from trainlab.analysis.gate.verdict import Gate
from trainlab.errors import SpecError

DEFAULT_SLOWER = 0.05
"""The margin on the time of a step where nothing else is asked about."""


def gate_of(
    run: Evidence,
    baseline: Evidence,
    *,
    slower: float | None = None,
    worse: Mapping[str, float] | None = None,
    mode: str | None = None,
    any_host: bool = False,
) -> Gate:
    """RecordError where the runs are not of the same thing; SpecError where a margin is none.

    The time of a step is compared where `slower` is given or `worse` is not.
    """
    worse = worse or {}
    margin = DEFAULT_SLOWER if slower is None and not worse else slower
    _check_margins(margin, worse)
    check_finished(run)
    check_finished(baseline)
    cells = shared_cells(run, baseline)
    metrics = metric_names(run, baseline, worse)
    measured = None if margin is None else mode_of(run, baseline, mode)
    pairs = trial_pairs(run, baseline, cells.both, measured, bool(metrics))
    check_same_settings(run, pairs)
    if measured is not None:
        check_same_machine(run, baseline, any_host)
    return Gate(
        run=run.path,
        baseline=baseline.path,
        command=run.record.command,
        mode=measured,
        checks=_checks(run, baseline, cells, margin, measured, {m: worse[m] for m in metrics}),
        only_run=cells.only_run,
        only_baseline=cells.only_baseline,
        differs=other_differences(run, baseline, pairs),
        disturbed=()
        if measured is None
        else tuple(
            one for side in (run, baseline) for one in disturbances(side, cells.both, measured)
        ),
        num_failed=sum(trial.state == "failed" for trial in run.trials),
        left_out=tuple(
            f"{one.path}: {lost.reason}" for one in (run, baseline) for lost in one.damaged
        ),
    )


def _checks(
    run: Evidence,
    baseline: Evidence,
    cells: CellsOfRuns,
    slower: float | None,
    mode: str | None,
    worse: Mapping[str, float],
) -> tuple[Check, ...]:
    number = len(cells.both) * ((mode is not None) + len(worse))
    checks: list[Check] = []
    if mode is not None and slower is not None:
        checks += cost_checks(run, baseline, cells.both, mode, slower, number)
    for metric, amount in worse.items():
        checks += metric_checks(run, baseline, cells.both, metric, amount, number)
    return tuple(checks)


def _check_margins(slower: float | None, worse: Mapping[str, float]) -> None:
    problems = []
    if slower is not None and not 0 < slower < 1:
        problems.append(
            f"slower: got {100 * slower:g}%, must be above 0% and below 100%, as 5% or 0.05"
        )
    problems += [
        f"worse: got {amount} for {metric}, must be above 0, as test/accuracy=0.01"
        for metric, amount in worse.items()
        if not 0 < amount < float("inf")
    ]
    if problems:
        raise SpecError(problems)
