"""A search from its first draw to the trials that confirm it: the same however often it is cut short."""

import math
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from command import Verb
from trainlab.analysis.evidence import gather
from trainlab.analysis.overview import findings
from trainlab.analysis.search import Tried, importance, ranked, tries
from trainlab.record.run_folder import RunFolder
from trainlab.spec.search import SearchSpec, dimension_of

optuna = pytest.importorskip("optuna", reason="needs pip install 'trainlab[search]'")

ASKED = [
    "own_work.py:tiny",
    "--vary",
    "lr=1e-4..1",
    "--vary",
    "optimizer=adam,sgd",
    "--settings",
    "10",
    "--seeds",
    "3",
    "--epochs",
    "3",
    "--confirm",
    "2",
    "--threads",
    "1",
    "--no-tensorboard",
]
SPACE = (dimension_of("lr", "1e-4..1"), dimension_of("optimizer", "adam,sgd"))


def spec(**values: Any) -> SearchSpec:
    return SearchSpec(
        vary={},
        dimensions=SPACE,
        metric="val/accuracy",
        is_lower_better=False,
        defaults={},
        asked={},
        **values,
    )


def outcome(run: RunFolder) -> dict[str, object]:
    """All that a search comes to, without times."""
    return {
        trial.id: (
            trial.levels,
            trial.seed,
            trial.state,
            trial.epochs_done,
            trial.final,
            trial.bars,
        )
        for trial in run.trials()
    }


def test_the_best_of_what_was_tried_is_trained_again_with_fresh_seeds(
    tiny_file: Path, tmp_path: Path, trainlab: Verb
) -> None:
    told = trainlab("search", *ASKED, "--out", "run", "--no-report")
    run = RunFolder(tmp_path / "run")
    trials, study = run.trials(), run.study().to_study("study.json")
    tried = [one for one in trials if one.kind == "try"]
    assert (len(tried), {one.seed for one in tried}) == (10, {0})
    assert len({str(one.levels) for one in tried}) == 10
    # Bars come once enough have been tried, and stop what is worse than half of those.
    assert tried[0].bars is None
    assert tried[-1].bars is not None
    evidence = gather(run)
    best = ranked(tries(evidence), study.search)[:2]
    assert [cell.levels for cell in study.cells] == [{}, *(one.levels for one in best)]
    confirmed = [(one.cell, one.seed) for one in trials if one.kind == "learn"]
    assert sorted(confirmed) == sorted((c.id, seed) for c in study.cells for seed in (1, 2, 3))
    # Trials of the search are compared with nothing.
    assert set(evidence.learned) == {cell.id for cell in study.cells}
    assert all("val/accuracy" in one.final for one in trials if one.state == "done")
    found = {one.kind: one for one in findings(evidence)}
    optimism, values = (
        found["optimism"],
        [
            one.final["val/accuracy"]
            for one in trials
            if (one.kind, one.cell) == ("learn", study.cells[1].id)
        ],
    )
    assert optimism.too_good == pytest.approx(best[0].score - sum(values) / 3)
    half = stats.t.ppf(0.975, 2) * np.std(values, ddof=1) / math.sqrt(3)
    ends = [best[0].score - end for end in (sum(values) / 3 + half, sum(values) / 3 - half)]
    assert (optimism.interval.low, optimism.interval.high) == pytest.approx(ends)
    stopped = sum(one.epochs_done < 3 for one in tried)
    assert (found["searched"].n, found["searched"].num_stopped) == (10, stopped)
    assert "10 settings" in trainlab("show", "run", "--all").stdout
    assert "too good" in trainlab("show", "run", "--all").stdout or "not too good" in told.stdout
    # The same question has the same answer.
    trainlab("search", *ASKED, "--out", "again", "--no-report")
    assert outcome(RunFolder(tmp_path / "again")) == outcome(run)
    report = trainlab("report", "run", "--format", "md").stdout.strip()
    assert "Settings that were tried" in Path(report).read_text()


def test_a_study_file_a_grid_and_what_is_refused(
    tiny_file: Path, tmp_path: Path, trainlab: Verb
) -> None:
    Path("study.toml").write_text(
        'workload = "own_work.py:tiny"\nseeds = 2\n'
        "[settings]\nepochs = 1\n"
        '[search]\nsampler = "grid"\nconfirm = 1\n'
        '[search.vary]\noptimizer = ["adam", "sgd"]\nmomentum = "0.1,0.9 if optimizer=sgd"\n'
    )
    trainlab("run", "study.toml", "--out", "run", "--no-report", "--no-tensorboard")
    tried = [one.levels for one in RunFolder(tmp_path / "run").trials() if one.kind == "try"]
    assert sorted(map(str, tried)) == sorted(
        [
            "{'optimizer': 'adam'}",
            "{'optimizer': 'sgd', 'momentum': 0.1}",
            "{'optimizer': 'sgd', 'momentum': 0.9}",
        ]
    )
    for words, rule in (
        (["--vary", "lr=1..0"], "--vary lr: got '1..0', must be LOW..HIGH"),
        (["--vary", "lr"], "--vary: got 'lr', must be NAME=SPACE"),
        ([], "--vary: got none"),
        (["--vary", "lr=0..1"], "must be greater than 0"),
    ):
        assert rule in trainlab("search", "fashion-mlp", *words, "--dry-run", code=2).stderr


def test_what_is_clearly_important_is_said_to_be(tmp_path: Path) -> None:
    draws = random.Random(1)
    tried = []
    for number in range(60):
        rate, optimizer = 10 ** draws.uniform(-4, 0), draws.choice(["adam", "sgd"])
        score = 0.9 if rate < 1e-2 else 0.5
        levels = {"lr": rate, "optimizer": optimizer}
        tried.append(Tried(str(number), levels, (score + draws.gauss(0, 0.01),), True))
    found = importance(tried, spec())
    assert [*found] == ["lr", "optimizer"]
    assert found["lr"]["low"] > 0.6
    assert found["optimizer"]["low"] == 0.0
    assert found["optimizer"]["share"] < 0.1
    assert importance(tried[:5], spec()) == {}
    # Omega squared of the two choices, by its textbook formula.
    groups = [[t.score for t in tried if t.levels["optimizer"] == o] for o in ("adam", "sgd")]
    every = np.concatenate(groups)
    within = sum(((np.array(g) - np.mean(g)) ** 2).sum() for g in groups) / (len(every) - 2)
    whole = ((every - every.mean()) ** 2).sum()
    between = whole - within * (len(every) - 2)
    omega = max(0.0, (between - within) / (whole + within))
    assert found["optimizer"]["share"] == pytest.approx(omega)


@pytest.mark.slow
def test_a_search_that_is_killed_and_resumed_tries_the_same(
    tiny_file: Path, tmp_path: Path, trainlab: Verb
) -> None:
    trainlab("search", *ASKED, "--jobs", "2", "--out", "whole", "--no-report")
    draws, command = random.Random(3), ["search", *ASKED, "--jobs", "2", "--out", "run"]
    run = RunFolder(tmp_path / "run")
    for _ in range(10):
        words = [sys.executable, "-P", "-m", "trainlab", *command, "--no-report", "--quiet"]
        driver = subprocess.Popen(words, cwd=tmp_path, env=os.environ)
        while not run.study_file.exists() and driver.poll() is None:
            time.sleep(0.01)
        time.sleep(draws.uniform(1.5, 6.0))
        driver.kill()
        driver.wait()
        command = ["resume", str(run.path)]
    trainlab("resume", run.path, "--no-report")
    assert outcome(run) == outcome(RunFolder(tmp_path / "whole"))
