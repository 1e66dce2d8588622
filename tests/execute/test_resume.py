"""Runs that were cut short: what is left of them, how they go on, what their folder says meanwhile."""

import shutil
from pathlib import Path

import pytest

from asking import curves, groups_of, study_of
from command import Verb
from fabricate import Fabricated, made_study
from trainlab import lab
from trainlab.errors import WorkloadError
from trainlab.execute.planned_run import (
    add_groups,
    code_of,
    has_trust,
    planned_trial,
    start_run,
    unfinished_groups,
)
from trainlab.plan import bench_of
from trainlab.record.run_folder import RunFolder
from trainlab.record.trial_record import State
from trainlab.spec import CostSpec, Question
from trainlab.words.error_lines import error_line


def set_state(run: RunFolder, trial_id: str, state: State) -> None:
    folder = run.trial(trial_id)
    folder.write(folder.read().model_copy(update={"state": state}))


def test_a_run_goes_on_as_it_would_have_with_seeds_added_until_all_is_decided(
    tiny_file: Path, tmp_path: Path
) -> None:
    asked = {"vary": {"hidden": (8, 9)}, "settings": {"device": "cpu", "epochs": 1}, "seeds": 3}
    asked |= {"margins": {"test/loss": 1e-9}, "until_decided": True, "max_seeds": 5}
    question = Question(workload=f"{tiny_file}:tiny", tensorboard=False, **asked)
    whole = lab.drive(question, out=tmp_path / "whole").run
    # Next to no difference and a margin far below the noise: it is not decided, and all seeds are run.
    study = whole.study().to_study("r")
    assert (study.looks, study.seeds) == ((3, 4, 5), (1, 2, 3, 4, 5))
    assert [trial.state for trial in whole.trials()] == ["done"] * 10
    assert next(one for one in whole.findings() if one.kind == "effect").n == 5
    cut = lab.drive(question, out=tmp_path / "cut", budget_s=0).run
    assert {trial.state for trial in cut.trials()} == {"pending"}
    assert len(cut.trials()) < len(whole.trials())
    outcome = lab.resume_run(cut.path, budget_s=0.3)
    before = {trial.id: trial.attempt for trial in outcome.run.trials() if trial.is_finished}
    outcome = lab.resume_run(cut.path)
    assert not outcome.was_interrupted
    assert outcome.run.study().trials == whole.study().trials
    assert curves(outcome.run) == curves(whole)
    assert before.items() <= {trial.id: trial.attempt for trial in cut.trials()}.items()
    assert cut.results_csv.exists()


def test_finished_trials_are_left_out_and_a_bench_is_run_whole(
    tiny_file: Path, tmp_path: Path
) -> None:
    asked = {"vary": {"lr": (0.1, 0.2)}, "cost": CostSpec(processes=2, weights="trained")}
    study = study_of(f"{tiny_file}:tiny", {"device": "cpu"}, seeds=2, **asked)
    run = start_run(study, tmp_path / "run")
    add_groups(run, bench_of(study, "train", 3))
    planned = [group for group in groups_of(run) if group.bench is None]
    learned = [trial for group in planned for trial in group.trials if trial.kind == "learn"]
    set_state(run, learned[0].id, "diverged")
    set_state(run, learned[1].id, "failed")
    benches = [bench_of(study, "train", number) for number in (1, 2, 3)]
    for bench in benches[:2]:
        for group in bench:
            set_state(run, group.trials[0].id, "done")
    set_state(run, benches[1][0].trials[0].id, "running")
    left = unfinished_groups(run)
    ids = [trial_id for group in left for trial_id in group.ids]
    assert learned[0].id not in ids
    assert learned[1].id in ids
    timed = [group.bench for group in left if group.bench is not None]
    # Those that were added later stand beside those planned at first, which says how many there are.
    assert timed == [name for name in ("train-1", "train-2", "train-3") for _ in benches[0]]
    places = [number for number, group in enumerate(left) if group.bench is not None]
    assert places == list(range(places[0], places[0] + len(places)))
    for bench in benches:
        for group in bench:
            set_state(run, group.trials[0].id, "done")
    assert not [group for group in unfinished_groups(run) if group.bench is not None]


def test_a_workload_that_was_changed_is_refused_unless_allowed(
    tiny_file: Path, tmp_path: Path, trainlab: Verb, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = ("--vary", "hidden=8,9", "--no-report", "--device", "cpu")
    monkeypatch.setattr("sys.argv", ["trainlab", "run", *few])  # as it is recorded
    trainlab("run", "own_work.py:tiny", "--out", "run", "--budget", "0.001s", *few)
    told = trainlab("cancel", "run").stdout
    assert told == "Nobody runs it now; `trainlab resume run` goes on with it.\n"
    source = tiny_file.read_text()
    tiny_file.write_text(source + "raise RuntimeError('must not be run')")
    told = trainlab("resume", "run", code=2).stderr
    remedy = "put it back as it was, or add --allow-changed"
    assert told == f"trainlab: own_work.py: has changed since the run began; {remedy}\n"
    assert "自运行开始后已改变" in error_line(told.strip(), "zh")
    tiny_file.write_text(source + "# only a remark\n")
    told = trainlab("run", "own_work.py:tiny", "--out", "run", code=2).stderr
    assert "holds a run that is not finished; go on with it by `trainlab resume run`" in told
    trainlab("resume", "run", "--allow-changed", "--quiet")
    run = RunFolder(tmp_path / "run")
    assert [trial.state for trial in run.trials()] == ["done", "done"]
    assert not run.report_folder.exists()  # as it was asked for
    told = trainlab("cancel", "run").stdout
    assert "is finished: all its trials have ended (" in told
    trainlab("resume", "run", "--allow-changed", "--quiet", "--report")
    assert run.report_folder.exists()
    assert "nothing is left to run" in trainlab("resume", "run", "--allow-changed").stderr
    tiny_file.unlink()
    with pytest.raises(WorkloadError, match="resume the run from the folder it was started in"):
        lab.resume_run(tmp_path / "run")


def test_a_run_that_came_from_elsewhere_is_resumed_only_by_who_trusts_its_code(
    tiny_file: Path, tmp_path: Path, trainlab: Verb
) -> None:
    """It is refused without --trust; whoever has said so once need not say it again."""
    trainlab("run", "own_work.py:tiny", "--out", "own", "--budget", "0.001s", "--device", "cpu")
    sign = tmp_path / "ran"
    tiny_file.write_text(f"{tiny_file.read_text()}\nopen({str(sign)!r}, 'w')\n")
    for name in ("theirs", "others"):
        shutil.copytree(tmp_path / "own", tmp_path / name)
    words = ("resume", "theirs", "--allow-changed", "--quiet")
    told = trainlab(*words, code=2).stderr
    assert told.endswith("resuming it runs own_work.py; read that first, then add --trust\n")
    assert "请先阅读它，再加上 --trust" in error_line(told.removeprefix("trainlab: ").strip(), "zh")
    with pytest.raises(WorkloadError, match="was not started by you from here"):
        lab.resume_run(tmp_path / "theirs", allow_changed=True)
    assert not sign.exists()
    trainlab(*words, "--trust")
    assert sign.exists()
    trainlab(*words)  # once is enough
    trainlab("resume", "own", "--allow-changed", "--quiet")
    lab.resume_run(tmp_path / "others", allow_changed=True, is_trusted=True)


def test_a_run_of_trainlabs_own_code_needs_no_trust_unless_a_cluster_is_to_run_it(
    trainlab: Verb, tmp_path: Path
) -> None:
    asked = ("--train-samples", "64", "--data", "bundled", "--budget", "0.001s", "--device", "cpu")
    trainlab("run", "fashion-mlp", *asked, "--out", "own")
    (theirs := RunFolder(tmp_path / "own").path).rename(tmp_path / "theirs")
    run = RunFolder(theirs.with_name("theirs"))
    assert not has_trust(run)
    assert code_of(run) == ""
    run.write_study(run.study().model_copy(update={"on": "slurm:output=/etc/passwd"}))
    told = trainlab("resume", "theirs", code=2).stderr
    assert "resuming it runs slurm:output=/etc/passwd" in told


def test_a_cost_that_an_earlier_version_planned_is_measured(tmp_path: Path) -> None:
    """Its fields were others."""
    study = made_study(learn=False, cost=CostSpec(processes=1))
    folder = Fabricated(state=lambda trial: "pending").write(tmp_path / "r", study)
    trial = folder.trial("cost-train-process1")
    old = {"mode": "train", "processes": 1, "extra_s": 60.0, "tight": 0.005}
    trial.write(trial.read().model_copy(update={"cost": old}))
    assert planned_trial(trial).cost == CostSpec(processes=1)
