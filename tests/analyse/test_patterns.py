"""The best setting: it agrees with the effects, and seeds a cell lacks are no advantage to it."""

from pathlib import Path

from fabricate import Fabricated, made_study
from trainlab.analyse.evidence import gather
from trainlab.analyse.findings import findings
from trainlab.analyse.findings.best import BestCells
from trainlab.analyse.findings.effects import Effect
from trainlab.plan import Trial
from trainlab.words import Words


def best_and_effects(
    path: Path,
    final: object,
    state: object = lambda trial: "done",
    levels: tuple[float, ...] = (0.01, 0.1, 0.2),
) -> tuple[BestCells, list[Effect], str]:
    study = made_study(vary={"lr": levels}, seeds=6)
    run = Fabricated(final=final, state=state).write(path, study)  # type: ignore[arg-type]
    found = findings(gather(run))
    best = next(one for one in found if isinstance(one, BestCells))
    effects = [one for one in found if isinstance(one, Effect) and one.subject == "test/accuracy"]
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


def test_two_settings_are_told_as_two(tmp_path: Path) -> None:
    def final(trial: Trial) -> dict[str, float]:
        return {"test/accuracy": (0.9 if trial.cell == "lr=0.1" else 0.8) + noise(trial)}

    _, _, told = best_and_effects(tmp_path / "r", final, levels=(0.01, 0.1))
    assert told.endswith("; the other is worse beyond the noise.")
