"""Evidence: all records of a run, read once, arranged by cell."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trainlab.analyse.cost.measurement import Measurement, measurements_of
from trainlab.analyse.probes import Probed, read_probes
from trainlab.record.environment import Environment
from trainlab.record.folder import RunFolder
from trainlab.record.schema import TrialRecord
from trainlab.spec import Cell, Study, checked

UNFINISHED = ("pending", "running")
ENDED_WELL = ("done", "diverged")
"""Ended by itself: a loss that is no longer finite is a result, a failure is not."""


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

    probed: tuple[Probed, ...] = ()
    """Learn trials that were watched inside, with what was seen."""

    @property
    def cells(self) -> tuple[Cell, ...]:
        """In the order asked; the first is the one others are compared with."""
        return self.study.all_cells

    @cached_property
    def factors(self) -> tuple[str, ...]:
        """What varies, in the order asked."""
        return self.study.factors

    @property
    def is_complete(self) -> bool:
        """Whether every planned trial has ended."""
        return all(trial.state not in UNFINISHED for trial in self.trials)

    def metrics(self) -> tuple[str, ...]:
        """Those the learn trials ended with, in the order of the records; settings apart."""
        return self._metrics

    @cached_property
    def _metrics(self) -> tuple[str, ...]:
        names: dict[str, None] = {}
        for seeds in self.learned.values():
            for one in seeds.values():
                names.update(dict.fromkeys(name for name in one.trial.final if "/" in name))
        return tuple(names)

    def values(self, cell: str, metric: str) -> dict[int, float]:
        """By seed, of trials that ended well; not a number where one diverged."""
        return {
            seed: one.value(metric)
            for seed, one in self.learned.get(cell, {}).items()
            if one.trial.state in ENDED_WELL
        }

    def measurement(
        self, cell: str, mode: str, *, again: bool = False, trained: bool | None = None
    ) -> Measurement | None:
        """What was measured about a cell's cost; not asked: with the weights the study asks for first."""
        if trained is None:
            trained = self.study.cost is not None and self.study.cost.weights == "trained"
        return self._by_look.get((cell, mode, again, trained))

    @cached_property
    def _by_look(self) -> dict[tuple[str, str, bool, bool], Measurement]:
        return {
            (found.trial.cell, found.summary.mode, found.trial.again, found.is_trained): found
            for found in self.measured
        }


def gather(folder: RunFolder) -> Evidence:
    """Reads a run; RecordError where it is none of ours."""
    record = folder.study()
    study = checked(Study, record.study, str(folder.study_file))
    homes = [folder.trial(trial_id) for trial_id in record.trials]
    trials = tuple(home.read() for home in homes)
    learned: dict[str, dict[int, Learned]] = {}
    for home, trial in zip(homes, trials, strict=True):
        if trial.kind == "learn" and trial.state not in UNFINISHED:
            one = Learned(trial, tuple(home.epochs()))
            learned.setdefault(trial.cell, {})[trial.seed] = one
    return Evidence(
        name=record.name,
        study=study,
        environment=folder.environment(),
        trials=trials,
        learned=learned,
        measured=tuple(sorted(measurements_of(folder, trials), key=_place(study))),
        probed=read_probes(folder, trials),
    )


def _place(study: Study) -> Callable[[Measurement], tuple[int, str, bool, bool]]:
    """Cells in the order asked, training before inference, the second of an A/A pair after the first."""
    order = {cell.id: number for number, cell in enumerate(study.all_cells)}

    def place(found: Measurement) -> tuple[int, str, bool, bool]:
        backwards = "a" if found.summary.mode == "train" else "b"
        return order[found.trial.cell], backwards, found.is_trained, found.trial.again

    return place
