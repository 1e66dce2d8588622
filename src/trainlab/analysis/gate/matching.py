"""Whether two runs are of the same thing on the same machine, so that a change is that of the code."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from trainlab.analysis.confounds import Confound, run_confounds, trial_confounds
from trainlab.analysis.evidence import Evidence
from trainlab.analysis.measurement import MODES
from trainlab.errors import RecordError, SpecError
from trainlab.record.study_record import Environment
from trainlab.record.trial_record import TrialRecord

TrialPair = tuple[TrialRecord, TrialRecord]
"""A trial of the run and the same of the baseline."""
SAME_RESOLVED = ("device", "device_name", "threads", "batch_size", "accumulate")
"""What settings became that must be the same for times to be compared."""
NOT_ENDED = ("pending", "running", "interrupted")
NOT_COMPARED = "times of two machines are not compared"
MOST_NAMED = 5


@dataclass(frozen=True)
class CellsOfRuns:
    """Ids of cells, in the order asked."""

    both: tuple[str, ...]
    only_run: tuple[str, ...]
    only_baseline: tuple[str, ...]


def check_finished(evidence: Evidence) -> None:
    """RecordError where trials are still to come."""
    if any(trial.state in NOT_ENDED for trial in evidence.trials):
        raise RecordError(
            f"{evidence.path}: is not finished; go on with `trainlab resume {evidence.path}`"
        )


def shared_cells(run: Evidence, baseline: Evidence) -> CellsOfRuns:
    """RecordError where the runs are of different workloads or have no cell in common."""
    ours, theirs = run.study.workload, baseline.study.workload
    # The same file may lie elsewhere, in a checkout of the earlier code.
    if PurePath(ours).name != PurePath(theirs).name:
        raise RecordError(
            f"{run.path}: is about {ours}, the baseline about {theirs}; "
            "compare runs of one workload"
        )
    of_run, of_baseline = ([cell.id for cell in one.cells] for one in (run, baseline))
    both = tuple(cell for cell in of_baseline if cell in of_run)
    if not both:
        raise RecordError(
            f"{run.path}: has no setting in common with the baseline: {_named(of_run)} against "
            f"{_named(of_baseline)}; run both with the same settings"
        )
    return CellsOfRuns(
        both,
        only_run=tuple(cell for cell in of_run if cell not in both),
        only_baseline=tuple(cell for cell in of_baseline if cell not in both),
    )


def mode_of(run: Evidence, baseline: Evidence, asked: str | None) -> str:
    """The mode whose step is compared: training, unless inference is asked for or all there is."""
    if asked is not None and asked not in MODES:
        raise SpecError([f"mode: got {asked!r}, must be one of {', '.join(MODES)}"])
    modes = MODES if asked is None else (asked,)
    for mode in modes:
        if run.measured_in(mode) and baseline.measured_in(mode):
            return mode
    lacking = next(
        (one for one in (run, baseline) if not any(one.measured_in(mode) for mode in modes)), run
    )
    what = "has no timed step" if asked is None else f"has no timed step in mode {asked}"
    measure = "profile" if lacking.study.script is None else "watch … --profile --no-learn"
    raise RecordError(
        f"{lacking.path}: {what}; measure it with `trainlab {measure}`, or compare metrics alone "
        "with --worse"
    )


def check_same_machine(run: Evidence, baseline: Evidence, any_host: bool) -> None:
    """RecordError where times were measured on another machine, or on more or fewer CPUs of it."""
    ours, theirs = _machine(run), _machine(baseline)
    if ours.host != theirs.host and not any_host:
        raise RecordError(
            f"{run.path}: was measured on host {ours.host or '?'}, the baseline on "
            f"{theirs.host or '?'}; {NOT_COMPARED}; if it is one machine under two names, as a "
            "container's, add --any-host"
        )
    for what, a, b in (
        ("CPU", ours.cpu, theirs.cpu),
        ("GPU", _gpus(ours), _gpus(theirs)),
        ("usable vCPUs", ours.num_vcpus_usable, theirs.num_vcpus_usable),
    ):
        if a != b:
            raise RecordError(
                f"{run.path}: was measured with {what} {a}, the baseline with {b}; {NOT_COMPARED}; "
                "measure both on one"
            )


def check_same_settings(run: Evidence, pairs: Iterable[TrialPair]) -> None:
    """RecordError where trials of the same cell were asked for otherwise, or ran elsewhere."""
    for ours, theirs in pairs:
        found = [
            (one.what, *("none" if value is None else value for value in (one.first, one.second)))
            for one in trial_confounds(ours, theirs, frozenset())
            if _is_asked(one.what, ours, theirs)
        ]
        if _weights(ours) != _weights(theirs):
            found.append(("weights", _weights(ours), _weights(theirs)))
        for name, first, second in found[:1]:
            raise RecordError(
                f"{run.path}: {ours.cell}: {name} is {first}, in the baseline {second}; "
                "run both with the same settings"
            )


def other_differences(
    run: Evidence, baseline: Evidence, pairs: Iterable[TrialPair]
) -> tuple[Confound, ...]:
    """Whatever else differs, the baseline first: the code, what settings became, packages, commits."""
    found = {
        str(one): one
        for ours, theirs in pairs
        for one in trial_confounds(theirs, ours, frozenset())
    }
    return (*found.values(), *run_confounds(_machine(baseline), _machine(run)))


def trial_pairs(
    run: Evidence, baseline: Evidence, cells: Sequence[str], mode: str | None, learn: bool
) -> list[TrialPair]:
    """Of every cell, of each kind that is compared, a trial that ended well of both runs."""
    pairs = []
    for cell in cells:
        for find in (_timed if mode else None, _learned if learn else None):
            both = () if find is None else [find(one, cell, mode or "") for one in (run, baseline)]
            done = [trial for trial in both if trial is not None]
            if len(done) == 2:
                pairs.append((done[0], done[1]))
    return pairs


def _timed(evidence: Evidence, cell: str, mode: str) -> TrialRecord | None:
    measurement = evidence.measurement(cell, mode)
    return None if measurement is None else measurement.trial


def _learned(evidence: Evidence, cell: str, mode: str) -> TrialRecord | None:
    trials = (learned.trial for learned in evidence.learned.get(cell, {}).values())
    return next((trial for trial in trials if trial.state == "done"), None)


def _weights(trial: TrialRecord) -> str:
    return "untrained" if trial.weights_of is None else "trained"


def _is_asked(name: str, ours: TrialRecord, theirs: TrialRecord) -> bool:
    """Whether what differs is part of the question: a setting, the data, or where it ran."""
    if name.startswith("data.") or name in SAME_RESOLVED:
        return True
    return ours.settings.get(name) != theirs.settings.get(name)


def _machine(evidence: Evidence) -> Environment:
    """The machine of the timed trials; where there are none, the run's first."""
    names = (one.trial.environment or "" for one in evidence.measured)
    known = (evidence.environments[name] for name in names if name in evidence.environments)
    return next(known, evidence.environment)


def _gpus(environment: Environment) -> str:
    """With what changes their speed."""
    limits = (
        f"{gpu.name} ({gpu.memory_gib} GiB, {gpu.power_limit_w} W)" for gpu in environment.gpus
    )
    return ", ".join(limits) or "none"


def _named(cells: Sequence[str]) -> str:
    more = ["…"] if len(cells) > MOST_NAMED else []
    return ", ".join([*cells[:MOST_NAMED], *more])
