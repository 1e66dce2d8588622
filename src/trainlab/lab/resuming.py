"""On with a run that was cut short, whatever it was for."""

from pathlib import Path

from trainlab.lab.driving import Outcome, go_on
from trainlab.lab.opened import Run
from trainlab.lab.watcher import Watcher
from trainlab.record.run_folder import check_run


def resume_run(
    path: Path,
    *,
    allow_changed: bool = False,
    budget_s: float | None = None,
    watcher: Watcher | None = None,
) -> Outcome:
    """Goes on with a run that was cut short, as it would have gone on undisturbed, and writes its tables.

    Finished trials are left as they are; one that has a checkpoint goes on from there. Where and how many
    at a time is as it was asked for. A diagnosis goes on to its answer. RecordError where another process
    drives the run; WorkloadError where the user's own workload file is not what it was, unless
    `allow_changed`.
    """
    check_run(path)
    run = Run(path)
    study = run.study().to_study(str(run.study_file))
    if study.script is None or study.script.diagnosis is None:
        return go_on(run, allow_changed=allow_changed, budget_s=budget_s, watcher=watcher)
    from trainlab.lab.diagnosing import DiagnosisStage

    stage = DiagnosisStage(study)
    outcome = go_on(
        run, stage.groups, allow_changed=allow_changed, budget_s=budget_s, watcher=watcher
    )
    stage.written(outcome)
    return outcome
