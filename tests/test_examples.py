"""The examples and the documents that show them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def printed(folder: Path, *words: str) -> str:
    """What Python prints in a folder."""
    words = (sys.executable, *words)
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_the_instrument_example_prints_gradient_norms(tmp_path: Path) -> None:
    assert printed(tmp_path, f"{ROOT}/examples/gradient_norm.py").count("gradient norm") > 10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("example", "metric", "low", "high"),
    [
        ("autoencoder", "test/explained", 0.7, 1.0),
        ("gan", "test/off_circle", 0.0, 0.5),
        ("hugging_face", "test/accuracy", 0.9, 1.0),
        ("language_model", "test/bits", 0.0, 2.0),
        ("padded_lstm", "test/accuracy", 0.9, 1.0),
        ("resnet", "test/accuracy", 0.4, 1.0),
        ("spirals", "test/accuracy", 0.95, 1.0),
    ],
)
def test_an_example_learns(
    example: str, metric: str, low: float, high: float, tmp_path: Path
) -> None:
    if example == "hugging_face":
        pytest.importorskip("transformers", reason="pip install transformers")
    words = ["run", f"{ROOT}/examples/{example}.py:workload", "--json", "--device", "cpu"]
    (trial,) = json.loads(printed(tmp_path, "-m", "trainlab", *words))["trials"]
    assert low <= trial["final"][metric] <= high


def test_the_documents_show_examples_as_they_are_and_a_page_names_each() -> None:
    shown = (ROOT / "docs/own-model.md").read_text()
    for example, first, end in (
        ("spirals", "", None),
        ("gradient_norm", "", None),
        ("language_model", "def step(", "\n\n\nworkload"),
        ("gan", "def models(", "\n\n\ndef judged"),
        ("gan", "def judged(", "\n\n\ndef evaluate"),
    ):
        text = (ROOT / f"examples/{example}.py").read_text()
        text = text[text.index(first) : text.index(end) if end else None]
        assert text.rstrip() in shown, example
    files = [path.name for path in (ROOT / "examples").glob("*.*") if path.suffix != ".md"]
    assert len(files) >= 10
    shown = (ROOT / "examples/README.md").read_text()
    assert [name for name in files if f"]({name})" not in shown] == []


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


@pytest.mark.slow
def test_the_plain_script_is_watched_and_told_as_it_is(tmp_path: Path) -> None:
    words = ["watch", f"{ROOT}/examples/plain_script.py", "--epochs", "3", "--threads", "1"]
    words += ["--metric", "accuracy=accuracy ([0-9.]+)%", "--out", "run", "--json"]
    told = json.loads(printed(tmp_path, "-m", "trainlab", *words))
    (trial,) = told["trials"]
    assert trial["arguments"] == ["--epochs", "3"]
    seen = {"batch_size": 32, "optimizer": "Adam", "updates": 3 * 63}
    assert seen.items() <= trial["seen"].items()
    assert trial["final"]["test/accuracy"] > 0.8
    assert sum(trial["parts_s"].values()) == pytest.approx(trial["wall_s"])
    kinds = {finding["kind"]: finding for finding in told["findings"]}
    assert kinds["script_order"]["numbers"]["num_passes"] == 3
    assert "script_memory" not in kinds
    assert (tmp_path / "spirals.pt").exists()
    shown = printed(tmp_path, "-m", "trainlab", "show", "run", "--lang", "zh")
    assert "plain_script.py --epochs 3" in shown
    assert "脚本的时间花在哪里" in shown
