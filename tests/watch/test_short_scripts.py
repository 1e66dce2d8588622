"""Scripts that make few updates run again and again to be timed, or are refused; no time is made up."""

from pathlib import Path

import pytest

from trainlab.lab.driving import drive
from trainlab.lab.script_study import script_study
from trainlab.spec import CostSpec
from trainlab.watching.script_cost import ONE_UPDATE

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


def test_a_script_of_one_update_is_refused_and_one_of_few_is_timed_over_several_runs(
    tmp_path: Path,
) -> None:
    path = tmp_path / "train.py"
    for updates in (1, 4):
        path.write_text(SCRIPT.format(updates=updates))
        cost = CostSpec(processes=1, max_processes=1, budget_s=0.2, warmup_steps=2)
        study, out = script_study(path, cost=cost, learn=False), tmp_path / f"r{updates}"
        run = drive(study, out=out, on="inline").run
        (trial,) = (one for one in run.trials() if one.watch == "steps")
        if updates == 1:
            assert trial.error is not None
            assert trial.error.message == ONE_UPDATE
            assert not run.trial(trial.id).cost.path.exists()
        else:
            step_ms = run.trial(trial.id).cost.read().step_ms
            assert len(step_ms) > 4
            assert min(step_ms) > 0.01, "no step of such a model takes less"
