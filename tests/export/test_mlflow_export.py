"""Exports to a real MLflow server: a run per trial, nothing twice, errors in one line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from command import Verb
from fabricate import Fabricated, made_study
from servers import SERVER, mlflow_executable, mlflow_server
from trainlab.lab import open_run
from trainlab.plan import Trial
from trainlab.spec import CostSpec


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
    executable = mlflow_executable()
    if executable is None:
        pytest.skip(f"no mlflow executable: put one on the path or name it in {SERVER}")
    with mlflow_server(executable, tmp_path_factory.mktemp("mlflow")) as address:
        if address is None:
            pytest.skip(f"{executable} starts no server here (pip install mlflow elsewhere)")
        yield address


@pytest.fixture
def client(server: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    import mlflow

    return mlflow.MlflowClient(tracking_uri=server)


def runs_of(client: Any, experiment: str) -> dict[str, Any]:
    found = client.get_experiment_by_name(experiment)
    runs = client.search_runs([found.experiment_id])
    by_trial = {run.data.tags["trainlab.trial"]: run for run in runs}
    assert len(by_trial) == len(runs), "a trial is there twice"
    return by_trial


@pytest.mark.slow
def test_every_trial_is_a_run_with_settings_curve_and_tags(
    server: str, client: Any, trainlab: Verb, tmp_path: Path
) -> None:
    asked = {"settings": {"model": {"hidden": 5}}, "cost": CostSpec(processes=1)}
    study = made_study(name="whole", vary={"lr": (0.1, 0.2)}, seeds=2, **asked)
    folder = Fabricated(step_points=2).write(tmp_path / "r", study)
    shown = trainlab("export", "r", "--to", "mlflow", "--tracking-uri", server).stdout
    trials = folder.trials()
    assert shown == f"MLflow, experiment whole at {server}: {len(trials)} trials added.\n"
    runs = runs_of(client, "whole")
    whole = runs.pop("(run)")
    assert set(runs) == {trial.id for trial in trials}
    for trial in trials:
        run = runs[trial.id]
        assert run.info.status == "FINISHED"
        assert run.data.tags["mlflow.parentRunId"] == whole.info.run_id
        assert run.data.tags["trainlab.seed"] == str(trial.seed)
        assert len(run.data.tags["trainlab.fingerprint"]) == 64
        assert run.data.params["lr"] == str(trial.settings["lr"])
        assert run.data.params["model.hidden"] == "5"
    learned = next(trial for trial in trials if trial.kind == "learn")
    lines = [json.loads(line) for line in folder.trial(learned.id).curve_file.open()]
    ends = [line for line in lines if line["kind"] == "epoch"]
    history = client.get_metric_history(runs[learned.id].info.run_id, "test/accuracy")
    assert [(m.step, m.value) for m in history] == [(e["step"], e["test/accuracy"]) for e in ends]
    times_ms = [metric.timestamp - history[0].timestamp for metric in history]
    assert times_ms == [round(1000 * (end["time_s"] - ends[0]["time_s"])) for end in ends]
    timed = next(trial for trial in trials if trial.watch == "steps")
    assert runs[timed.id].data.metrics["step_ms"] == 1.0
    (report,) = client.list_artifacts(whole.info.run_id, "report")
    assert report.path == "report/report.html"
    tables = client.list_artifacts(whole.info.run_id, "tables")
    assert "tables/results.csv" in [file.path for file in tables]


@pytest.mark.slow
def test_a_second_export_adds_only_what_is_new_and_replaces_what_changed(
    server: str, client: Any, tmp_path: Path
) -> None:
    study = made_study(name="twice", vary={"lr": (0.1, 0.2)}, seeds=2)

    def state(trial: Trial) -> str:
        if trial.seed == 1:
            return "done"
        return "failed" if trial.settings.lr == 0.1 else "pending"

    folder = Fabricated(state=state, step_points=1).write(tmp_path / "r", study)
    first = open_run(folder.path).export("mlflow", tracking_uri=server)
    assert (first.num_new, first.num_there, first.num_left_out) == (3, 0, 1)
    before = runs_of(client, "twice")
    assert sorted(run.info.status for run in before.values()) == ["FAILED", *["FINISHED"] * 3]
    again = open_run(folder.path).export("mlflow", tracking_uri=server)
    assert (again.num_new, again.num_there, again.num_left_out) == (0, 3, 1)
    same = runs_of(client, "twice")
    ids = [{trial: run.info.run_id for trial, run in runs.items()} for runs in (before, same)]
    assert ids[0] == ids[1]
    done = next(trial for trial in folder.trials() if trial.state == "done")
    assert len(client.get_metric_history(ids[1][done.id], "test/accuracy")) == 2
    for trial in folder.trials():
        if trial.state in ("failed", "pending"):
            curve = folder.trial(done.id).curve_file.read_bytes()
            folder.trial(trial.id).curve_file.write_bytes(curve)
            ended = done.model_dump(include={"state", "error", "final", "resolved"})
            folder.trial(trial.id).write(trial.model_copy(update={**ended, "data": done.data}))
    resumed = open_run(folder.path).export("mlflow", tracking_uri=server)
    assert (resumed.num_new, resumed.num_there, resumed.num_left_out) == (2, 2, 0)
    after = runs_of(client, "twice")
    assert {run.info.status for run in after.values()} == {"FINISHED"}
    assert len(after) == 5
    assert after["(run)"].info.run_id == before["(run)"].info.run_id


def test_no_server_is_told_in_one_line(
    trainlab: Verb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Fabricated().write(tmp_path / "r", made_study())
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    told = trainlab("export", "r", "--to", "mlflow", code=2).stderr
    remedy = "give --tracking-uri, as http://127.0.0.1:5000, or set MLFLOW_TRACKING_URI"
    assert told == f"trainlab: --to mlflow: no server is named; {remedy}\n"


def test_a_server_that_is_not_there_is_told_in_one_line_and_soon(
    trainlab: Verb, tmp_path: Path
) -> None:
    pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
    Fabricated().write(tmp_path / "r", made_study())
    line = ("export", "r", "--to", "mlflow", "--tracking-uri", "http://127.0.0.1:1")
    assert trainlab(*line, code=2).stderr == (
        "trainlab: http://127.0.0.1:1: no server answers there; start one with "
        "`mlflow server --port 1`, or name another with --tracking-uri\n"
    )
    assert "那里没有服务器应答" in trainlab(*line, "--lang", "zh", code=2).stderr
