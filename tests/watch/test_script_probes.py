"""`trainlab watch --probe`: probes, the network and TensorBoard of a script that knows nothing of them."""

from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from command import Verb
from trainlab.analysis.evidence import gather
from trainlab.analysis.overview import data_of
from trainlab.lab import open_run
from trainlab.report.contents import report_of
from trainlab.report.markdown import markdown_of

pytestmark = pytest.mark.slow

SCRIPT = """
import argparse
import torch
from torch import nn
from torch.utils.tensorboard import SummaryWriter

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
lr = parser.parse_args().lr
torch.manual_seed(3)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=lr)
writer = SummaryWriter("own")
log = open("log.csv", "w")
print("step,seen", file=log)
for step in range(6):
    optimizer.zero_grad()
    loss = model(torch.randn(16, 4)).square().mean()
    loss.backward()
    optimizer.step()
    print(step, 10 * step, sep=",", file=log, flush=True)
    print(repr(loss.item()))
writer.add_scalar("Error/test", loss.item() + 1, step)
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def test_a_script_has_all_that_a_workload_has(script: Path, trainlab: Verb) -> None:
    probes = ("--probe", "*.weight:grad:norm@2", "--probe", "type=ReLU:activation:mean@step")
    columns = ("--metric-file", "test/seen=log.csv:seen", "--metric-file", "auc=log.csv:val_auc")
    asked = (*columns, "--metric", "f1=f1 ([0-9.]+)%")
    trainlab("watch", script, "--vary", "lr=0.1", *probes, *asked, "--out", "all", "--no-report")
    trainlab("watch", script, "--no-tensorboard", "--out", "bare", "--no-report")
    (watched,), bare = open_run("all").trials(), open_run("bare").trial("learn-seed1")
    folder = open_run("all").trial(watched.id)
    losses = folder.output_file.read_text().split()
    assert len(losses) == 6
    assert bare.output_file.read_text().split() == losses
    assert folder.watched.read().losses == [float(loss) for loss in losses]
    assert not bare.tensorboard_folder.exists()
    assert not bare.probes_file.exists()

    assert {row.type for row in folder.network.read().rows} == {"Linear", "ReLU", "Dropout"}
    places = [(line.layer, line.step) for line in folder.probe_lines()]
    assert [step for layer, step in places if layer == "3.weight"] == [2, 4, 6]
    assert [step for layer, step in places if layer == "1"] == [1, 2, 3, 4, 5, 6]
    (epoch,) = folder.epochs()
    assert epoch["test/error"] == float(losses[-1]) + 1
    assert epoch["test/seen"] == 50
    missing = [one.values["name"] for one in watched.notes if one.code.startswith("metric_not_")]
    assert missing == ["f1", "auc"]
    text = markdown_of(report_of(data_of(gather(open_run("all"))), "en"))
    assert "--metric f1: no line that the script printed has a number where" in text
    assert "--metric-file auc: no number came in column val_auc of log.csv" in text
    board = EventAccumulator(str(folder.tensorboard_folder)).Reload()
    assert board.Tags()["graph"]
    assert [point.step for point in board.Scalars("step/loss/train over samples")] == [*range(1, 7)]


def test_a_selector_that_reaches_nothing_fails_the_trial_with_the_names_there_are(
    script: Path, trainlab: Verb
) -> None:
    trainlab("watch", script, "--probe", "fc:activation:mean", "--out", "run", code=2)
    (record,) = open_run("run").trials()
    assert record.state == "failed"
    assert record.error is not None
    assert "'fc' reaches no layer; there are Sequential, 0, 1, 2, 3" in record.error.message
