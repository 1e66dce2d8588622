"""A diagnosis that was cut short goes on to its answer."""

from pathlib import Path

from command import Verb
from diagnosed_runs import measured, watched_only
from trainlab.lab.script_study import DiagnosisStage


def test_a_diagnosis_cut_short_is_answered_when_resumed(trainlab: Verb, tmp_path: Path) -> None:
    """Links that a killed driver left where its script ran do not matter."""
    run = measured(tmp_path / "run")
    assert not run.diagnosis.exists()
    work = run.trial("learn-seed1").work_folder / "project"
    work.mkdir(parents=True)
    (work / "data").symlink_to(tmp_path)
    refused = trainlab("resume", str(run.path), code=2).stderr
    assert f"resuming it runs {tmp_path / 'train.py'}; read that first" in refused
    told = trainlab("resume", str(run.path), "--trust")
    assert "Waiting for data takes" in told.stdout
    assert "diagnosis.json" in told.stdout
    first, *others = run.diagnosis.read().limits
    assert (first.limit, first.verdict) == ("data", "confirmed")
    # What promises as much, and was not asked for, may limit it all the same.
    reasons = {row.limit: row.tried[0].reason for row in others if row.verdict == "not tried"}
    assert reasons == {"evaluation": "no_statement"}


def test_what_was_watched_leads_to_the_changes_that_were_asked_for_once(tmp_path: Path) -> None:
    run = watched_only(tmp_path / "run")
    groups = DiagnosisStage(run.study().to_study("")).groups(run)
    cells = {trial.cell for group in groups for trial in group.trials}
    assert cells == {"base", "change=same_batch", "change=threads=2"}
    again = DiagnosisStage(run.study().to_study(""))  # by whoever resumes it
    assert again.groups(run) == ()


def test_a_script_that_was_cut_short_leads_to_no_changes(tmp_path: Path) -> None:
    run = watched_only(tmp_path / "run")
    (trial,) = run.trials()
    run.trial(trial.id).write(trial.model_copy(update={"state": "interrupted"}))
    assert DiagnosisStage(run.study().to_study("")).groups(run) == ()
