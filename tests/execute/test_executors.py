"""The contract that every executor keeps. Those elsewhere are tested on real clusters: test_clusters.py."""

from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from asking import curves, groups_of, study_of
from children import children
from trainlab.errors import SpecError
from trainlab.execute.executors import Executor, executor_for, packed
from trainlab.execute.jobs import EXECUTORS, check_place
from trainlab.execute.planned_run import start_run
from trainlab.plan import plan
from trainlab.record.run_folder import RunFolder
from trainlab.spec import CostSpec
from trainlab.train.loader import Loader

BRIEF = {"processes": 1, "budget_s": 0.1, "warmup_steps": 1, "active_steps": 2, "trace_mb": 0}
QUICK = CostSpec(**BRIEF, mode="train")
SOMETIMES_BROKEN = """
class Broken(nn.Linear):
    def forward(self, x):
        raise ArithmeticError("broken on purpose: \\ud800")  # no encoding has it
def sometimes(hidden=8, broken=False):
    return Broken(8, 2) if broken else model(hidden)
import dataclasses
sometimes_broken = dataclasses.replace(tiny, model=sometimes)
"""
WAYS = [
    ("inline", 1),
    ("processes", 1),
    pytest.param(("local", 1), marks=pytest.mark.slow),
    pytest.param(("local", 2), marks=pytest.mark.slow),
]


@pytest.fixture(autouse=True)
def _two_vcpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainlab.execute.jobs.usable_vcpus", lambda: 2)


def ran(executor: Executor, workload: str, out: Path, **asked: Any) -> RunFolder:
    settings = {"device": "cpu", "threads": 1, "epochs": 1, **asked.pop("settings", {})}
    run = start_run(study_of(workload, settings, tensorboard=False, **asked), out)
    executor.run(run, groups_of(run), lambda: False)
    return run


@pytest.mark.parametrize("way", WAYS)
def test_every_trial_is_run_once_and_a_mistake_fails_alone(
    way: tuple[str, int], tiny_file: Path, tmp_path: Path
) -> None:
    tiny_file.write_text(tiny_file.read_text() + SOMETIMES_BROKEN)
    before, (on, jobs) = set(children()), way
    learning = {"vary": {"broken": [True, False]}, "seeds": 2}
    with closing(executor_for(on, Loader(), jobs=jobs)) as executor:
        run = ran(executor, f"{tiny_file}:sometimes_broken", tmp_path / "r", **learning)
        measured = ran(executor, f"{tiny_file}:tiny", tmp_path / "m", cost=QUICK)
    assert set(children()) == before, "a process was left behind"
    for folder, trial in [(one, trial) for one in (run, measured) for trial in one.trials()]:
        assert trial.attempt == 1
        assert trial.environment in folder.environment_files()
        assert trial.state == ("failed" if trial.cell == "broken=true" else "done"), trial.id
        if trial.error is not None:
            assert trial.error.kind == "ArithmeticError"
            assert "broken on purpose: \\ud800" in trial.error.message
            assert "own_work.py" in trial.error.traceback
        elif trial.state == "done":
            assert trial.resolved["engine"] == ("tuned" if trial.kind == "learn" else "eager")
    watches = [trial.watch for trial in measured.trials()]
    assert watches == [None, "steps", "layers", "operators"]
    # A watched process never supplies a speed, and a timed one nothing else.
    for watch, home in zip(watches, map(measured.trial, measured.study().trials), strict=True):
        assert home.cost.exists() is (watch == "steps")
        assert home.operators.exists() is (watch == "operators")
        for record in (home.layers, home.memory, home.limits):
            assert record.exists() is (watch == "layers")
    if on != "inline":
        inline = executor_for("inline", Loader())
        here = ran(inline, f"{tiny_file}:sometimes_broken", tmp_path / "here", **learning)
        assert curves(run) == curves(here)
        assert sum(map(bool, curves(run).values())) == 2


def test_the_preflight_names_the_devices_and_refuses_what_is_not_there(tiny_file: Path) -> None:
    study = study_of(f"{tiny_file}:tiny", {"device": "cpu"})
    settings = study.settings.model_copy(update={"device": "cuda:99"})
    missing = study.model_copy(update={"settings": settings})
    for on in ("inline", "local"):
        executor = executor_for(on, Loader())
        assert executor.preflight(study, each_device=False)[0] == "cpu"
        with pytest.raises(SpecError, match="device: got cuda:99"):
            executor.preflight(missing, each_device=False)


def test_what_no_executor_can_do_is_refused() -> None:
    with pytest.raises(SpecError, match=f"--on: got 'moon', must be one of {', '.join(EXECUTORS)}"):
        check_place("moon", 1)
    with pytest.raises(SpecError, match="--on: got 'processes', but instruments cannot go to"):
        check_place("processes", 1, has_instruments=True)


@pytest.mark.slow
def test_a_process_does_not_import_from_the_current_folder(
    tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = tmp_path / "trap"
    trap.mkdir()
    (trap / "psutil.py").write_text(f"open({str(trap / 'sprung')!r}, 'w')\n")
    run = start_run(study_of(f"{tiny_file}:tiny", {"device": "cpu"}), tmp_path / "r")
    monkeypatch.chdir(trap)
    with closing(executor_for("processes", Loader())) as executor:
        executor.run(run, groups_of(run), lambda: False)
    assert run.trials()[0].state == "done"
    assert [path.name for path in trap.iterdir()] == ["psutil.py"]


# Trials trained together: what is packed, what is recorded.


def test_lanes_write_the_records_that_eager_writes(tiny_file: Path, tmp_path: Path) -> None:
    together, alone = (
        ran(
            executor_for("local", Loader()),
            f"{tiny_file}:tiny",
            tmp_path / engine,
            settings={"epochs": 2, "engine": engine},
            vary={"lr": [0.01, 0.1], "batch_size": [8, 16]},
            seeds=3,
        )
        for engine in ("lanes", "eager")
    )
    for one, other in zip(together.trials(), alone.trials(), strict=True):
        assert (one.id, one.state, one.steps_done) == (other.id, "done", other.steps_done)
        assert (one.resolved["engine"], other.resolved["engine"]) == ("lanes", "eager")
        assert one.resolved["trials_together"] == 6
        for a, b in zip(curves(together)[one.id], curves(alone)[one.id], strict=True):
            assert a.pop("kind") == b.pop("kind")
            assert a == pytest.approx(b, rel=1e-3, abs=1e-5)


COUNTING = """
class Kept:
    mean = torch.ones(())
CALLS = [0]
def counting(outputs, targets):
    CALLS[0] += 1
    return F.cross_entropy(outputs, targets) * min(CALLS[0], 9)
def averaging(outputs, targets):
    loss = F.cross_entropy(outputs, targets)
    Kept.mean = 0.9 * Kept.mean + 0.1 * loss.detach()
    return loss / Kept.mean
import dataclasses
counted = dataclasses.replace(tiny, loss=counting)
averaged = dataclasses.replace(tiny, loss=averaging)
"""


def test_trials_that_lanes_refuse_learn_what_they_learn_alone(
    tiny_file: Path, tmp_path: Path
) -> None:
    """Whatever the loss keeps outside of itself, and the steps that lanes tried have made of it."""
    tiny_file.write_text(tiny_file.read_text() + COUNTING)
    for name in ("counted", "averaged"):
        refused, alone = (
            ran(
                executor_for("local", Loader(), jobs=2),
                f"{tiny_file}:{name}",
                tmp_path / f"{name}-{engine}",
                settings={"engine": engine},
                seeds=2,
            )
            for engine in ("lanes", "eager")
        )
        for trial in refused.trials():
            assert (trial.state, trial.resolved["engine"]) == ("done", "eager")
            (told,) = trial.notes
            assert told.values["engine"] == "lanes"
            one, other = (curves(run)[trial.id] for run in (refused, alone))
            assert [line["train/loss"] for line in one] == [line["train/loss"] for line in other]


def test_trials_of_one_program_are_packed_and_others_apart(tiny_file: Path) -> None:
    vary = {"lr": [0.01, 0.1], "batch_size": [8, 16], "optimizer": ["adam", "sgd"]}
    study, alone = (
        study_of(f"{tiny_file}:tiny", {"device": "cpu", "engine": engine}, vary=vary, seeds=2)
        for engine in ("lanes", "eager")
    )
    groups = packed(plan(study))
    sizes = Counter(len(group.trials) for group in groups)
    assert sizes == {8: 2}
    assert all(len({t.settings.batch_size for t in group.trials}) == 1 for group in groups)
    assert {t.id for g in groups for t in g.trials} == {t.id for g in plan(study) for t in g.trials}
    assert packed(plan(alone)) == list(plan(alone))
