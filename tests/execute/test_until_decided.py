"""Seeds that are added until everything is decided, and what is said before training."""

from pathlib import Path

import pytest

import trainlab
from trainlab.errors import SpecError
from trainlab.spec import Question
from trainlab.spec.question import looks_of


def test_seeds_that_cannot_be_added_are_refused() -> None:
    for fields, told in (
        ({"seeds": (1, 2)}, "give a number of seeds, not a list"),
        ({"seeds": 30}, "max_seeds: got 20, must be 30 or more"),
    ):
        with pytest.raises(SpecError, match=told):
            looks_of(Question(workload="w", until_decided=True, **fields))


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
    sizes = {part: len(values) for part, values in losses.items()}
    assert sizes == {"all": 3, "weights": 3, "order": 3, "dropout": 1}
    told = " ".join(run.sentences())
    assert "Seeds that change the initial weights alone spread" in told
