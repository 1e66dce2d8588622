"""The contract that every executor keeps."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from asking import groups_of, study_of
from children import children
from trainlab.errors import SpecError
from trainlab.execute.executors import Executor, executor_for
from trainlab.execute.jobs import CLUSTERS, EXECUTORS
from trainlab.execute.planned_run import start_run
from trainlab.record.run_folder import RunFolder
from trainlab.record.schema import Json
from trainlab.spec import CostSpec
from trainlab.train.callbacks import Instrument
from trainlab.train.loader import Loader

QUICK = CostSpec(processes=1, budget_s=0.1, warmup_steps=1, active_steps=2, trace_mb=0)


HERE = [on for on in EXECUTORS if on not in CLUSTERS]
"""Those elsewhere are tested on real clusters: test_clusters.py."""
WAYS = {**{on: (on, 1) for on in HERE}, "side by side": ("local", 2)}


@pytest.fixture(params=WAYS.values(), ids=list(WAYS))
def executor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Executor]:
    monkeypatch.setattr("trainlab.execute.jobs.usable_vcpus", lambda: 2)
    before = set(children())
    on, jobs = request.param
    with closing(executor_for(on, Loader(), jobs=jobs)) as executor:
        yield executor
    assert set(children()) == before, "a process was left behind"


def started(tiny_file: Path, out: Path, **fields: object) -> RunFolder:
    settings = {"device": "cpu", "threads": 1, "epochs": 1}
    study = study_of(f"{tiny_file}:tiny", settings, **{"tensorboard": False, **fields})
    return start_run(study, out)


def run_all(executor: Executor, run: RunFolder) -> None:
    executor.run(run, groups_of(run), lambda: False)


@pytest.mark.slow
def test_every_trial_is_run_once_and_names_its_machine(
    executor: Executor, tiny_file: Path, tmp_path: Path
) -> None:
    run = started(tiny_file, tmp_path / "r", cost=QUICK)
    run_all(executor, run)
    trials = run.trials()
    assert len(trials) == 1 + 3
    assert {(trial.state, trial.attempt) for trial in trials} == {("done", 1)}
    assert {trial.environment for trial in trials} <= run.environments().keys()
    engines = {(trial.kind, trial.resolved["engine"]) for trial in trials}
    assert engines == {("learn", "tuned"), ("cost", "eager")}


@pytest.mark.slow
def test_results_are_the_same_wherever_trials_run(tiny_file: Path, tmp_path: Path) -> None:
    def curves(name: str) -> list[list[Json]]:
        on, jobs = WAYS[name]
        run = started(tiny_file, tmp_path / name, seeds=2)
        with closing(executor_for(on, Loader(), jobs=jobs)) as executor:
            run_all(executor, run)
        return [
            [{n: v for n, v in line.items() if not n.endswith("_s")} for line in found]
            for trial in run.trials()
            if (found := run.trial(trial.id).curve())
        ]

    first, *others = (curves(name) for name in WAYS)
    assert len(first) == 2
    assert all(other == first for other in others)


@pytest.mark.slow
def test_a_user_mistake_is_recorded_and_the_study_goes_on(
    executor: Executor, tiny_file: Path, tmp_path: Path
) -> None:
    broken = """
class Broken(nn.Linear):
    def forward(self, x):
        raise ArithmeticError("broken on purpose")
def sometimes(hidden=8, broken=False):
    return Broken(8, 2) if broken else model(hidden)
import dataclasses
sometimes_broken = dataclasses.replace(tiny, model=sometimes)
"""
    tiny_file.write_text(tiny_file.read_text() + broken)
    study = study_of(
        f"{tiny_file}:sometimes_broken",
        {"device": "cpu", "epochs": 1},
        vary={"broken": [True, False]},
        tensorboard=False,
    )
    run = start_run(study, tmp_path / "r")
    run_all(executor, run)
    for trial in run.trials():
        assert trial.state == ("failed" if trial.cell == "broken=true" else "done"), trial.id
        if trial.error is not None:
            assert trial.error.kind == "ArithmeticError"
            assert "broken on purpose" in trial.error.message


def test_the_preflight_names_the_devices_and_refuses_what_is_not_there(
    executor: Executor, tiny_file: Path
) -> None:
    study = study_of(f"{tiny_file}:tiny", {"device": "cpu"})
    assert executor.preflight(study, each_device=False)[0] == "cpu"
    missing = study.model_copy(
        update={"settings": study.settings.model_copy(update={"device": "cuda:99"})}
    )
    with pytest.raises(SpecError, match="device: got cuda:99"):
        executor.preflight(missing, each_device=False)


def test_an_executor_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(SpecError, match=f"--on: got 'moon', must be one of {', '.join(EXECUTORS)}"):
        executor_for("moon", Loader())


def test_an_instrument_cannot_go_to_another_process() -> None:
    with pytest.raises(SpecError, match="instruments: cannot go to another process"):
        executor_for("processes", Loader(), [Instrument()])


@pytest.mark.slow
def test_a_process_does_not_import_from_the_current_folder(
    tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = tmp_path / "trap"
    trap.mkdir()
    (trap / "psutil.py").write_text(f"open({str(trap / 'sprung')!r}, 'w')\n")
    run = started(tiny_file, tmp_path / "r")
    monkeypatch.chdir(trap)
    with closing(executor_for("processes", Loader())) as executor:
        run_all(executor, run)
    assert run.trials()[0].state == "done"
    assert not (trap / "sprung").exists()
    assert [path.name for path in trap.iterdir()] == ["psutil.py"]
