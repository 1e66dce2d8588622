"""What a script gives to the libraries that people log with are metrics without asking."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from trainlab.lab.driving import drive
from trainlab.lab.script_study import script_study

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).parent / "scripts" / "loggers.py"


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The lines of epochs and of steps, the libraries that were found, and what they raised."""
    folder = tmp_path_factory.mktemp("loggers")
    settings = {"WANDB_MODE": "offline", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
    settings |= {"TRACKIO_DIR": str(folder / "trackio"), "WANDB_SILENT": "true"}
    settings |= {"MLFLOW_ALLOW_FILE_STORE": "true", "HF_HUB_OFFLINE": "1"}
    before = os.environ | {}
    os.environ.update(settings)
    try:
        study = script_study(SCRIPT, ["--out", str(folder)], tensorboard=False)
        run = drive(study, out=folder / "r", on="inline").run
    finally:
        os.environ.clear()
        os.environ.update(before)
    (trial,) = run.trials()
    assert trial.state == "done", (trial.error, run.trial(trial.id).output_file.read_text())
    lines = run.trial(trial.id).curve()
    told = json.loads((folder / "raised.json").read_text())
    return told | {kind: [o for o in lines if o["kind"] == kind] for kind in ("step", "epoch")}


@pytest.mark.parametrize(
    ("library", "values"),
    [
        ("wandb", {"val/wandb_log": [0.5, 1.5], "val/disabled": [1.5, 2.5]}),
        ("mlflow", {"val/mlflow_metrics": [2.5, 3.5], "val/mlflow_metric": [3.5, 4.5]}),
        ("trackio", {"val/trackio": [4.5, 5.5]}),
        ("accelerate", {"train/accelerate": [1.0, 2.0]}),
    ],
)
def test_values_given_to_a_library_are_metrics_of_their_epoch(
    logged: dict[str, Any], library: str, values: dict[str, list[float]]
) -> None:
    if library not in logged["found"]:
        pytest.skip(f"{library} is not installed; TRAINLAB_LIBRARIES names a folder that has it")
    found = {name: [line.get(name) for line in logged["epoch"]] for name in values}
    assert found == values


def test_a_library_that_raises_does_so_for_the_script_and_the_value_counts(
    logged: dict[str, Any],
) -> None:
    found, raised = set(logged["found"]), logged["raised"]
    assert set(raised) == found - {"accelerate"}
    last = logged["epoch"][-1]
    assert last.get("val/without_a_server") == (7.0 if "mlflow" in found else None)


def test_texts_yes_and_no_and_nested_values_are_no_metrics(logged: dict[str, Any]) -> None:
    if not logged["found"]:
        pytest.skip("no library that logs is installed")
    names = {name for kind in ("step", "epoch") for line in logged[kind] for name in line}
    assert not {n for n in names if n.endswith(("text", "yes", "many", "nested", "nested_a"))}
    of_steps = {"train/accelerate", "train/wandb"} & names
    assert all(name in line for name in of_steps for line in logged["step"])
