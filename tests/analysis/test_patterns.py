"""The best setting: it agrees with the effects, and seeds a cell lacks are no advantage to it."""

import math
from pathlib import Path
from random import Random

import pytest

from fabricate import Fabricated, made_study
from trainlab.analysis.evidence import gather
from trainlab.analysis.finding import Finding
from trainlab.analysis.overview import findings
from trainlab.plan import Trial
from trainlab.spec import Study
from trainlab.words import Words


def best_and_effects(
    path: Path,
    final: object,
    state: object = lambda trial: "done",
) -> tuple[Finding, list[Finding], str]:
    study = made_study(vary={"lr": (0.01, 0.1, 0.2)}, seeds=6)
    run = Fabricated(final=final, state=state).write(path, study)  # type: ignore[arg-type]
    found = findings(gather(run))
    best = next(one for one in found if one.kind == "best")
    effects = [one for one in found if one.kind == "effect" and one.subject == "test/accuracy"]
    return best, effects, best.sentence(Words("en"))


def noise(trial: Trial) -> float:
    return 0.001 * ((trial.seed * 7 + round(1000 * trial.settings.start_lr)) % 5)


def test_a_cell_that_lacks_the_hard_seeds_is_not_the_best(tmp_path: Path) -> None:
    def final(trial: Trial) -> dict[str, float]:
        easy = 0.05 if trial.seed <= 3 else -0.05
        worse = 0.02 if trial.cell == "lr=0.1" else 0.0
        return {"test/accuracy": 0.8 + easy - worse + noise(trial)}

    def state(trial: Trial) -> str:
        return "failed" if trial.cell == "lr=0.1" and trial.seed > 3 else "done"

    best, effects, _ = best_and_effects(tmp_path / "r", final, state)
    worse = next(effect for effect in effects if effect.cells[1] == "lr=0.1")
    assert (worse.difference or 0) < 0
    assert best.cells[0] != "lr=0.1"


def test_a_cell_that_diverges_is_left_out(tmp_path: Path) -> None:
    def final(trial: Trial) -> dict[str, float]:
        return {"test/accuracy": (0.95 if trial.cell == "lr=0.2" else 0.8) + noise(trial)}

    def state(trial: Trial) -> str:
        return "diverged" if trial.cell == "lr=0.2" and trial.seed > 2 else "done"

    best, _, told = best_and_effects(tmp_path / "r", final, state)
    assert best.cells[0] != "lr=0.2"
    assert best.num_diverging == 1
    assert told.endswith("Left out, since seeds diverged or none ended: 1.")


def sentences(path: Path, study: Study, final: object) -> dict[str, list[str]]:
    run = Fabricated(final=final).write(path, study)  # type: ignore[arg-type]
    told: dict[str, list[str]] = {}
    for one in findings(gather(run)):
        told.setdefault(one.kind, []).append(one.sentence(Words("en")))
    return told


def test_the_same_everywhere_is_told_as_such_by_every_kind(tmp_path: Path) -> None:
    study = made_study(vary={"batch_size": (1, 2, 4), "hidden": (3, 5)}, seeds=2)
    told = sentences(tmp_path / "r", study, lambda trial: {"test/accuracy": 0.64})
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
    def final(trial: Trial) -> dict[str, float]:
        better = 0.1 if trial.cell in ("lr=0.1", "lr=0.2") else 0.0
        return {"test/accuracy": 0.8 + better + 0.001 * (trial.seed * 7 % 5)}

    best, _, told = best_and_effects(tmp_path / "r", final)
    assert (best.cells, best.numbers["num_identical"]) == (("lr=0.1", "lr=0.2"), 1)
    assert told.startswith("Best test accuracy: lr=0.1, lr=0.2, which gave the same in every seed")
    assert told.endswith("; the other is worse beyond the noise.")


def test_an_unused_factor_does_not_change_what_another_does(tmp_path: Path) -> None:
    """The effect is the same in every seed, though no two cells of a seed are."""

    def final(trial: Trial) -> dict[str, float]:
        return {"test/accuracy": 0.5 + 0.1 * trial.settings.start_lr * (trial.seed + 1)}

    study = made_study(vary={"lr": (0.1, 0.2), "hidden": (3, 5)}, seeds=2)
    (told,) = sentences(tmp_path / "r", study, final)["interaction"]
    assert "is the same with hidden 3 → 5" in told


def test_a_trend_is_over_the_batches_that_ran(tmp_path: Path) -> None:
    def final(trial: Trial) -> dict[str, float]:
        size = min(trial.settings.batch_size, 960)
        return {"test/accuracy": 0.5 + 0.02 * math.log2(size) + 1e-4 * (trial.seed * size % 7)}

    study = made_study(vary={"batch_size": (30, 120, 960, 7680)}, seeds=3)
    found = findings(gather(Fabricated(final=final).write(tmp_path / "r", study)))
    (trend,) = (one for one in found if one.kind == "trend")
    assert (trend.num_levels, trend.lowest, trend.highest) == (3, 30.0, 960.0)
    assert trend.slope == pytest.approx(0.02, abs=1e-3)
    (ran_as,) = (one for one in found if one.kind == "ran_as")
    assert ran_as.sentence(Words("en")) == (
        "batch_size=7680 ran with batches of 960, not 7,680: there are no more training samples; "
        "it is the same setting as batch_size=960."
    )


def test_two_levels_that_ran_are_no_trend(tmp_path: Path) -> None:
    study = made_study(vary={"batch_size": (30, 960, 5000)}, seeds=2)
    told = sentences(tmp_path / "r", study, lambda t: {"test/accuracy": 0.5 + noise(t)})
    assert "trend" not in told


def trend_of(path: Path, final: object) -> Finding:
    study = made_study(vary={"lr": (0.001, 0.002, 0.003)}, seeds=5)
    run = Fabricated(final=final).write(path, study)  # type: ignore[arg-type]
    return next(one for one in findings(gather(run)) if one.kind == "trend")


def test_a_line_says_that_it_is_one_and_whether_it_fits(tmp_path: Path) -> None:
    def straight(trial: Trial) -> dict[str, float]:
        own = Random(f"{trial.cell} {trial.seed}").gauss(0, 0.004)
        return {"test/accuracy": 0.5 + 50 * trial.settings.start_lr + own}

    def bent(trial: Trial) -> dict[str, float]:
        own = Random(f"{trial.cell} {trial.seed}").gauss(0, 0.004)
        return {"test/accuracy": 0.6 + (0.1 if trial.cell == "lr=0.003" else 0.0) + own}

    fits, unfit = trend_of(tmp_path / "a", straight), trend_of(tmp_path / "b", bent)
    assert (fits.fit_p or 0) > 0.05
    assert (unfit.fit_p or 0) < 0.05
    told = [one.sentence(Words("en")) for one in (fits, unfit)]
    assert "with lr from 0.001 to 0.003:" in told[0]
    assert "from the lowest to the highest level, by a straight line through all levels" in told[0]
    assert "The means lie on that line within the noise" in told[0]
    assert "The means do not lie on that line" in told[1]
