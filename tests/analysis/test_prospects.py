"""The noise that a plan speaks of is that of the settings it plans."""

from pathlib import Path
from random import Random

import pytest
from analysed import of_kind

from fabricate import Fabricated, made_study
from trainlab.analysis.evidence import gather
from trainlab.analysis.prospects import prospects
from trainlab.cli.parsing import question_of
from trainlab.plan import Trial


def test_earlier_runs_count_only_where_their_settings_are_those_planned(tmp_path: Path) -> None:
    def planned(**settings: object) -> int | None:
        study = made_study(vary={"lr": (0.1, 0.2)}, seeds=4, settings=settings)
        noise = prospects(study, tmp_path)[0].noise
        return None if noise is None else noise.num_trials

    made = Fabricated(final=lambda trial: {"test/accuracy": Random(trial.id).random()})
    made.write(tmp_path / "run", made_study(vary={"lr": (0.2, 0.3)}, seeds=5))
    assert planned() == planned(device="cpu") == 5  # the cell that both have
    others = {"train_samples": 100, "batch_size": 8, "epochs": 3, "model": {"hidden": 4}}
    for name, value in others.items():
        assert planned(**{name: value}) is None, name


def test_what_is_promised_before_a_run_is_what_its_noise_delivers(tmp_path: Path) -> None:
    """The noise of a setting is its own: quiet pairs show less than noisy ones, as the report says."""
    scale = {0.1: 0.01, 0.2: 0.01, 0.3: 0.1}

    def final(trial: Trial) -> dict[str, float]:
        noise = Random(trial.id).gauss(0, scale[float(trial.levels["lr"])])
        return {"test/accuracy": 0.5 + noise}

    study = made_study(vary={"lr": tuple(scale)}, seeds=6)
    run = Fabricated(final=final).write(tmp_path / "run", study)
    differences = prospects(study, tmp_path)[0].first.differences
    shown = [f.detectable for f in of_kind("effect", gather(run)) if f.subject == "test/accuracy"]
    assert differences is not None
    assert differences[1] > 4 * differences[0]
    assert differences == pytest.approx((min(shown), max(shown)), rel=0.25)


@pytest.mark.parametrize("name", ["mnist-lab", "fashion-lab"])
def test_a_study_states_no_noise_of_settings_that_an_option_changed(name: str) -> None:
    assert question_of(name, {"data": "bundled", "device": "cpu"}, seeds=5).question.spreads
    assert question_of("mnist-lab", {"epochs": "1"}).question.spreads  # as the study has it
    for options in ({"train_samples": "1000"}, {"lr": "0.5"}, {"batch_size": "8,32"}):
        assert question_of(name, options).question.spreads == {}
    assert question_of(name, {}, ["model.hidden=8,16"]).question.spreads == {}


def test_a_stated_noise_is_that_of_its_own_epochs_and_size(tmp_path: Path) -> None:
    def amounts(**settings: object) -> object:
        spreads = {"bundled": {"epochs": 2, "train_samples": 500, "test/accuracy": 0.01}}
        settings = {"data": "bundled", "epochs": 2, "train_samples": 500, **settings}
        study = made_study(vary={"lr": (0.1, 0.2)}, seeds=5, settings=settings, spreads=spreads)
        return prospects(study, tmp_path)[0].first.differences

    assert amounts() == (pytest.approx(0.022, rel=0.05),) * 2
    for other in (
        {"epochs": 3},
        {"train_samples": 1000},
        {"train_samples": None},
        {"data": "auto"},
    ):
        assert amounts(**other) is None, other
