"""A run folder that something has damaged is one line that names the file and the fault."""

import json
from pathlib import Path
from typing import Any

import pytest

from command import Verb
from fabricate import Fabricated, made_study
from trainlab.spec import CostSpec

CURVE = "trials/learn-lr=0.1-seed1/curve.jsonl"
COST = "trials/cost-train-lr=0.1-process1/cost.json"
OPERATORS = "trials/cost-train-lr=0.1-operators/operators.json"


@pytest.fixture
def damaged(trainlab: Verb, tmp_path: Path) -> Path:
    study = made_study(vary={"lr": (0.1, 0.2)}, seeds=2, cost=CostSpec(processes=2))
    Fabricated(step_points=1).write(tmp_path / "r", study)
    trainlab("show", "r")
    return tmp_path / "r"


def told(trainlab: Verb, verb: str = "show") -> str:
    (line,) = trainlab(verb, "r", code=2).stderr.splitlines()
    return line.removeprefix("trainlab: ")


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        (b'{"kind": "epoch", "epoch": 2, "step": 1, "samples": 1, "time_s": 1}', "train_s: Field"),
        (b'["kind", "epoch", 2]', "holds a list, must be an object"),
        (b"[2]", "holds a list, must be an object"),
        (b"\xff", "is not UTF-8"),
        (b'{"kind": "epoch", "epoch": NaN', "is not JSON"),
        (
            b'{"kind": "epoch", "epoch": 2, "step": 1, "samples": 1, "train_s": NaN, "time_s": 1}',
            "is not JSON: NaN is no number",
        ),
        (
            b'{"kind": "epoch", "epoch": 2, "step": 1, "samples": 1, "train_s": 1, "time_s": 1, '
            b'"test/loss": "x"}',
            "test/loss: Input should be a valid number",
        ),
    ],
)
def test_a_damaged_line_of_a_curve_is_told_with_its_number(
    line: bytes, rule: str, trainlab: Verb, damaged: Path
) -> None:
    path = damaged / CURVE
    lines = path.read_bytes().split(b"\n")
    lines.insert(2, line)
    path.write_bytes(b"\n".join(lines))
    assert told(trainlab).startswith(f"r/{CURVE}: line 3: {rule}")


def test_a_damaged_line_of_a_step_is_told_by_the_report_that_draws_it(
    trainlab: Verb, damaged: Path
) -> None:
    path = damaged / CURVE
    path.write_text('{"kind": "step", "epoch": 1}\n' + path.read_text())
    assert told(trainlab, "report").startswith(f"r/{CURVE}: line 1: step: Field required")


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ({"step_ms": []}, "step_ms: List should have at least 1 item"),
        ({"step_ms": [0.0] * 5}, "step_ms.0: Input should be greater than 0"),
        ({"step_ms": [1.0] * 4 + [float("nan")]}, "is not JSON: NaN is no number"),
        ({"step_ms": [1.0] * 4}, "step_ms has 4 steps, the turns 5"),
        ({"batch_size": 0}, "batch_size: Input should be greater than 0"),
    ],
)
def test_a_cost_without_a_single_sound_step_is_told(
    values: dict[str, Any], rule: str, trainlab: Verb, damaged: Path
) -> None:
    change(damaged / COST, **values)
    assert told(trainlab).startswith(f"r/{COST}: {rule}")


def test_a_step_too_long_for_a_number_is_told(trainlab: Verb, damaged: Path) -> None:
    path = damaged / COST
    path.write_text(path.read_text().replace('"step_ms": [', '"step_ms": [1e999, ', 1))
    assert told(trainlab).startswith(f"r/{COST}: step_ms.0: Input should be a finite number")


def test_cells_that_the_trials_name_must_be_in_the_study(trainlab: Verb, damaged: Path) -> None:
    path = damaged / "study.json"
    change(path, study=json.loads(path.read_text())["study"] | {"cells": []})
    line = told(trainlab)
    assert line.startswith("r/study.json: study.cells: has no lr=0.")
    assert line.endswith("the file was changed by hand?")


def test_a_record_without_a_format_is_not_taken_for_a_newer_one(
    trainlab: Verb, damaged: Path
) -> None:
    (damaged / OPERATORS).write_text("{}")
    expected = f"r/{OPERATORS}: has no format number, must have one from 1 to 2"
    assert told(trainlab).startswith(expected)
    (damaged / OPERATORS).write_text('{"format": 99}')
    assert told(trainlab).endswith("format 99, this trainlab reads up to 2; update it")


@pytest.mark.parametrize("file", ["trials/learn-lr=0.1-seed1/trial.json", COST])
def test_a_file_that_is_missing_inside_a_run_is_named(
    file: str, trainlab: Verb, damaged: Path
) -> None:
    (damaged / file).unlink()
    assert told(trainlab) == f"r/{file}: is missing; was the run folder copied whole?"
