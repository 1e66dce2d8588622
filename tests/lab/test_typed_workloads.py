"""Workloads that are typed in: they train and are profiled, and what cannot be sent is told in a line."""

import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from torch import nn

import trainlab as product
from trainlab.errors import SpecError, TrialsFailedWarning, WorkloadError
from trainlab.workloads.find import received, sent
from trainlab.workloads.workload import Workload

TYPED = """
import torch, trainlab
from torch import nn

class Net(nn.Module):
    def __init__(self, hidden=8):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, 2))

    def forward(self, inputs):
        return self.layers(inputs)

def data(choice):
    inputs = torch.randn(64, 4)
    part = trainlab.Split(inputs, (inputs[:, 0] > 0).long())
    return trainlab.Dataset("typed", part, part)

def loss(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets)

work = trainlab.Workload(name="typed", model=Net, data=data, loss=loss, defaults={"batch_size": 16})
own = {"device": "cpu", "epochs": 1}
runs = [
    trainlab.run(work, **own),
    trainlab.run(work, jobs=2, seeds=2, **own),
    trainlab.profile(work, device="cpu", processes=1, budget_s=0.1),
]
print("STATES", *[trial.state for run in runs for trial in run.trials()])
print("CODES", len({trial.resolved["code"] for run in runs for trial in run.trials()}))
print("NOTES", "of trials:", *[note.code for run in runs for trial in run.trials() for note in trial.notes])
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["-c", "stdin", "interactive"])
def test_what_is_typed_in_trains_and_is_profiled(how: str, tmp_path: Path) -> None:
    words = {"-c": ["-c", TYPED], "stdin": ["-"], "interactive": ["-i", "-q"]}[how]
    # A session ends an indented block with an empty line, and none may be inside it.
    typed = TYPED.replace("\n\n    def", "\n    def")
    done = subprocess.run(
        [sys.executable, *words],
        input="" if how == "-c" else typed,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=300,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    told = dict(line.split(" ", 1) for line in done.stdout.splitlines() if line[:5].isupper())
    assert told, done.stderr
    assert set(told["STATES"].split()) == {"done"}
    assert told["CODES"] == "1"
    assert "code_changed" not in told["NOTES"]


def test_a_workload_comes_out_as_it_went_in(tiny: Workload) -> None:
    copy = received(sent({"tiny": tiny})["tiny"], "tiny")
    assert (copy.name, copy.code, copy.facts) == (tiny.name, tiny.code, tiny.facts)
    assert str(copy.build({"hidden": 4})) == str(tiny.build({"hidden": 4}))


def test_what_cannot_be_sent_is_told_before_anything_runs(tiny: Workload, tmp_path: Path) -> None:
    lock = threading.Lock()

    def model() -> nn.Module:
        with lock:
            return nn.Linear(8, 3)

    held = replace(tiny, model=model)
    told = "tiny: cannot go to a fresh process: TypeError: .*lock.*; name it as FILE.py:NAME"
    with pytest.raises(WorkloadError, match=told):
        product.profile(held, device="cpu", out=tmp_path / "r")
    assert not (tmp_path / "r").exists()
    assert product.run(held, device="cpu", epochs=1, out=tmp_path / "s").trials()[0].state == "done"


def test_the_code_of_a_typed_function_is_known_by_what_it_does(tiny: Workload) -> None:
    def code_of(text: str, cell: str) -> str:
        names: dict[str, object] = {"nn": nn}
        exec(compile(text, cell, "exec"), names)  # noqa: S102  as a session does
        return replace(tiny, model=names["model"]).code  # type: ignore[arg-type]

    first = code_of("def model():\n    return nn.Linear(8, 3)", "<cell 1>")
    assert code_of("\n\ndef model():\n    return nn.Linear(8, 3)", "<cell 2>") == first
    assert code_of("def model():\n    return nn.Linear(8, 3, bias=False)", "<cell 1>") != first


def test_a_failed_trial_is_a_warning_and_stays_in_the_run(tiny: Workload, tmp_path: Path) -> None:
    def loss(outputs: object, targets: object) -> None:
        raise ValueError("no loss today")

    failing = replace(tiny, loss=loss)  # type: ignore[arg-type]
    told = (
        "1 of 1 trials failed; the first is learn-seed1: .*: loss raised ValueError: no loss today"
    )
    with pytest.warns(TrialsFailedWarning, match=told) as seen:
        run = product.run(failing, device="cpu", epochs=1, out=tmp_path / "r")
    assert seen[0].filename == __file__
    assert "no loss today" in run._repr_html_()
    assert "1 failed" in repr(run)


def test_a_profile_takes_settings_and_fields_of_the_measurement(
    tiny: Workload, tmp_path: Path
) -> None:
    brief = {"processes": 1, "budget_s": 0.05}
    place = {"device": "cpu", "on": "inline", "out": tmp_path / "r"}
    run = product.profile(tiny, batch_size=8, mode="inference", **brief, **place)
    trial = run.trials()[0]
    assert (trial.settings["batch_size"], trial.mode, trial.state) == (8, "inference", "done")
    with pytest.raises(SpecError, match="profile: processes: "):
        product.profile(tiny, processes=0)
