"""The best setting: it agrees with the effects, and seeds a cell lacks are no advantage to it."""

import math
from pathlib import Path
from typing import Any

import pytest
from analysed import EN, accuracy, ends, evidence, of_kind

from fabricate import made_study
from trainlab.analysis.evidence import Evidence, grouped
from trainlab.analysis.finding import Finding
from trainlab.analysis.overview import findings
from trainlab.plan import Trial

RATES = made_study(vary={"lr": (0.01, 0.1, 0.2)}, seeds=6)


def noise(trial: Trial) -> float:
    return 0.001 * ((trial.seed * 7 + round(1000 * trial.settings.start_lr)) % 5)


def best_of(path: Path, **told: Any) -> tuple[Finding, Evidence]:
    found = evidence(path, RATES, **told)
    (best,) = of_kind("best", found)
    return best, found


def test_a_cell_that_lacks_the_hard_seeds_is_not_the_best(tmp_path: Path) -> None:
    def level(trial: Trial) -> float:
        easy = 0.05 if trial.seed <= 3 else -0.05
        return 0.8 + easy - (0.02 if trial.cell == "lr=0.1" else 0.0) + noise(trial)

    best, found = best_of(tmp_path, **accuracy(level), **ends("lr=0.1", "failed", after=3))
    worse = next(one for one in of_kind("effect", found) if one.cells[1] == "lr=0.1")
    assert (worse.subject, (worse.difference or 0) < 0) == ("test/accuracy", True)
    assert best.cells[0] != "lr=0.1"


def test_a_cell_that_diverges_is_left_out(tmp_path: Path) -> None:
    final = accuracy(lambda trial: (0.95 if trial.cell == "lr=0.2" else 0.8) + noise(trial))
    best, _ = best_of(tmp_path, **final, **ends("lr=0.2", "diverged", after=2))
    assert best.cells[0] != "lr=0.2"
    assert best.num_diverging == 1
    assert best.sentence(EN).endswith(
        "Left out, since seeds have no finite value or none ended: 1."
    )


def test_the_same_everywhere_is_told_as_such_by_every_kind(tmp_path: Path) -> None:
    study = made_study(vary={"batch_size": (1, 2, 4), "hidden": (3, 5)}, seeds=2)
    found = evidence(tmp_path, study, **accuracy(lambda trial: 0.64))
    by_kind = grouped(findings(found), lambda one: one.kind)
    told = {kind: [one.sentence(EN) for one in some] for kind, some in by_kind.items()}
    assert told["best"] == [
        "Test accuracy is the same in all 6 settings, seed by seed (64.00%, 2 seeds): none is best."
    ]
    assert told["trend"][0] == (
        "Test accuracy is the same at all 3 levels of batch_size from 1 to 4 (at hidden=3), "
        "in all 2 seeds."
    )
    assert told["interaction"] == [
        f"What batch_size 1 → {size} does to test accuracy is the same with hidden 3 → 5, "
        "in all 2 seeds."
        for size in (2, 4)
    ]
    assert "undecided" not in told


def test_no_winner_is_named_among_settings_that_gave_the_same(tmp_path: Path) -> None:
    def level(trial: Trial) -> float:
        return 0.8 + (0.0 if trial.cell == "lr=0.01" else 0.1) + 0.001 * (trial.seed * 7 % 5)

    best, _ = best_of(tmp_path, **accuracy(level))
    assert (best.cells, best.numbers["num_identical"]) == (("lr=0.1", "lr=0.2"), 1)
    told = best.sentence(EN)
    assert told.startswith("Best test accuracy: lr=0.1, lr=0.2, which gave the same in every seed")
    assert told.endswith("; the other is worse beyond the noise.")


def test_an_unused_factor_does_not_change_what_another_does(tmp_path: Path) -> None:
    """The effect is the same in every seed, though no two cells of a seed are."""
    study = made_study(vary={"lr": (0.1, 0.2), "hidden": (3, 5)}, seeds=2)
    final = accuracy(lambda trial: 0.5 + 0.1 * trial.settings.start_lr * (trial.seed + 1))
    (found,) = of_kind("interaction", evidence(tmp_path, study, **final))
    assert "is the same with hidden 3 → 5" in found.sentence(EN)


def test_a_trend_is_over_the_batches_that_ran(tmp_path: Path) -> None:
    def level(trial: Trial) -> float:
        size = min(trial.settings.batch_size, 960)
        return 0.5 + 0.02 * math.log2(size) + 1e-4 * (trial.seed * size % 7)

    study = made_study(vary={"batch_size": (30, 120, 960, 7680)}, seeds=3)
    found = evidence(tmp_path / "a", study, **accuracy(level))
    (trend,), (ran_as,) = of_kind("trend", found), of_kind("ran_as", found)
    assert (trend.num_levels, trend.lowest, trend.highest) == (3, 30.0, 960.0)
    assert trend.slope == pytest.approx(0.02, abs=1e-3)
    assert ran_as.sentence(EN) == (
        "batch_size=7680 ran with batches of 960, not 7,680: there are no more training samples; "
        "it is the same setting as batch_size=960."
    )
    # Two levels that ran are none.
    study = made_study(vary={"batch_size": (30, 960, 5000)}, seeds=2)
    final = accuracy(lambda trial: 0.5 + noise(trial))
    assert of_kind("trend", evidence(tmp_path / "b", study, **final)) == []


def test_a_line_says_that_it_is_one(tmp_path: Path) -> None:
    study = made_study(vary={"lr": (0.001, 0.002, 0.003)}, seeds=5)
    final = accuracy(lambda trial: 0.5 + 50 * trial.settings.start_lr + noise(trial))
    (trend,) = of_kind("trend", evidence(tmp_path, study, **final))
    for told in (
        "with lr from 0.001 to 0.003:",
        "from the lowest to the highest level, by a straight line through all levels",
    ):
        assert told in trend.sentence(EN)
