import math
import statistics
from pathlib import Path
from typing import Any

import pytest
from benchmarks.reproduce import failure_rates
from scipy import stats

from fabricate import Fabricated, made_study
from trainlab.analysis.evidence import gather
from trainlab.analysis.reproduce import (
    PublishedCurve,
    differing_settings,
    published_curves,
    reproduce,
)
from trainlab.plan import Trial
from trainlab.studies import PUBLISHED, builtin_study

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


def curve_of(published: tuple[float, ...], tmp_path: Path, seeds: int = 16) -> PublishedCurve:
    """Ours are 0.41 to 0.56 in both epochs alike: mean 0.485, standard deviation 0.0476."""
    evidence = gather(Fabricated(final=final).write(tmp_path / "r", made_study(seeds=seeds)))
    figures = reproduce(evidence, {"base": {"test/loss": published}}, AS_MADE)
    (curve,) = published_curves(figures)
    return curve


def test_a_curve_is_tested_by_its_mean_deviation_and_each_figure_alone(tmp_path: Path) -> None:
    curve = curve_of((0.585, 0.635), tmp_path)
    ours = [0.40 + 0.01 * seed for seed in range(1, 17)]
    spread = statistics.stdev(ours)
    assert curve.deviation == pytest.approx((0.1 + 0.15) / 2 / spread)
    error = spread * math.sqrt(1 + 1 / 16)
    # Epochs that move as one: the mean of two is no better known than one of them.
    assert curve.p_curve == pytest.approx(2 * stats.t.sf((0.125 - 0.0005) / error, 15))
    assert curve.p_figure == pytest.approx(2 * stats.t.sf((0.15 - 0.0005) / error, 15))
    assert curve.agrees

    # One that is far off, or has one figure far off, does not agree.
    for name, published in (("curve", (0.785, 0.785)), ("figure", (0.485, 0.855))):
        assert not curve_of(published, tmp_path / name).agrees


def test_figures_in_which_all_seeds_agree_are_held_to_the_rounding(tmp_path: Path) -> None:
    same = Fabricated(final=lambda trial: {"test/loss": 0.4}).write(tmp_path / "r", made_study())
    for published, agrees in (((0.4, 0.4), True), ((0.4, 0.41), False)):
        figures = reproduce(gather(same), {"base": {"test/loss": published}}, AS_MADE)
        assert [curve.agrees for curve in published_curves(figures)] == [agrees]


@pytest.mark.slow
def test_a_true_reproduction_rarely_fails_and_a_wrong_one_mostly_does() -> None:
    true, before = failure_rates(400, 16, "normal", 0.3, off=0.0)
    wrong, _ = failure_rates(400, 16, "normal", 0.3, off=3.0)
    print(f"true {true:.3f} (before {before:.3f}), one setting three deviations off {wrong:.3f}")
    assert true <= 0.02 + 3 * math.sqrt(0.02 * 0.98 / 400)
    assert before > 0.2
    assert wrong > 0.5


def test_figures_without_a_run_of_ours_are_left_out(tmp_path: Path) -> None:
    published = {
        "base": {"test/loss": (0.4, 0.4, 0.4), "test/accuracy": (0.9,)},
        "lr=7": {"test/loss": (0.4,)},
    }
    for seeds, num_curves in ((2, 1), (1, 0)):
        made = Fabricated(final=final).write(tmp_path / str(seeds), made_study(seeds=seeds))
        found = reproduce(gather(made), published, AS_MADE)
        assert [one.epoch for one in found] == [1, 2]
        assert all((one.inside is None) == (seeds == 1) for one in found)
        assert len(published_curves(found)) == num_curves


def test_a_cell_that_trained_otherwise_is_named_and_not_compared(tmp_path: Path) -> None:
    batch, lr = "batch_size 8, published with 64", "lr 0.1, published with 0.001"
    asked: list[tuple[dict[str, Any], tuple[str, ...]]] = [
        ({"epochs": 3}, ("epochs 3, published with 2",)),
        ({"lr": 0.1, "batch_size": 8}, (batch, lr)),
        ({"model": {"hidden": 4}}, ("model {'hidden': 4}, published with {}",)),
        ({"lr": 0.001, "device": "cpu", "threads": 2, "log_every_steps": 9}, ()),
    ]
    for number, (settings, differences) in enumerate(asked):
        study = made_study(seeds=2, settings=settings)
        evidence = gather(Fabricated(final=final).write(tmp_path / str(number), study))
        found = reproduce(evidence, {"base": {"test/loss": (0.41,)}}, AS_MADE)
        assert bool(found) == (not differences)
        known = differing_settings(evidence, AS_MADE)
        assert known == ({"base": differences} if differences else {})


def test_every_published_cell_is_one_of_the_studys() -> None:
    for name, published in PUBLISHED.items():
        question = builtin_study(name)
        kept = question.model_dump(exclude={"vary", "workload", "cost", "title", "tensorboard"})
        vary = {factor: levels for factor, levels in question.vary.items() if factor != "device"}
        assert published.keys() <= {one.id for one in made_study(**kept, vary=vary).all_cells}
