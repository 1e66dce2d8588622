"""`trainlab diagnose` on a script that waits for its data."""

import json
from pathlib import Path

import pytest

from command import Verb

pytestmark = pytest.mark.slow

SCRIPT = """
import argparse, time, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 200
    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.zeros(4), torch.zeros(1)

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4)
args = parser.parse_args()
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
for epoch in range(2):
    for x, y in DataLoader(Slow(), args.batch_size, shuffle=True):
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        optimizer.step()
"""


def test_waiting_for_data_is_confirmed_and_shown(trainlab: Verb, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    asked = ("--try", "same_batch", "--budget", "20m", "--out", "run", "--json")
    result = trainlab("diagnose", "train.py", *asked)
    first = json.loads(result.stdout)["limits"][0]
    assert (first["limit"], first["verdict"]) == ("data", "confirmed")
    assert first["tried"][0]["ratio"] < 0.5
    assert json.loads((tmp_path / "run" / "diagnosis.json").read_text())["limits"][0] == first
    assert "Waiting for data takes" in trainlab("show", "run").stdout
