"""Runs of a script made of records alone: what watching one leaves behind, without any script."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from fabricate import Fabricated
from trainlab.lab.script_study import script_study
from trainlab.plan import Trial, plan, trials_of
from trainlab.record.run_folder import RunFolder
from trainlab.record.script_record import LoaderRow, ModelRow, OptimizerRow, WatchedRecord
from trainlab.spec import CostSpec

STEP_MS = {"data": 1.0, "forward": 3.0, "backward": 4.5, "optimizer": 1.25, "other": 0.25}


@contextmanager
def own_main() -> Iterator[None]:
    """A script that runs inside may take the place of the main module."""
    before = sys.modules["__main__"], sys.argv, [*sys.path]
    try:
        yield
    finally:
        sys.modules["__main__"], sys.argv, sys.path[:] = before


def loader(**own: Any) -> LoaderRow:
    """The loader that is trained on."""
    size = {"batch_size": 64, "num_samples": 1280, "num_batches": 20, "drop_last": False}
    given = {"num_passes": 2, "is_trained_on": True, "order": "shuffled"}
    usual: dict[str, Any] = size | given | {"num_workers": 0, "pin_memory": False}
    return LoaderRow(**(usual | own))


def watched(
    *,
    steps_ms: Mapping[str, Sequence[float]] | None = None,
    startup_s: float = 2.0,
    evaluation_s: float = 1.0,
    **own: Any,
) -> WatchedRecord:
    """Forty steps of 10 ms, the first of them 100 ms, beside what is given; the parts add up."""
    steps = steps_ms or {name: [10 * ms, *[ms] * 39] for name, ms in STEP_MS.items()}
    number = len(next(iter(steps.values())))
    parts = {name: sum(ms) / 1e3 for name, ms in steps.items()}
    parts |= {"startup": startup_s, "evaluation": evaluation_s}
    tested = loader(batch_size=1000, num_samples=1000, num_batches=1, is_trained_on=False)
    model = {"name": "Net", "num_parameters": 149418, "devices": ["cpu"], "dtypes": ["float32"]}
    overhead = {"num_calls": 400, "call_us": 2.5, "num_marks": 3000, "mark_us": 1.5}
    usual: dict[str, Any] = {
        "num_steps": number,
        "wall_s": sum(parts.values()),
        "parts_s": parts,
        "steps": list(range(1, number + 1)),
        "steps_ms": {name: list(ms) for name, ms in steps.items()},
        "losses": [1.0] * number,
        "batch_size": 64,
        "threads": 1,
        "loaders": [loader(), tested],
        "models": [ModelRow(**model, is_compiled=False)],
        "optimizers": [OptimizerRow(name="Adadelta", lr=1.0, code="auto", num_steps=number)],
        "memory": [(step, 300 << 20) for step in range(1, number + 1)],
        "instruments_s": 0.4,
    }
    return WatchedRecord(**(usual | overhead | own))


def facts(trial: Trial) -> dict[str, Any]:
    """What a script whose --batch-size may be varied was seen to use."""
    size = int(trial.settings.script.get("batch-size", 64))
    machine = {"device": "cpu", "threads": 1, "workers": 0, "pinned": False}
    data = {"batch_size": size, "order": "shuffled", "drop_last": False, "train_samples": 1280}
    model = {"model": "Net", "parameters": 149418, "dtype": "float32"}
    training = {"optimizer": "Adadelta", "lr": 1.0, "updates": 2560 // size, "passes": 2}
    return machine | data | model | training


def own_losses(trial: Trial) -> list[float]:
    """Forty, of this cell and seed alone."""
    chance = Random(f"{trial.cell} {trial.seed}")
    return [chance.random() for _ in range(40)]


@dataclass
class WatchedRun:
    """What the records of a made-up run of a script say."""

    seen: Callable[[Trial], WatchedRecord] = lambda trial: watched(losses=own_losses(trial))
    resolved: Callable[[Trial], Mapping[str, Any]] = facts
    final: Callable[[Trial], Mapping[str, float]] = lambda trial: {
        "train/loss": 0.4 + 0.01 * trial.seed,
        "test/accuracy": 0.9 + 0.001 * trial.seed,
    }
    epochs: int = 2

    def write(self, path: Path, *, profile: bool = False, **asked: Any) -> RunFolder:
        """A run of `train.py --epochs 2`, which lies beside it."""
        script = path.parent / "train.py"
        script.write_text("parser.add_argument('--seed')\n")
        cost = CostSpec(mode="train") if profile else None
        study = script_study(script, ("--epochs", "2"), cost=cost, **asked)
        made = Fabricated(final=self.final, step_ms=_step_ms)
        folder = made.write(path, study)
        by_id = {trial.id: trial for trial in trials_of(plan(study))}
        for record in folder.trials():
            home, trial = folder.trial(record.id), by_id[record.id]
            told = {"resolved": dict(self.resolved(trial)), "data": None, "steps_done": 40}
            if record.kind == "learn":
                home.watched.write(self.seen(trial))
                told["epochs_done"] = self.epochs
                if self.epochs == 2:
                    _two_epochs(home.curve_file)
            elif record.watch == "steps":
                size = {"batch_size": int(trial.settings.script.get("batch-size", 64))}
                home.cost.write(home.cost.read().model_copy(update=size))
            home.write(record.model_copy(update=told))
        return folder


def _step_ms(trial: Trial, process: int) -> float:
    size = int(trial.settings.script.get("batch-size", 64))
    return (1.0 + 0.05 * size) * (1 + 0.01 * process)


def _two_epochs(curve: Path) -> None:
    """The made-up training has one epoch; the script has two."""
    line = json.loads(curve.read_text().splitlines()[-1])
    first = line | {"train/loss": 2 * line["train/loss"]}
    second = line | {"epoch": 2, "step": 40, "samples": 2560, "time_s": 2 * line["time_s"]}
    curve.write_text("".join(json.dumps(one) + "\n" for one in (first, second)))
