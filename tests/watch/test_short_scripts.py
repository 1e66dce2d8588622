"""Scripts that make few updates run again and again to be timed, or are refused; no time is made up."""

from pathlib import Path

import pytest

from trainlab.lab.driving import drive
from trainlab.lab.script_study import script_study
from trainlab.record.trial_record import TrialRecord
from trainlab.spec import CostSpec

SCRIPT = """
import torch
from torch import nn

model = nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range({updates}):
    optimizer.zero_grad()
    model(torch.randn(32, 64)).square().mean().backward()
    optimizer.step()
"""

pytestmark = pytest.mark.slow


def timed(folder: Path, updates: int) -> tuple[TrialRecord, list[float]]:
    """The one timed trial of such a script, and its steps."""
    path = folder / "train.py"
    path.write_text(SCRIPT.format(updates=updates))
    cost = CostSpec(processes=1, max_processes=1, budget_s=0.2, warmup_steps=2)
    run = drive(script_study(path, cost=cost, learn=False), out=folder / "r", on="inline").run
    (trial,) = (one for one in run.trials() if one.watch == "steps")
    cost_file = run.trial(trial.id).cost
    return trial, cost_file.read().step_ms if cost_file.path.exists() else []


def test_a_script_of_one_update_cannot_be_timed_and_says_so(tmp_path: Path) -> None:
    trial, step_ms = timed(tmp_path, 1)
    assert (trial.state, step_ms) == ("failed", [])
    assert trial.error is not None
    told = "the script makes one update each time it runs; give it more, as by its own arguments"
    assert trial.error.message == told


def test_a_script_of_few_updates_is_timed_over_several_runs(tmp_path: Path) -> None:
    trial, step_ms = timed(tmp_path, 4)
    assert trial.state == "done"
    assert len(step_ms) > 4
    assert min(step_ms) > 0.01, "no step of such a model takes less"
