import json
from pathlib import Path

import pytest
import torch

import trainlab
from trainlab.errors import DataError, Interrupted, RecordError, SpecError
from trainlab.record.schema import FORMAT
from trainlab.train.callbacks import Instrument


def test_a_run_leaves_every_record_readable(tiny_file: Path, tmp_path: Path) -> None:
    folder = trainlab.run(f"{tiny_file}:tiny", seeds=(1, 2), out=tmp_path / "r", device="cpu")
    names = sorted(p.relative_to(folder.path).as_posix() for p in folder.path.rglob("*.json*"))
    (environment,), (events,), (driver,) = (
        [name for name in names if name.startswith(f"{part}/")]
        for part in ("environments", "events", "drivers")
    )
    assert all(f"{trial.environment}.json" in environment for trial in folder.trials())
    assert [name for name in names if name not in (environment, events, driver)] == [
        "study.json",
        "trials/learn-seed1/confusion.json",
        "trials/learn-seed1/curve.jsonl",
        "trials/learn-seed1/network.json",
        "trials/learn-seed1/trial.json",
        "trials/learn-seed2/confusion.json",
        "trials/learn-seed2/curve.jsonl",
        "trials/learn-seed2/trial.json",
    ]
    for path in folder.path.rglob("*.json"):
        assert json.loads(path.read_text())["format"] == FORMAT
    for trial in folder.trials():
        assert trial.state == "done"
        assert trial.epochs_done == 2
        assert trial.steps_done == 20
        assert trial.resolved["device"] == "cpu"
        assert trial.data is not None
        assert trial.data.num_train == 100
        last = folder.trial(trial.id).curve()[-1]
        assert {name: last[name] for name in trial.final} == trial.final


def test_saved_weights_load_into_a_plain_model(tiny_file: Path, tmp_path: Path) -> None:
    folder = trainlab.run(f"{tiny_file}:tiny", out=tmp_path / "r", save_model=True, device="cpu")
    state = torch.load(folder.trial("learn-seed1").model_file)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    model.load_state_dict(state)
    accuracy = folder.trials()[0].final["test/accuracy"]
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randn(130, 8, generator=draw)[100:]
    hits = (model(inputs).argmax(1) == (inputs[:, 0] > 0).long()).float().mean()
    assert float(hits) == pytest.approx(accuracy)


def test_a_failing_trial_is_a_record_and_the_next_one_runs(tmp_path: Path, tiny_file: Path) -> None:
    tiny_file.write_text(
        tiny_file.read_text()
        + """
import torch
def flaky(outputs, targets):
    if torch.initial_seed() == FIRST:
        raise RuntimeError("the model broke: \\ud800")  # no encoding has it
    return F.cross_entropy(outputs, targets)
from trainlab.train.seeds import derived_seed
FIRST = derived_seed(1, "dropout", 1)
import dataclasses
flaky_work = dataclasses.replace(tiny, loss=flaky)
"""
    )
    folder = trainlab.run(f"{tiny_file}:flaky_work", seeds=(1, 2), out=tmp_path / "r", device="cpu")
    first, second = folder.trials()
    assert first.state == "failed"
    assert first.error is not None
    assert first.error.message == "the model broke: \\ud800"
    assert "own_work.py" in first.error.traceback
    assert second.state == "done"


def test_an_interrupt_leaves_a_valid_run(tiny_file: Path, tmp_path: Path) -> None:
    class Interrupt(Instrument):
        def step_ends(self, step: int) -> None:
            if step == 13:
                raise Interrupted

    with pytest.raises(KeyboardInterrupt):
        trainlab.run(
            f"{tiny_file}:tiny",
            seeds=(1, 2),
            out=tmp_path / "r",
            instruments=[Interrupt()],
            device="cpu",
        )
    first, second = trainlab.RunFolder(tmp_path / "r").trials()
    assert (first.state, first.epochs_done) == ("interrupted", 1)
    assert second.state == "pending"
    epochs = [
        p
        for p in trainlab.RunFolder(tmp_path / "r").trial(first.id).curve()
        if p["kind"] == "epoch"
    ]
    assert len(epochs) == 1


def test_a_model_parameter_that_does_not_exist_is_told_with_those_that_do(
    tiny_file: Path, tmp_path: Path
) -> None:
    with pytest.raises(SpecError, match=r"model\.hiden: tiny has no such parameter; it has hidden"):
        trainlab.run(f"{tiny_file}:tiny", out=tmp_path / "r", model={"hiden": 4})


def test_an_occupied_folder_is_refused(tiny_file: Path, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="is not empty"):
        trainlab.run(f"{tiny_file}:tiny", out=tmp_path)


def test_a_workload_object_runs_and_a_number_of_seeds_is_counted_from_1(
    tiny: trainlab.Workload, tmp_path: Path
) -> None:
    trials = trainlab.run(tiny, seeds=2, out=tmp_path / "r", device="cpu").trials()
    assert [(trial.seed, trial.state) for trial in trials] == [(1, "done"), (2, "done")]
    assert trials[0].workload == "tiny (given as an object)"


def test_data_that_cannot_be_had_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="must be full, bundled, auto or a folder"):
        trainlab.run("fashion-mlp", out=tmp_path / "r", data="nowhere")
    assert not (tmp_path / "r").exists()
