"""Evidence: all records of a run, read once, arranged by cell."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainlab.analyse.measurement import Measurement, measurements_of
from trainlab.record.environment import Environment
from trainlab.record.folder import RunFolder
from trainlab.record.schema import TrialRecord
from trainlab.spec import Cell, Study, checked


@dataclass(frozen=True)
class Learned:
    """One learn trial: its record and its epochs."""

    trial: TrialRecord
    epochs: tuple[Mapping[str, Any], ...]
    """The curve's lines of kind `epoch`, in order."""

    def value(self, metric: str) -> float:
        """A metric of the last epoch; not a number where the trial diverged or never got there."""
        found = self.trial.final.get(metric)
        return math.nan if found is None or self.trial.state != "done" else float(found)


@dataclass(frozen=True)
class Evidence:
    """What a run has shown so far."""

    name: str
    study: Study
    environment: Environment
    trials: tuple[TrialRecord, ...]
    learned: Mapping[str, Mapping[int, Learned]]
    """Cell, then seed; trials that ended in any way."""
    measured: tuple[Measurement, ...]
    """One per cell, mode and weights, the second of an A/A pair included."""

    @property
    def cells(self) -> tuple[Cell, ...]:
        """In the order asked; the first is the one others are compared with."""
        return self.study.all_cells

    @property
    def is_complete(self) -> bool:
        """Whether every planned trial has ended."""
        return all(trial.state not in ("pending", "running") for trial in self.trials)

    def metrics(self) -> tuple[str, ...]:
        """Those the learn trials ended with, in the order of the records; settings apart."""
        names: dict[str, None] = {}
        for seeds in self.learned.values():
            for one in seeds.values():
                names.update(dict.fromkeys(name for name in one.trial.final if "/" in name))
        return tuple(names)

    def values(self, cell: str, metric: str) -> dict[int, float]:
        """By seed."""
        return {seed: one.value(metric) for seed, one in self.learned.get(cell, {}).items()}

    def measurement(
        self, cell: str, mode: str, *, again: bool = False, trained: bool = False
    ) -> Measurement | None:
        """What was measured about a cell's cost."""
        return next(
            (
                found
                for found in self.measured
                if (found.trial.cell, found.summary.mode, found.trial.again, found.is_trained)
                == (cell, mode, again, trained)
            ),
            None,
        )


def gather(folder: RunFolder) -> Evidence:
    """Reads a run; RecordError where it is none of ours."""
    record = folder.study()
    trials = tuple(folder.trials())
    learned: dict[str, dict[int, Learned]] = {}
    for trial in trials:
        if trial.kind == "learn" and trial.state not in ("pending", "running"):
            lines = folder.trial(trial.id).curve()
            epochs = tuple(line for line in lines if line["kind"] == "epoch")
            learned.setdefault(trial.cell, {})[trial.seed] = Learned(trial, epochs)
    return Evidence(
        name=record.name,
        study=checked(Study, record.study, str(folder.study_file)),
        environment=folder.environment(),
        trials=trials,
        learned=learned,
        measured=tuple(measurements_of(folder, trials)),
    )
