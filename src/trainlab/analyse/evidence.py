"""Evidence: all records of a run, read once, arranged by cell. The only reader of run folders."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from trainlab.analyse.cost.measurement import MODES, Measurement
from trainlab.analyse.cost.summary import summarise
from trainlab.analyse.probes import Probed
from trainlab.record.environment import UNKNOWN, Environment
from trainlab.record.files import read_lines
from trainlab.record.folder import RecordFile, RunFolder
from trainlab.record.probe import ProbeRecord
from trainlab.record.schema import Record
from trainlab.record.study import StudyRecord
from trainlab.record.trial import TrialRecord
from trainlab.spec import Cell, Study

UNFINISHED = ("pending", "running")
ENDED_WELL = ("done", "diverged")
"""Ended by itself: a loss that is no longer finite is a result, a failure is not."""

R = TypeVar("R", bound=Record)
Line = Mapping[str, Any]
"""A line of a curve."""


@dataclass(frozen=True)
class Learned:
    """One learn trial: its record and its curve."""

    trial: TrialRecord
    epochs: tuple[Line, ...]
    """The curve's lines of kind `epoch`, in order."""
    read_steps: Callable[[], Sequence[Line]] = tuple
    """Reads the lines of kind `step`: many, and only a report that draws them wants them."""

    def value(self, metric: str) -> float:
        """A metric of the last epoch; not a number where the trial diverged or never got there."""
        final = self.trial.final.get(metric)
        return math.nan if final is None or self.trial.state != "done" else float(final)


@dataclass(frozen=True)
class Evidence:
    """What a run has shown so far."""

    record: StudyRecord
    study: Study
    environments: Mapping[str, Environment]
    """The machines it ran on, by the names that trials give."""
    trials: tuple[TrialRecord, ...]
    learned: Mapping[str, Mapping[int, Learned]]
    """Cell, then seed; trials that ended in any way."""
    measured: tuple[Measurement, ...]
    """One per cell, mode and weights, the second of an A/A pair included."""
    probed: tuple[Probed, ...] = ()
    """Learn trials that were watched inside, with what was seen."""
    list_files: Callable[[], frozenset[str]] = frozenset
    """Lists the names of all files there are, those of trials without their folders."""

    @property
    def name(self) -> str:
        """Of the study."""
        return self.record.name

    @property
    def environment(self) -> Environment:
        """The first machine."""
        return next(iter(self.environments.values()), UNKNOWN)

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

    def measured_in(self, mode: str) -> list[Measurement]:
        """One measurement per cell, in the order asked; the second of an A/A pair is left out."""
        found = (self.measurement(cell.id, mode) for cell in self.cells)
        return [one for one in found if one is not None]

    @cached_property
    def _by_look(self) -> dict[tuple[str, str, bool, bool], Measurement]:
        return {
            (one.trial.cell, one.summary.mode, one.trial.again, one.is_trained): one
            for one in self.measured
        }


def gather(folder: RunFolder) -> Evidence:
    """Reads a run; RecordError where it is none of ours."""
    record = folder.study()
    study = record.to_study(str(folder.study_file))
    trials = tuple(folder.trial(trial_id).read() for trial_id in record.trials)
    learned: dict[str, dict[int, Learned]] = {}
    for trial in trials:
        if trial.kind == "learn" and trial.state not in UNFINISHED:
            learned.setdefault(trial.cell, {})[trial.seed] = _learned(folder, trial)
    return Evidence(
        record=record,
        study=study,
        environments=folder.environments(),
        trials=trials,
        learned=learned,
        measured=tuple(sorted(_measurements(folder, trials), key=_place(study))),
        probed=tuple(read_probed(folder, trials)),
        list_files=folder.file_names,
    )


def _learned(folder: RunFolder, trial: TrialRecord) -> Learned:
    home = folder.trial(trial.id)

    def steps() -> Sequence[Line]:
        return [line for line in home.curve() if line["kind"] == "step"]

    return Learned(trial, tuple(home.epochs()), steps)


def _measurements(folder: RunFolder, trials: Iterable[TrialRecord]) -> Iterator[Measurement]:
    """One per cell, mode and weights; those without a timed process are left out."""
    groups: dict[object, list[TrialRecord]] = {}
    for trial in trials:
        if trial.kind == "cost" and trial.state == "done":
            key = (trial.cell, trial.again, trial.mode, trial.weights_of)
            groups.setdefault(key, []).append(trial)
    for group in groups.values():
        timed = [trial for trial in group if trial.watch == "steps"]
        if not timed:
            continue
        costs = tuple(folder.trial(trial.id).cost.read() for trial in timed)
        homes = {trial.watch: folder.trial(trial.id) for trial in group}
        operators, layers = homes.get("operators"), homes.get("layers")
        yield Measurement(
            trial=timed[0],
            processes=tuple(trial.id for trial in timed),
            costs=costs,
            summary=summarise(costs),
            operators=None if operators is None else _read(operators.operators),
            layers=None if layers is None else _read(layers.layers),
            memory=None if layers is None else _read(layers.memory),
            limits=None if layers is None else _read(layers.limits),
            probe_price=None if layers is None else _read(layers.probe_price),
        )


def _read(file: RecordFile[R]) -> R | None:
    return file.read() if file.exists() else None


def read_probed(folder: RunFolder, trials: Iterable[TrialRecord]) -> Iterator[Probed]:
    """The trials that were watched inside, in the order planned."""
    for trial in trials:
        home = folder.trial(trial.id)
        if home.probes_file.exists():
            lines = [ProbeRecord.model_validate(line) for line in read_lines(home.probes_file)]
            proof = _read(home.probes)
            yield Probed(trial, tuple(lines), () if proof is None else tuple(proof.rows))


def _place(study: Study) -> Callable[[Measurement], tuple[int, int, bool, bool]]:
    """Cells in the order asked, training before inference, the second of an A/A pair after the first."""
    order = {cell.id: number for number, cell in enumerate(study.all_cells)}

    def place(one: Measurement) -> tuple[int, int, bool, bool]:
        mode = MODES.index(one.summary.mode)
        return order[one.trial.cell], mode, one.is_trained, one.trial.again

    return place
