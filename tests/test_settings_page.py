"""docs/settings.md is what its generator makes of the specs, and leaves nothing out."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from trainlab.spec import CostSpec, Question
from trainlab.spec.optimizers import OPTIMIZERS
from trainlab.spec.settings import OF_WORKLOADS

SCRIPT = Path(__file__).parents[1] / "scripts" / "make_settings_page.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_settings_page", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_generator_makes(script: ModuleType) -> None:
    written = script.PAGE.read_text(encoding="utf-8")
    assert written == script.page(), f"run: python scripts/{SCRIPT.name}"


def test_every_setting_has_a_row_that_says_what_it_does(script: ModuleType) -> None:
    training, measuring, asking, optimizing = script.page().split("\n## ")[1:]
    for part, names in (
        (training, OF_WORKLOADS),
        (measuring, CostSpec.model_fields),
        (asking, Question.model_fields),
        (optimizing, OPTIMIZERS),
    ):
        rows = [line for line in part.splitlines() if line.startswith("| `")]
        assert [row.split("`")[1] for row in rows] == list(names)
        assert all(row.rstrip(" |").rpartition("| ")[2].strip() for row in rows)
        assert len({row.replace("\\|", "").count("|") for row in rows}) == 1


def test_rows_say_unit_default_choices_and_whether_learning_changes(script: ModuleType) -> None:
    rows = {row.split("`")[1]: row for row in script.page().splitlines() if row.startswith("| `")}
    told = "samples | `64`; fashion-mlp `32` | whole number above 0 | yes | yes |"
    assert rows["batch_size"].startswith(f"| `batch_size` | `--batch-size` | {told}")
    assert "| `auto`, `fused`, `foreach`, `loop` | yes | no |" in rows["optimizer_code"]
    assert "`--data-parallel`" in script.page()
    assert "| whole number above 0 | yes | no |" in rows["threads"]
