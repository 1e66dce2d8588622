"""A diagnosis that was cut short goes on to its answer."""

from pathlib import Path

from command import Verb
from diagnosed_runs import measured, watched_only
from trainlab.lab import resume_run
from trainlab.lab.script_study import DiagnosisStage


def test_a_diagnosis_cut_short_after_measuring_is_answered_when_resumed(tmp_path: Path) -> None:
    run = measured(tmp_path / "run")
    assert not run.diagnosis.exists()
    outcome = resume_run(run.path)
    assert outcome.run.is_diagnosis
    first = run.diagnosis.read().limits[0]
    assert (first.limit, first.verdict) == ("data", "confirmed")


def test_links_that_a_killed_driver_left_where_its_script_ran_do_not_matter(tmp_path: Path) -> None:
    run = measured(tmp_path / "run")
    work = run.trial("learn-seed1").work_folder / "project"
    work.mkdir(parents=True)
    (work / "data").symlink_to(tmp_path)
    resume_run(run.path)
    assert run.diagnosis.exists()


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


def test_resume_prints_the_answer_of_a_diagnosis(trainlab: Verb, tmp_path: Path) -> None:
    run = measured(tmp_path / "run")
    told = trainlab("resume", str(run.path))
    assert "Waiting for data takes" in told.stdout
    assert "diagnosis.json" in told.stdout
