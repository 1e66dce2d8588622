"""Seeds that are added until everything is decided, and what is said before training."""

import re
from pathlib import Path
from typing import Any

import pytest

import trainlab
from trainlab.errors import SpecError
from trainlab.lab import Run
from trainlab.spec import Question
from trainlab.spec.question import looks_of


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"seeds": (1, 2), "until_decided": True}, "give a number of seeds, not a list"),
        ({"seeds": 30, "until_decided": True}, "max_seeds: got 20, must be 30 or more"),
    ],
)
def test_seeds_that_cannot_be_added_are_refused(fields: dict[str, object], told: str) -> None:
    with pytest.raises(SpecError, match=re.escape(told)):
        looks_of(Question(workload="w", **fields))


def run_until_decided(tiny_file: Path, **asked: Any) -> Run:
    """From three seeds on, beside the workload's file."""
    return trainlab.run(
        f"{tiny_file}:tiny",
        seeds=3,
        until_decided=True,
        out=tiny_file.parent / "r",
        device="cpu",
        tensorboard=False,
        **asked,
    )


def test_a_study_goes_on_until_it_is_decided(tiny_file: Path) -> None:
    run = run_until_decided(
        tiny_file, vary={"hidden": [8, 9]}, max_seeds=5, margins={"test/loss": 1e-9}
    )
    study = run.study().to_study("r")
    # Next to no difference and a margin far below the noise: it is not decided, and all seeds are run.
    assert study.looks == (3, 4, 5)
    assert study.seeds == (1, 2, 3, 4, 5)
    assert len(run.trials()) == 10
    assert {trial.state for trial in run.trials()} == {"done"}
    (effect, *_) = [one for one in run.findings() if one.kind == "effect"]
    assert effect.n == 5


def test_a_seed_changes_only_the_part_it_is_asked_to(tiny_file: Path, tmp_path: Path) -> None:
    parts = ("all", "weights", "order", "dropout")
    run = trainlab.run(
        f"{tiny_file}:tiny",
        vary={"seed_parts": parts},
        seeds=3,
        out=tmp_path / "r",
        device="cpu",
        tensorboard=False,
    )
    losses = {
        part: {t.final["train/loss"] for t in run.trials() if t.levels["seed_parts"] == part}
        for part in parts
    }
    # The tiny model has no dropout: there all seeds are the same trial.
    assert {part: len(values) for part, values in losses.items()} == {
        "all": 3,
        "weights": 3,
        "order": 3,
        "dropout": 1,
    }
    told = " ".join(run.sentences())
    assert "Seeds that change the initial weights alone spread" in told
