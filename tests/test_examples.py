"""The examples and the documents that show them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_the_spirals_example_learns(tmp_path: Path) -> None:
    words = ["run", f"{ROOT}/examples/spirals.py:workload", "--json", "--device", "cpu"]
    done = subprocess.run(
        [sys.executable, "-m", "trainlab", *words], cwd=tmp_path, capture_output=True, text=True
    )
    (trial,) = json.loads(done.stdout)["trials"]
    assert trial["final"]["test/accuracy"] > 0.95


@pytest.mark.slow
def test_the_instrument_example_prints_gradient_norms(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, f"{ROOT}/examples/gradient_norm.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.count("gradient norm") > 10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("example", "metric", "at_most"),
    [("language_model", "test/bits", 2.0), ("gan", "test/off_circle", 0.5)],
)
def test_the_examples_with_a_step_of_their_own_learn(
    example: str, metric: str, at_most: float, tmp_path: Path
) -> None:
    words = ["run", f"{ROOT}/examples/{example}.py:workload", "--json", "--device", "cpu"]
    done = subprocess.run(
        [sys.executable, "-m", "trainlab", *words], cwd=tmp_path, capture_output=True, text=True
    )
    (trial,) = json.loads(done.stdout)["trials"]
    assert trial["final"][metric] < at_most


@pytest.mark.parametrize(
    "example", ["spirals.py", "gradient_norm.py", "language_model.py", "gan.py"]
)
def test_the_document_shows_the_example_as_it_is(example: str) -> None:
    shown = (ROOT / "docs/own-workload.md").read_text()
    assert (ROOT / "examples" / example).read_text().rstrip() in shown


@pytest.mark.slow
def test_every_benchmark_still_fits_what_it_measures() -> None:
    names = [path.stem for path in sorted((ROOT / "benchmarks").glob("*.py"))]
    script = f"import importlib\nfor n in {names}: importlib.import_module(f'benchmarks.{{n}}')"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "tests"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
