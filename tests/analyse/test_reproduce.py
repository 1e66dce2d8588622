from pathlib import Path
from typing import Any

import pytest

from fabricate import Fabricated, made_study
from trainlab.analyse.evidence import gather
from trainlab.analyse.reproduce import differing_settings, reproduce
from trainlab.plan import Trial
from trainlab.studies import builtin_study
from trainlab.studies.published import PUBLISHED

AS_MADE = {"base": made_study().settings}


def final(trial: Trial) -> dict[str, float]:
    return {"test/loss": 0.40 + 0.01 * trial.seed}


def test_a_published_figure_is_inside_where_one_more_run_of_ours_would_fall(tmp_path: Path) -> None:
    evidence = gather(Fabricated(final=final).write(tmp_path / "r", made_study(seeds=3)))
    near, far = reproduce(evidence, {"base": {"test/loss": (0.44, 0.55)}}, AS_MADE)
    assert (near.epoch, near.inside) == (1, True)
    assert (far.epoch, far.inside) == (2, False)
    # 0.41, 0.42, 0.43: 0.42 ± 4.3027 · 0.01 · sqrt(1 + 1/3)
    assert near.interval is not None
    assert near.interval.low == pytest.approx(0.42 - 0.04968, abs=1e-5)
    assert near.ours is not None
    assert near.ours.value == pytest.approx(0.42)


def test_figures_without_a_run_of_ours_are_left_out(tmp_path: Path) -> None:
    evidence = gather(Fabricated(final=final).write(tmp_path / "r", made_study(seeds=2)))
    published = {
        "base": {"test/loss": (0.4, 0.4, 0.4), "test/accuracy": (0.9,)},
        "lr=7": {"test/loss": (0.4,)},
    }
    assert [one.epoch for one in reproduce(evidence, published, AS_MADE)] == [1, 2]


def test_one_seed_says_nothing(tmp_path: Path) -> None:
    evidence = gather(Fabricated(final=final).write(tmp_path / "r", made_study(seeds=1)))
    (only,) = reproduce(evidence, {"base": {"test/loss": (0.41,)}}, AS_MADE)
    assert only.inside is None


@pytest.mark.parametrize(
    ("asked", "differences"),
    [
        ({"epochs": 3}, ("epochs 3, published with 2",)),
        (
            {"lr": 0.1, "batch_size": 8},
            ("batch_size 8, published with 64", "lr 0.1, published with 0.001"),
        ),
        ({"model": {"hidden": 4}}, ("model {'hidden': 4}, published with {}",)),
        ({"lr": 0.001, "device": "cpu", "threads": 2, "log_every_steps": 9}, ()),
    ],
)
def test_a_cell_that_trained_otherwise_is_named_and_not_compared(
    asked: dict[str, Any], differences: tuple[str, ...], tmp_path: Path
) -> None:
    study = made_study(seeds=2, settings=asked)
    evidence = gather(Fabricated(final=final).write(tmp_path / "r", study))
    found = reproduce(evidence, {"base": {"test/loss": (0.41,)}}, AS_MADE)
    assert bool(found) == (not differences)
    assert differing_settings(evidence, AS_MADE) == ({"base": differences} if differences else {})


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_every_published_cell_is_one_of_the_studys(name: str) -> None:
    question = builtin_study(name)
    kept = question.model_dump(exclude={"vary", "workload", "cost", "title", "tensorboard"})
    vary = {factor: levels for factor, levels in question.vary.items() if factor != "device"}
    cells = {cell.id for cell in made_study(**kept, vary=vary).all_cells}
    assert set(PUBLISHED[name]) <= cells
