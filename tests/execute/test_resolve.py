"""Questions against a real workload and this machine: refused before anything is written."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import trainlab
from asking import study_for
from trainlab.errors import DataError, RecordError, SpecError
from trainlab.machine.device import devices_here
from trainlab.spec import CostSpec, Study
from trainlab.spec.question import checked_question

Maker = Callable[..., Study]


@pytest.fixture
def study_of(tiny_file: Path) -> Maker:
    def make(many: bool = False, **given: Any) -> Study:
        question = checked_question({"workload": f"{tiny_file}:tiny", **given})
        return study_for(question, "s.toml", many=many)

    return make


def test_a_study_holds_every_cell_with_the_workloads_defaults(study_of: Maker) -> None:
    study = study_of(vary={"batch_size": (5, 20)}, seeds=2, title="why?")
    assert (study.name, study.title, study.factors) == ("tiny", "why?", ("batch_size",))
    assert [cell.settings.batch_size for cell in study.cells] == [5, 20]
    assert all((c.settings.epochs, c.settings.lr) == (2, 0.01) for c in study.cells)
    assert study.settings == study.cells[0].settings


def test_problems_of_factors_and_metrics_are_told_together(study_of: Maker) -> None:
    with pytest.raises(SpecError) as caught:
        study_of(vary={"batch_sze": (1,)}, targets={"test/acuracy": 0.9}, margins={"loss": 0.1})
    places = [line.split(": ")[1] for line in caught.value.problems]
    assert places == ["targets.test/acuracy", "margins.loss", "vary.batch_sze"]
    assert "it has train/loss, train/accuracy, test/loss, test/accuracy" in str(caught.value)


def test_each_device_is_every_device_of_this_machine(study_of: Maker) -> None:
    study = study_of(vary={"batch_size": (5, 20), "device": ("each",)})
    here = [str(device) for device in devices_here()]
    assert {cell.settings.device for cell in study.cells} == set(here)
    assert ("device" in study.factors) == (len(here) > 1)


def test_a_grid_over_the_limit_is_refused_unless_asked_for_twice(study_of: Maker) -> None:
    wide = {"vary": {"batch_size": tuple(range(1, 101))}, "seeds": 6}
    with pytest.raises(SpecError, match=r"s\.toml: plans 600 trials or more, but 500 is the limit"):
        study_of(**wide)
    assert len(study_of(many=True, **wide).cells) == 100


def test_what_cannot_be_run_is_refused_and_leaves_no_folder(
    tiny_file: Path, tmp_path: Path
) -> None:
    own, out = f"{tiny_file}:tiny", tmp_path / "r"
    refusals: dict[str, dict[str, Any]] = {
        "vary.lr[1]: got -1, must be greater than 0": {"vary": {"lr": [0.1, -1]}},
        "vary.optimizer: got 'adam', must be a list": {"vary": {"optimizer": "adam"}},
        "vary.lr: got 0.1, must be a list": {"vary": {"lr": 0.1}},
        "model.hiden: tiny has no such parameter; it has hidden": {"model": {"hiden": 4}},
    }
    for told, given in refusals.items():
        with pytest.raises(SpecError, match=re.escape(told)):
            trainlab.run(own, out=out, **given)
    with pytest.raises(DataError, match="must be full, bundled, auto or a folder"):
        trainlab.run("fashion-mlp", out=out, data="nowhere")
    assert not out.exists()
    with pytest.raises(RecordError, match="is not empty"):
        trainlab.run(own, out=tmp_path)


def test_what_would_be_of_no_effect_is_refused_with_its_reason(study_of: Maker) -> None:
    far, cost = {"margins": {"inference/sample_us": 0.1}}, {"cost": CostSpec()}
    both = far | cost
    foo, los = {"foo": {"test/loss": 0.1}}, {"full": {"epochs": 1, "test/los": 0.1}}
    added = {"until_decided": True, "learn": False, **cost}
    refusals: dict[str, dict[str, Any]] = {
        "spreads.foo: no such data; must be one of full": {"spreads": foo},
        "spreads.full: lacks epochs; add those": {"spreads": {"full": {"test/loss": 0.1}}},
        "spreads.full.test/los: tiny has no such metric; it has train/loss": {"spreads": los},
        "margins.inference/sample_us: is not measured; add [cost]": far,
        "margins.inference/sample_us: is not measured; set cost.mode to both or inference": both,
        "until_decided: adds seeds to train with, but learn is false": added,
    }
    for told, given in refusals.items():
        with pytest.raises(SpecError) as caught:
            study_of(vary={"batch_size": (5, 20)}, **given)
        (problem,) = caught.value.problems
        assert problem.startswith(f"s.toml: {told}")
