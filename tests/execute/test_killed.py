"""Drivers and workers that are killed at any moment: nothing is lost or changed, and no process is left."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from asking import curves
from command import Verb
from trainlab.machine.host import usable_vcpus
from trainlab.record.run_folder import RunFolder
from trainlab.train.checkpoints import VARIABLE

JOBS = str(min(2, usable_vcpus()))
OWN = """
class Dropping(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.drop, self.last = nn.Linear(8, 16), nn.Dropout(0.3), nn.Linear(16, 2)

    def forward(self, x):
        return self.last(self.drop(self.first(x).relu()))

dropping = Workload(name="dropping", model=Dropping, data=data, loss=F.cross_entropy)
"""
ASKED = f"""
    own_work.py:dropping --engine graphed,lanes --epochs 4 --seeds 3 --batch-size 4 --jobs {JOBS}
    --device cpu --threads 1 --log-every-steps 5 --no-tensorboard
    --profile --weights trained --mode train --processes 1 --cost-budget 0.1s
    --cost-warmup-steps 2 --active-steps 2 --trace-mb 0
""".split()
"""Learn trials by themselves and in lanes, and cost trials that need the weights of some."""


def driver(folder: Path, *words: str) -> "subprocess.Popen[bytes]":
    """`trainlab run` or `trainlab resume` in a process of its own."""
    command = [sys.executable, "-P", "-m", "trainlab", *words, "--no-report", "--quiet"]
    return subprocess.Popen(command, cwd=folder, env={**os.environ, VARIABLE: "0"})


def until(process: "subprocess.Popen[bytes]", has_come: Callable[[], bool]) -> list[psutil.Process]:
    """Waits for something that must come before the driver's end; it and all that it has started by then,
    the youngest last."""
    while not has_come():
        assert process.poll() is None, "it has ended by itself"
        time.sleep(0.01)
    own = psutil.Process(process.pid)
    return [own, *own.children(recursive=True)]


@pytest.mark.slow
def test_a_study_that_is_killed_and_resumed_has_the_curves_of_an_undisturbed_one(
    tiny_file: Path, tmp_path: Path, trainlab: Verb
) -> None:
    tiny_file.write_text(tiny_file.read_text() + OWN)
    trainlab("run", *ASKED, "--no-report", "--quiet", "--out", "whole")
    run, whole = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "whole")

    def trains() -> bool:
        return any(run.trials_folder.glob("*/resume/*.pt"))

    def measures() -> bool:
        cost = (trial for trial in run.trials() if trial.kind == "cost")
        return any(trial.state == "running" for trial in cost)

    first = driver(tmp_path, "run", *ASKED, "--out", "run")
    until(first, trains)[-1].kill()
    family = until(first, measures)
    for victim in (family[-1], family[0]):
        with suppress(psutil.NoSuchProcess):
            victim.kill()
    first.wait(timeout=300)
    assert not psutil.wait_procs(family[1:], timeout=120)[1], "processes outlived their driver"
    learned = [trial for trial in run.trials() if trial.kind == "learn"]
    finished = {trial.id: trial.attempt for trial in learned if trial.is_finished}
    assert driver(tmp_path, "resume", "run").wait(timeout=300) == 0
    assert curves(run) == curves(whole)
    assert {trial.state for trial in run.trials()} == {"done"}
    assert [trial.id for trial in run.trials()] == [trial.id for trial in whole.trials()]
    assert not [*run.path.rglob("resume/*"), *run.path.rglob("*.part")]
    assert finished.items() <= {trial.id: trial.attempt for trial in run.trials()}.items()
