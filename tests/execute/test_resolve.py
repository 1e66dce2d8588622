"""Questions against a real workload and this machine: refused before anything is written."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import trainlab
from asking import study_for
from trainlab.errors import SpecError
from trainlab.machine.device import devices_here
from trainlab.resolve import LARGEST_STUDY, MOST_TRIALS
from trainlab.spec import CostSpec, Question, Study
from trainlab.spec.question import checked_question

Maker = Callable[..., Study]


@pytest.fixture
def study_of(tiny_file: Path) -> Maker:
    def make(many: bool = False, **given: Any) -> Study:
        question = Question(workload=f"{tiny_file}:tiny", **given)
        return study_for(question, "s.toml", many=many)

    return make


def test_a_study_holds_every_cell_with_the_workloads_defaults(study_of: Maker) -> None:
    study = study_of(vary={"batch_size": (5, 20)}, seeds=2, title="why?")
    assert study.name == "tiny"
    assert study.title == "why?"
    assert study.factors == ("batch_size",)
    assert [cell.settings.batch_size for cell in study.cells] == [5, 20]
    assert all((c.settings.epochs, c.settings.lr) == (2, 0.01) for c in study.cells)
    assert study.settings == study.cells[0].settings


def test_a_question_without_factors_has_no_cells(study_of: Maker) -> None:
    study = study_of()
    assert study.cells == ()
    assert [cell.id for cell in study.all_cells] == ["base"]


def test_problems_of_factors_seeds_and_metrics_are_told_together(study_of: Maker) -> None:
    with pytest.raises(SpecError) as caught:
        study_of(
            vary={"batch_sze": (1,)},
            seeds=(1, 1),
            targets={"test/acuracy": 0.9},
            margins={"loss": 0.1},
        )
    assert [line.split(": ")[1] for line in caught.value.problems] == [
        "targets.test/acuracy",
        "margins.loss",
        "vary.batch_sze",
        "seeds",
    ]
    assert "it has train/loss, train/accuracy, test/loss, test/accuracy" in str(caught.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_an_impossible_device_is_told_once_for_all_its_cells(study_of: Maker) -> None:
    with pytest.raises(SpecError) as caught:
        study_of(vary={"device": ("cpu", "cuda"), "batch_size": (1, 2, 4)})
    (line,) = caught.value.problems
    assert line.startswith("device: got cuda, but torch")


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


def test_a_huge_grid_is_refused_before_it_is_laid_out(study_of: Maker) -> None:
    levels = tuple(range(1, 200))
    vary = dict.fromkeys(("batch_size", "test_batch_size", "epochs", "threads"), levels)
    with pytest.raises(SpecError, match="plans 1,568,239,201 trials or more"):
        study_of(vary=vary)


def test_cost_counts_towards_the_limit(study_of: Maker) -> None:
    sizes = tuple(range(1, MOST_TRIALS // 5 + 1))
    with pytest.raises(SpecError, match="plans 606 trials"):
        study_of(vary={"batch_size": sizes}, cost=CostSpec())


def test_momentum_beside_a_varied_optimizer_needs_no_sound_base(study_of: Maker) -> None:
    study = study_of(settings={"momentum": 0.9}, vary={"optimizer": ("sgd", "rmsprop")})
    assert [cell.settings.momentum for cell in study.cells] == [0.9, 0.9]


def test_momentum_with_an_optimizer_that_takes_none_is_one_line(study_of: Maker) -> None:
    with pytest.raises(SpecError) as caught:
        study_of(vary={"optimizer": ("sgd", "adam"), "momentum": (0.5, 0.9)})
    (line,) = caught.value.problems
    assert line.startswith("s.toml: momentum: adam takes none")


def test_a_bad_study_leaves_no_folder(tiny_file: Path, tmp_path: Path) -> None:
    own = f"{tiny_file}:tiny"
    with pytest.raises(SpecError, match=r"vary\.lr\[1\]: got -1, must be greater than 0"):
        trainlab.run(own, vary={"lr": [0.1, -1]}, out=tmp_path / "r")
    with pytest.raises(SpecError, match=r"vary\.optimizer: got 'adam', must be a list"):
        trainlab.run(own, vary={"optimizer": "adam"}, out=tmp_path / "r")
    with pytest.raises(SpecError, match=r"vary\.lr: got 0\.1, must be a list"):
        trainlab.run(own, vary={"lr": 0.1}, out=tmp_path / "r")  # type: ignore[dict-item]
    assert not (tmp_path / "r").exists()


def test_a_margin_may_name_a_cost_that_is_measured() -> None:
    asked = {"workload": "mnist-cnn", "margins": {"train/sample_us": 0.05}}
    measured = study_for(checked_question({**asked, "cost": {"mode": "train"}}))
    assert measured.margins == {"train/sample_us": 0.05}
    for cost in ({}, {"cost": {"mode": "inference"}}):
        with pytest.raises(SpecError, match=r"margins.train/sample_us: is not measured"):
            study_for(checked_question({**asked, **cost}))


@pytest.mark.parametrize(
    ("given", "count"),
    [
        ({"seeds": 100_000_000}, 200_000_000),
        ({"cost": CostSpec(processes=999_999_999)}, 2 + 4 * 999_999_999 + 4),
        ({"until_decided": True, "max_seeds": 1_000_000_000}, 2_000_000_000),
        ({"until_decided": True, "max_seeds": 2000}, 4000),
    ],
)
def test_what_is_far_too_much_is_counted_without_being_made(
    study_of: Maker, given: dict[str, Any], count: int
) -> None:
    tracemalloc.start()
    with pytest.raises(SpecError, match=f"plans {count:,} trials or more, but 500 is the limit"):
        study_of(vary={"batch_size": (5, 20)}, **given)
    # Asked for twice, the first would be laid out and the second would take all memory.
    if count > LARGEST_STUDY:
        with pytest.raises(
            SpecError, match=f"plans {count:,} trials or more, but 100,000 is the most"
        ):
            study_of(vary={"batch_size": (5, 20)}, many=True, **given)
    most_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most_bytes < 50e6


def test_problems_are_told_beside_a_number_of_trials_that_is_too_large(study_of: Maker) -> None:
    with pytest.raises(SpecError) as caught:
        study_of(vary={"batch_sze": (1,)}, seeds=100_000_000)
    assert [line.split(":")[1].split()[0] for line in caught.value.problems] == [
        "vary.batch_sze",
        "plans",
    ]


def test_fewer_processes_at_most_than_at_least_are_refused(study_of: Maker) -> None:
    with pytest.raises(SpecError, match=r"cost\.max_processes: got 2, must be 5 or more"):
        study_of(cost=CostSpec(processes=5, max_processes=2))
    # Nobody asked for the most that it goes to by itself.
    study = study_of(cost=CostSpec(processes=20))
    assert study.cost is not None
    assert study.cost.processes == 20


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"spreads": {"foo": {"test/loss": 0.1}}},
            "spreads.foo: no such data; must be one of full",
        ),
        (
            {"spreads": {"full": {"test/los": 0.1}}},
            "spreads.full.test/los: tiny has no such metric; it has train/loss",
        ),
        (
            {"margins": {"train/sample_us": 0.1}},
            "margins.train/sample_us: is not measured; add [cost]",
        ),
        (
            {"margins": {"inference/sample_us": 0.1}, "cost": CostSpec()},
            "margins.inference/sample_us: is not measured; set cost.mode to both or inference",
        ),
        (
            {"until_decided": True, "learn": False, "cost": CostSpec()},
            "until_decided: adds seeds to train with, but learn is false",
        ),
    ],
)
def test_what_would_be_of_no_effect_is_refused_with_its_reason(
    study_of: Maker, given: dict[str, Any], told: str
) -> None:
    with pytest.raises(SpecError) as caught:
        study_of(vary={"batch_size": (5, 20)}, **given)
    assert len(caught.value.problems) == 1
    assert caught.value.problems[0].startswith(f"s.toml: {told}")
