"""Made-up runs in which no two records agree: a number taken from the wrong one shows."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import fabricate as made
from fabricate import Fabricated, made_study, operator
from trainlab.plan import Trial
from trainlab.record.cost_record import TurnRecord
from trainlab.record.run_folder import RunFolder
from trainlab.record.trial_record import TrialRecord
from trainlab.spec import CostSpec

LEARN = {
    "design": "one-at-a-time",
    "vary": {"lr": (0.01, 0.1), "zero_grad": (False,), "batch_size": (16,), "hidden": (5,)},
    "cells": ({"optimizer": "sgd", "lr": 0.5},),
    "seeds": 9,
    "targets": {"test/accuracy": 0.8777, "test/loss": 0.1},
    "margins": {"test/loss": 0.0213},
}
SHIFTS = {"lr=0.01": 0.0623, "zero_grad=false": -0.21, "lr=0.1": 0.01}
"""What a cell has more than the base, in accuracy."""


def drawn(*about: object) -> Random:
    """Chance that depends on nothing but the names."""
    return Random(repr(about))


def learn_run(path: Path) -> RunFolder:
    """Effects of every verdict, divergence, targets met and missed, trials that did not end."""
    folder = Fabricated(final=_final, state=_state).write(path, made_study(**LEARN))
    for trial in folder.trials():
        if trial.kind == "learn" and trial.state != "pending":
            _vary_curve(folder, trial)
    return folder


def _final(trial: Trial) -> dict[str, float]:
    own, luck = drawn(trial.cell, trial.seed), drawn(trial.seed)
    accuracy = 0.8423 + SHIFTS.get(trial.cell, 0.0) + luck.gauss(0, 0.004) + own.gauss(0, 0.0031)
    loss = 0.5432 + luck.gauss(0, 0.02) + own.gauss(0, 0.0061)
    train_loss = 0.2 + luck.gauss(0, 0.02) + own.gauss(0.004, 0.012)
    return {"test/accuracy": accuracy, "test/loss": loss, "train/loss": train_loss}


def _state(trial: Trial) -> str:
    gone = {"lr=0.1": "diverged", "batch_size=16": "failed", "hidden=5": "interrupted"}
    if trial.cell == "optimizer=sgd,lr=0.5" and trial.seed == 9:
        return "pending"
    return gone.get(trial.cell, "done") if trial.seed > 5 else "done"


def _vary_curve(folder: RunFolder, trial: TrialRecord) -> None:
    """Metrics that near their last value, in epochs that take their own time."""
    home, chance = folder.trial(trial.id), drawn("curve", trial.id)
    lines, elapsed = [], 0.0
    for line in home.epochs():
        elapsed += chance.uniform(1.0, 3.0)
        rest = 1 if line["epoch"] == trial.settings["epochs"] else chance.uniform(0.8, 1.0)
        metrics = {name: rest * v for name, v in line.items() if "/" in name}
        train_s = chance.uniform(0.7, 0.8)
        lines.append({**line, **metrics, "train_s": train_s, "time_s": elapsed})
    home.curve_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    if trial.state == "diverged":
        told = {"diverged_at_step": chance.randrange(100, 2000)}
        if trial.seed == 7:
            told = {"state": "done", "diverged_at_step": None}
            told["final"] = {**trial.final, "test/loss": None}
        home.write(trial.model_copy(update=told))


def grid_run(path: Path) -> RunFolder:
    """Three sizes of two widths: a trend, and an effect that depends on the other factor; three classes."""
    study = made_study(vary={"batch_size": (1, 4, 16), "hidden": (3, 5)}, seeds=4)

    def final(trial: Trial) -> dict[str, float]:
        size, hidden = trial.settings.batch_size, trial.settings.model["hidden"]
        own = drawn("grid", trial.cell, trial.seed).gauss(0, 0.004)
        # Every effect is large: how many seeds an open one needs takes long to simulate.
        level = 0.01 * size + 0.04 * (hidden == 5) + 0.1 * (size == 16 and hidden == 5) + own
        losses = {"test/loss": 0.9 - 1.5 * level, "train/loss": 0.8 - level - own / 2}
        return {"test/accuracy": 0.6 + level, **losses}

    folder = Fabricated(final=final).write(path, study)
    for trial in folder.trials():
        chance = drawn("classes", trial.id)
        wrong = [[chance.randrange(2, 40) * (a != b) for b in range(3)] for a in range(3)]
        counts = [[n or 131 - sum(row) for n in row] for row in wrong]
        folder.trial(trial.id).confusion.write(made.confusion(counts, trial.seed))
    return folder


def large_batch_run(path: Path) -> RunFolder:
    """A batch larger than the data runs as one of all samples; the best two are the same."""
    study = made_study(vary={"batch_size": (16, 64, 960, 5000)}, seeds=4)

    def final(trial: Trial) -> dict[str, float]:
        size = min(trial.settings.batch_size, 960)
        own = drawn("large", size, trial.seed).gauss(0, 0.004)
        level = 0.03 * math.log2(size) + own
        losses = {"test/loss": 0.7 - 1.5 * level, "train/loss": 0.8 - 2 * level - own}
        return {"test/accuracy": 0.6 + level, **losses}

    return Fabricated(final=final).write(path, study)


def seed_parts_run(path: Path) -> RunFolder:
    """What seeds change, one part at a time."""
    parts = ("all", "weights", "order", "dropout")
    study = made_study(vary={"seed_parts": parts}, seeds=5)
    stds = {"all": 0.01, "weights": 0.006, "order": 0.002, "dropout": 0.0}

    def final(trial: Trial) -> dict[str, float]:
        chance = drawn("parts", trial.cell, trial.seed)
        own = chance.gauss(0, stds[trial.settings.seed_parts])
        return {"test/accuracy": 0.9 + own, "test/loss": 0.5 - own, "train/loss": 0.4 + 2 * own}

    return Fabricated(final=final).write(path, study)


def cost_run(path: Path) -> RunFolder:
    """Three sizes of three widths in both modes: one bends, one hardly differs from the first."""
    vary = {"batch_size": (1, 4, 16), "hidden": (3, 5, 7)}
    margins = {"train/sample_us": 0.05, "inference/sample_us": 0.6}
    cost = CostSpec(mode="both")
    study = made_study(vary=vary, seeds=2, learn=False, cost=cost, margins=margins)
    return _cost_run(path, study)


def few_cells_run(
    state: Callable[[Trial], str] = lambda trial: "done", **vary: tuple[int, ...]
) -> Callable[[Path], RunFolder]:
    """Four processes of each of a few cells."""
    cost = CostSpec(mode="both", processes=4)
    study = made_study(vary=vary, learn=False, seeds=1, cost=cost)
    return lambda path: _cost_run(path, study, state)


def _broken(trial: Trial) -> str:
    """The reference's processes broke, but not those that measured it again; another cell has none."""
    is_broken = trial.cell == "batch_size=4" or (trial.cell == "batch_size=2" and not trial.again)
    if trial.id == "cost-train-batch_size=4-process2":
        return "running"
    return "failed" if trial.watch == "steps" and is_broken else "done"


def _cost_run(
    path: Path, study: Any, state: Callable[[Trial], str] = lambda trial: "done"
) -> RunFolder:
    told = {"step_ms": _step_ms, "rows": _rows, "peak_bytes": _peak, "state": state}
    folder = Fabricated(**told).write(path, study)
    for trial in folder.trials():
        _vary_cost(folder, trial)
    return folder


def _step_ms(trial: Trial, process: int) -> float:
    chance = drawn(trial.id, process)
    size, is_bent = trial.settings.batch_size, trial.cell.endswith("hidden=5")
    time = 1.7 + 0.345 * (size if not is_bent else (size - 4) ** 2 + 1)
    time *= 1.06 if trial.cell.endswith("hidden=7") else 1.0
    return time * chance.uniform(0.97, 1.03 if size < 16 else 1.4)


def _rows(trial: Trial) -> list[Any]:
    chance, size = drawn("rows", trial.id), trial.settings.batch_size
    heavy = 12.34 if trial.cell.endswith("hidden=3") else 123.4
    return [
        operator("aten::addmm", heavy * size * chance.uniform(0.9, 1.1), 2),
        operator("aten::relu", chance.uniform(70, 90), 3),
        operator("aten::addmm", size * chance.uniform(1, 2), 5),
    ]


def _peak(trial: Trial) -> int:
    return int(2**20 * drawn("peak", trial.id).uniform(1, 9))


def _vary_cost(folder: RunFolder, trial: TrialRecord) -> None:
    home, chance = folder.trial(trial.id), drawn("cost", trial.id)
    if home.cost.exists():
        record = home.cost.read()
        step_ms = record.step_ms[0]
        steps = [step_ms * chance.uniform(0.97, 1.04) for _ in range(3 * 8)]
        first = {name: ms[0] for name, ms in record.phases_ms.items()}
        phases = {n: [ms * chance.uniform(0.8, 1.2) for _ in range(4)] for n, ms in first.items()}
        load = record.load.model_copy(update={"others_cores": chance.uniform(0.0, 0.4)})
        told = {"step_ms": steps, "phases_ms": phases, "load": load, "turns": _turns(chance)}
        told |= {"num_samples": 965, "last_ms": [chance.uniform(0.5, 1.0) for _ in range(3)]}
        home.cost.write(record.model_copy(update=told))
    if home.operators.exists():
        told = {"num_steps": 4, "profiled_step_us": chance.uniform(900, 1100)}
        home.operators.write(home.operators.read().model_copy(update=told))


def _turns(chance: Random) -> list[TurnRecord]:
    """Of three bare steps each; one was disturbed, four have a marked step."""
    loud = chance.randrange(8)
    turns = made.made_turns(8, 3)
    for place, turn in enumerate(turns):
        others = 0.8 if place == loud else chance.uniform(0.0, 0.2)
        told = {"num_marked": int(place < 4), "others_cores": others}
        turns[place] = turn.model_copy(update=told)
    return turns


PROBED = {"design": "one-at-a-time", "vary": {"zero_grad": (False,), "lr": (0.1,)}, "seeds": 5}
Value = Callable[[Random, str, int], float | None]
"""Of a probe's line in a cell and a period, from 1; None where it is not finite."""
VALUES: dict[tuple[str, str], Value] = {
    ("fc1:grad_output:sq_sum@epoch", "fc1"): lambda r, cell, p: r.uniform(1, 3) * 1e-8,
    ("fc1:grad_output:sq_sum@epoch", "fc2"): lambda r, cell, p: r.uniform(1, 3) * 1e8,
    ("fc1:grad_output:sq_sum@epoch", "fc3"): lambda r, cell, p: r.uniform(1, 3),
    ("fc1.weight:grad:norm@100", "fc1.weight"): lambda r, cell, p: (
        None if cell == "lr=0.1" and p > 2 and r.random() < 0.6 else r.uniform(1, 2) * 900.0**p
    ),
    ("relu:activation:dead_fraction@epoch", "relu"): lambda r, cell, p: r.uniform(0.3, 0.4),
    ("*:update:sq_sum@epoch", "fc1.weight"): lambda r, cell, p: r.uniform(1, 3) * 10,
    ("*:update:sq_sum@epoch", "fc2.weight"): lambda r, cell, p: r.uniform(1, 3) * 1e-12,
    ("*:weight:sq_sum@epoch", "fc1.weight"): lambda r, cell, p: r.uniform(3, 5),
    ("*:weight:sq_sum@epoch", "fc2.weight"): lambda r, cell, p: r.uniform(3, 5),
}


def probe_run(path: Path) -> RunFolder:
    """Gradients that vanish, explode, grow, pile up or are not finite; dead units; odd updates."""
    folder = Fabricated(final=_final).write(path, made_study(**PROBED))
    for trial in folder.trials():
        chance, lines = drawn("probe", trial.id), []
        for (probe, layer), value_of in VALUES.items():
            for period in (1, 2, 3, 4):
                fired = chance.randrange(5, 40)
                value = value_of(chance, trial.cell, period)
                told = {"epoch": period, "step": 100 * period, "num_steps": 100, "fired": fired}
                told["count"] = fired * chance.randrange(100, 300)
                lines.append(made.probe_line(probe, layer, period, value, **told))
        made.write_probes(folder.trial(trial.id), lines)
    return folder


RUNS: dict[str, Callable[[Path], RunFolder]] = {
    "learn": learn_run,
    "grid": grid_run,
    "large batch": large_batch_run,
    "seed parts": seed_parts_run,
    "cost": cost_run,
    "two sizes": few_cells_run(batch_size=(2, 8)),
    "broken processes": few_cells_run(_broken, batch_size=(2, 4, 8)),
    "several processes": few_cells_run(processes=(1, 2, 4)),
    "probes": probe_run,
}
