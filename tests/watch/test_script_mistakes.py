"""What a user reads of a script that ended early, or that printed no metric that was asked for."""

from pathlib import Path

import pytest

from trainlab.analysis.evidence import gather
from trainlab.analysis.overview import data_of
from trainlab.lab.driving import drive
from trainlab.lab.script_study import script_study
from trainlab.record.run_folder import RunFolder
from trainlab.record.trial_record import TrialRecord
from trainlab.report.contents import report_of
from trainlab.report.markdown import markdown_of

pytestmark = pytest.mark.slow

TRAINS = """
import torch

weights = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(weights.parameters(), lr=0.1)
for _ in range(3):
    weights(torch.ones(4, 2)).sum().backward()
    optimizer.step()
print("Accuracy: 93.5%")
"""


def ran(folder: Path, text: str, **asked: object) -> tuple[RunFolder, TrialRecord]:
    path = folder / "train.py"
    path.write_text(text)
    study = script_study(path, tensorboard=False, **asked)  # type: ignore[arg-type]
    run = drive(study, out=folder / "run", on="inline").run
    (trial,) = run.trials()
    return run, trial


def test_a_script_that_ends_with_a_text_is_quoted(tmp_path: Path) -> None:
    _, trial = ran(tmp_path, "import sys\nprint('begins')\nsys.exit('data/ is missing: fetch it')")
    assert trial.error is not None
    told = "the script ended with exit code 1, and printed last: data/ is missing: fetch it"
    assert trial.error.mistake == trial.error.message == told, (
        "the user's: exit code 2, and the line"
    )


def test_a_metric_that_never_came_is_told_and_one_that_came_is_not(tmp_path: Path) -> None:
    metrics = {"accuracy": r"Accuracy: ([0-9.]+)%", "f1": r"accurcy: ([0-9.]+)%"}
    run, trial = ran(tmp_path, TRAINS, metrics=metrics, metric_files={"auc": "log.csv:val_auc"})
    assert trial.state == "done"
    assert trial.final["test/accuracy"] == pytest.approx(0.935)
    missing = [one.values["name"] for one in trial.notes if one.code.startswith("metric_not_")]
    assert missing == ["f1", "auc"]
    text = markdown_of(report_of(data_of(gather(run)), "en"))
    assert "--metric f1: no line that the script printed has a number where" in text
    assert "--metric-file auc: no number came in column val_auc of log.csv" in text
