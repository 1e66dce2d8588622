"""The worker: runs planned trials and leaves a record of each, whatever happens.

Everything it needs comes from the run folder and everything it makes goes there, so that the same
entry serves this process, another process, or another machine.
"""

import math
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime

from trainlab.errors import RecordError, TrainlabError
from trainlab.instruments.curves import Curves
from trainlab.instruments.tensorboard import TensorBoard
from trainlab.instruments.weights import Weights
from trainlab.plan import Trial
from trainlab.record.folder import RunFolder, TrialFolder
from trainlab.record.schema import DataRecord, Failure, TrialRecord
from trainlab.spec import Study, checked
from trainlab.train.bench import Bench, set_up
from trainlab.train.loop import train
from trainlab.train.moments import Instrument, Moments, Progress
from trainlab.workloads.find import find_workload


def run_group(
    folder: RunFolder, trial_ids: Sequence[str], watchers: Sequence[Instrument] = ()
) -> None:
    """Runs the trials one after another. A trial that fails is recorded and the next one runs;
    a user's mistake (TrainlabError) or an interrupt is recorded and raised."""
    study = checked(Study, folder.study().study, str(folder.study_file))
    for trial_id in trial_ids:
        asked = folder.trial(trial_id).read()
        trial = checked(
            Trial,
            {
                "id": asked.id,
                "kind": asked.kind,
                "workload": asked.workload,
                "seed": asked.seed,
                "settings": asked.settings,
            },
            str(folder.trial(trial_id).trial_file),
        )
        _run_one(trial, folder.trial(trial_id), [*_instruments(study), *watchers])


def _instruments(study: Study) -> list[Instrument]:
    chosen: list[Instrument] = [Curves()]
    if study.tensorboard:
        chosen.append(TensorBoard())
    if study.save_model:
        chosen.append(Weights())
    return chosen


def _run_one(trial: Trial, folder: TrialFolder, instruments: Sequence[Instrument]) -> None:
    progress, moments = Progress(), Moments(instruments)
    bench: Bench | None = None
    raised: BaseException | None = None
    started = folder.read().model_copy(update={"state": "running", "started": _now()})
    folder.write(started)
    try:
        bench = set_up(trial, find_workload(trial.workload), folder)
        started = started.model_copy(update=_facts(bench))
        folder.write(started)
        train(bench, moments, progress)
    except (Exception, KeyboardInterrupt) as fault:  # noqa: BLE001  the user's code may raise anything
        raised = fault
    if bench is not None:
        try:
            moments.trial_ends(progress)
        except Exception as fault:  # noqa: BLE001  closing must not hide what happened before
            raised = raised or fault
    if isinstance(raised, KeyboardInterrupt):
        progress.state = "interrupted"
    elif raised is not None:
        progress.state = "failed"
    try:
        folder.write(_ended(started, progress, bench, _failure(raised)))
    except RecordError as fault:
        raised = raised or fault
    if isinstance(raised, KeyboardInterrupt | TrainlabError):
        raise raised


def _facts(bench: Bench) -> dict[str, object]:
    dataset = bench.dataset
    return {
        "resolved": bench.resolved(),
        "data": DataRecord(
            name=dataset.name,
            source=dataset.source,
            is_subset=dataset.is_subset,
            num_train=len(dataset.train),
            num_test=len(dataset.test),
            note=dataset.note,
        ),
    }


def _ended(
    started: TrialRecord, progress: Progress, bench: Bench | None, error: Failure | None
) -> TrialRecord:
    return started.model_copy(
        update={
            "state": progress.state,
            "ended": _now(),
            "total_s": progress.total_s,
            "epochs_done": progress.epochs_done,
            "steps_done": progress.steps_done,
            "final": {n: v if math.isfinite(v) else None for n, v in progress.final.items()},
            "diverged_at_step": progress.diverged_at_step,
            "error": error,
            "notes": tuple(bench.notes) if bench is not None else (),
        }
    )


def _failure(fault: BaseException | None) -> Failure | None:
    if fault is None or isinstance(fault, KeyboardInterrupt):
        return None
    return Failure(
        kind=type(fault).__name__,
        message=str(fault),
        traceback="".join(traceback.format_exception(fault)),
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
