import json
from pathlib import Path
from typing import Any

import pytest
import torch

import trainlab
from trainlab.errors import Interrupted
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


def test_an_interrupt_leaves_a_valid_run(tiny_file: Path, tmp_path: Path) -> None:
    class Interrupt(Instrument):
        def step_ends(self, step: int) -> None:
            if step == 13:
                raise Interrupted

    asked: dict[str, Any] = {"seeds": (1, 2), "instruments": [Interrupt()], "device": "cpu"}
    with pytest.raises(KeyboardInterrupt):
        trainlab.run(f"{tiny_file}:tiny", out=tmp_path / "r", **asked)
    run = trainlab.RunFolder(tmp_path / "r")
    first, second = run.trials()
    assert (first.state, first.epochs_done) == ("interrupted", 1)
    assert second.state == "pending"
    assert len(run.trial(first.id).epochs()) == 1
