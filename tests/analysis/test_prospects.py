"""The noise that a plan speaks of is that of the settings it plans."""

from pathlib import Path
from random import Random

import pytest

from fabricate import Fabricated, made_study
from trainlab.analysis.prospects import prospects
from trainlab.cli.parsing import question_of


def test_earlier_runs_count_only_where_their_settings_are_those_planned(tmp_path: Path) -> None:
    def planned(**settings: object) -> int | None:
        study = made_study(vary={"lr": (0.1, 0.2)}, seeds=4, settings=settings)
        return prospects(study, tmp_path)[0].num_trials

    made = Fabricated(final=lambda trial: {"test/accuracy": Random(trial.id).random()})
    made.write(tmp_path / "run", made_study(vary={"lr": (0.2, 0.3)}, seeds=5))
    assert planned() == planned(device="cpu") == 5  # the cell that both have
    others = {"train_samples": 100, "batch_size": 8, "epochs": 3, "model": {"hidden": 4}}
    for name, value in others.items():
        assert planned(**{name: value}) is None, name


@pytest.mark.parametrize("name", ["mnist-lab", "fashion-lab"])
def test_a_study_states_no_noise_of_settings_that_an_option_changed(name: str) -> None:
    assert question_of(name, {"data": "bundled", "device": "cpu"}, seeds=5).question.spreads
    assert question_of("mnist-lab", {"epochs": "1"}).question.spreads  # as the study has it
    for options in ({"train_samples": "1000"}, {"lr": "0.5"}, {"batch_size": "8,32"}):
        assert question_of(name, options).question.spreads == {}
    assert question_of(name, {}, ["model.hidden=8,16"]).question.spreads == {}
