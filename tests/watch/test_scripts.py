"""The scripts that are watched, run by themselves: the planted faults are real."""

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import pytest

HERE = Path(__file__).parent
SHAPES = {path.stem: path for path in sorted(HERE.glob("scripts/shapes/*.py"))}
FAULTS = {path.stem: path for path in sorted(HERE.glob("scripts/faults/*.py"))}
pytestmark = pytest.mark.slow


def started(words: list[str | Path], folder: Path) -> subprocess.Popen[str]:
    folder.mkdir()
    return subprocess.Popen(
        [*map(str, words)],
        cwd=folder,
        env=os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    try:
        printed, _ = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 0, printed
    return printed


def test_no_script_knows_of_trainlab() -> None:
    assert len(SHAPES) == 13
    assert len(FAULTS) == 9
    for path in [*SHAPES.values(), *FAULTS.values()]:
        assert "trainlab" not in path.read_text()


Readings = dict[str, list[dict[str, float]]]


def both_ways(
    fault: str, folder: Path, *arguments: str, rounds: int = 3, steps: int = 40
) -> Readings:
    words = [sys.executable, HERE / "repaired.py", FAULTS[fault], str(rounds), str(steps)]
    printed = finish(started([*words, *arguments], folder / fault))
    readings: Any = json.loads(printed.splitlines()[-1])
    return readings


def slower(readings: Readings) -> float:
    """How many times as long a step takes as written than repaired: the median over rounds."""
    pairs = zip(readings["written"], readings["repaired"], strict=True)
    return median(written["step_ms"] / repaired["step_ms"] for written, repaired in pairs)


def share(readings: Readings, of: str) -> float:
    return median(reading[f"{of}_share"] for reading in readings["written"])


def test_the_slow_loader_takes_half_of_the_time(tmp_path: Path) -> None:
    readings = both_ways("slow_loader", tmp_path)
    assert share(readings, "loader") > 0.5
    assert slower(readings) > 1.5


@pytest.mark.parametrize(
    ("fault", "arguments", "times"),
    [
        ("item_each_step", [], 1.15),
        ("eval_too_often", ["--eval-interval", "1000000"], 1.3),
        ("logs_to_disk", [], 1.33),
        ("wrong_threads", ["--threads", "1"], 1.2),
    ],
)
def test_without_its_fault_a_script_is_faster(
    fault: str, arguments: list[str], times: float, tmp_path: Path
) -> None:
    # Other programs may take a round or two; they do not take most of seven.
    assert slower(both_ways(fault, tmp_path, *arguments, rounds=7)) > times


def test_the_unfused_optimizer_is_a_third_of_the_step_and_fused_is_faster(tmp_path: Path) -> None:
    readings = both_ways("unfused_optimizer", tmp_path)
    assert share(readings, "optimizer") > 0.35
    assert slower(readings) > 1.2


def test_a_sample_costs_several_times_as_much_in_a_tiny_batch(tmp_path: Path) -> None:
    readings = both_ways("tiny_batch", tmp_path, "--batch-size", "32", "--epochs", "4")
    assert slower(readings) * 32 / 2 > 2.5


def test_the_leak_grows_by_two_mebibytes_a_step_and_less_with_smaller_batches(
    tmp_path: Path,
) -> None:
    readings = both_ways("leak", tmp_path, "--batch-size", "16", rounds=1)
    assert readings["written"][0]["growth_mib"] > 2
    assert readings["repaired"][0]["growth_mib"] < 1


def test_the_healthy_script_computes_nearly_all_of_the_time_and_does_not_grow(
    tmp_path: Path,
) -> None:
    readings = both_ways("healthy", tmp_path, rounds=1)
    assert share(readings, "loader") + share(readings, "optimizer") < 0.1
    assert readings["written"][0]["growth_mib"] < 0.2
