"""Seeds that are added until everything is decided, and what is said before training."""

import re
from pathlib import Path
from typing import Any

import pytest

import trainlab
from command import Verb
from fabricate import Fabricated, made_study
from trainlab.analysis.prospects import earlier_runs, prospects
from trainlab.errors import SpecError
from trainlab.lab import Run
from trainlab.plan import Trial
from trainlab.spec import Question
from trainlab.spec.question import looks_of, seeds_of


def test_looks_are_few_and_end_at_the_most_seeds() -> None:
    assert looks_of(Question(workload="w", seeds=5)) == ()
    asked = Question(workload="w", seeds=3, until_decided=True, max_seeds=20)
    looks = looks_of(asked)
    assert (looks[0], looks[-1]) == (3, 20)
    assert len(looks) <= 10
    assert list(looks) == sorted(set(looks))
    assert seeds_of(asked) == (1, 2, 3)
    one = Question(workload="w", seeds=1, until_decided=True, max_seeds=3)
    assert (looks_of(one), seeds_of(one)) == ((3,), (1, 2, 3))


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


def test_a_study_that_is_decided_at_once_adds_nothing(tiny_file: Path) -> None:
    # Threads, and the code that is measured to be fastest with so many, may round differently.
    margins = {"test/loss": 100.0, "test/accuracy": 1.0, "train/loss": 100.0}
    run = run_until_decided(tiny_file, vary={"threads": [1, 2]}, max_seeds=6, margins=margins)
    assert len(run.trials()) == 6
    verdicts = {one.verdict for one in run.findings() if one.kind == "effect"}
    assert verdicts <= {"identical", "equivalent", "different"}


def test_the_command_line_names_what_is_missing(trainlab: Verb, tiny_file: Path) -> None:
    words = ["run", f"{tiny_file}:tiny", "--seeds", "3", "--dry-run"]
    assert "nothing to compare" in trainlab(*words, "--until-decided", code=2).stderr
    told = trainlab(*words, "--max-seeds", "9", code=2).stderr
    assert "--max-seeds: is for --until-decided" in told
    told = trainlab(*words, "--lr", "0.1,0.2", "--until-decided", "--max-seeds", "9").stdout
    assert "Seeds are added until all is decided: looks after 3" in told
    words[3] = "2"
    told = trainlab(*words, "--lr", "0.1,0.2", "--until-decided", "--max-seeds", "4").stdout
    assert "looks after 3 and 4, 3 being the fewest to begin with." in told


def test_the_plan_says_what_the_seeds_can_show(trainlab: Verb) -> None:
    told = " ".join(trainlab("run", "mnist-lab", "--data", "bundled", "--dry-run").stdout.split())
    assert re.search(r"3 seeds find differences of 4\.\d standard deviations of a run", told)
    assert "of test accuracy by this study's known noise" in told
    assert "so it cannot be shown here" in told
    one = " ".join(trainlab("run", "mnist-lab", "--seeds", "1", "--dry-run").stdout.split())
    assert "One seed cannot show a difference" in one


def test_the_noise_of_earlier_runs_is_used(tmp_path: Path) -> None:
    def final(trial: Trial) -> dict[str, float]:
        return {"test/accuracy": 0.9 + 0.01 * (trial.seed % 2)}

    study = made_study(vary={"lr": (0.1, 0.01)}, seeds=4, margins={"test/accuracy": 0.5})
    Fabricated(final=final).write(tmp_path / "runs" / "one", study)
    Fabricated(final=final).write(tmp_path / "runs" / "other", made_study(workload="else"))
    (tmp_path / "runs" / "broken").mkdir()
    (tmp_path / "runs" / "broken" / "study.json").write_text("{")
    found = earlier_runs(tmp_path / "runs", study)
    assert [run.path.name for run in found] == ["one"]
    (told,) = prospects(study, found)
    assert told.spread is not None
    # 0, 1, 0, 1 hundredths: a standard deviation of 0.01 / sqrt(3); that of four values is below the true
    # one in more than half of all cases, by the root of the median of chi square over 3, 2.366 / 3.
    assert told.spread.std == pytest.approx(0.01 / 3**0.5 / (2.36597 / 3) ** 0.5, rel=1e-4)
    assert told.spread.num_trials == 8
    assert told.difference == pytest.approx(told.stds * told.spread.std)
    assert told.can_be_equivalent
    (alone,) = prospects(study)
    assert (alone.spread, alone.difference, alone.can_be_equivalent) == (None, None, None)
    assert prospects(made_study(vary={"lr": (0.1, 0.01)}, seeds=1)) == ()
    assert prospects(made_study(seeds=3)) == ()


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


def test_the_noise_of_a_workload_without_accuracy_is_that_of_its_first_metric(
    tmp_path: Path,
) -> None:
    def final(trial: Trial) -> dict[str, float]:
        return {"train/loss": 0.5, "test/loss": 0.9 + 0.01 * (trial.seed % 2), "test/mae": 0.1}

    study = made_study(vary={"lr": (0.1, 0.01)}, seeds=4)
    run = Fabricated(final=final).write(tmp_path / "runs" / "one", study)
    (told,) = prospects(study, [run])
    assert told.metric == "test/loss"
    assert told.spread is not None
    assert told.difference == pytest.approx(told.stds * told.spread.std)


def test_what_the_most_seeds_find_is_said_before_training(trainlab: Verb, tiny_file: Path) -> None:
    asked = ["run", f"{tiny_file}:tiny", "--lr", "0.1,0.2", "--seeds", "3", "--dry-run"]
    told = " ".join(trainlab(*asked, "--until-decided", "--max-seeds", "12").stdout.split())
    first = re.search(r"3 seeds find differences of ([\d.]+) standard deviations", told)
    most = re.search(r"12 seeds, the most there will be, find ([\d.]+) standard deviations", told)
    assert first is not None
    assert most is not None
    assert float(most[1]) < float(first[1])
    assert "the most there will be" not in trainlab(*asked).stdout
