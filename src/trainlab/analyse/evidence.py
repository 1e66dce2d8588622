"""Evidence: all records of a run, read once, arranged by cell. The only reader of run folders."""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from trainlab.analyse.contrast import level_of
from trainlab.analyse.cost.benches import process_steps_ms
from trainlab.analyse.cost.measurement import MODES, Measurement
from trainlab.analyse.cost.summary import summarise
from trainlab.analyse.probes import ProbedTrial
from trainlab.errors import RecordError
from trainlab.record.cost import CostRecord, NetworkRecord
from trainlab.record.digests import Digests, run_digests
from trainlab.record.environment import UNKNOWN, Environment
from trainlab.record.folder import CHANGED, RecordFile, RunFolder
from trainlab.record.schema import Record
from trainlab.record.study import StudyRecord
from trainlab.record.trial import TrialRecord
from trainlab.spec import Cell, Study
from trainlab.spec.settings import Scalar

UNFINISHED = ("pending", "running")
ENDED_WELL = ("done", "diverged")
"""Trials that ran to their end: a loss that diverged is a result, a failure is not."""

R = TypeVar("R", bound=Record)
Line = Mapping[str, Any]
"""A line of a curve."""


@dataclass(frozen=True)
class LearnedTrial:
    """One learn trial: its record and its curve."""

    trial: TrialRecord
    epochs: tuple[Line, ...]
    """The curve's lines of kind `epoch`, in order."""
    read_steps: Callable[[], Sequence[Line]] = tuple
    """Reads the lines of kind `step`: there are many, and only reports that draw them need them."""
    read_network: Callable[[], NetworkRecord | None] = lambda: None
    """Reads the calls of its model; None where they were not recorded."""

    def epoch_s(self) -> float | None:
        """The median training time of its epochs; None where none ended."""
        times_s = [float(line["train_s"]) for line in self.epochs]
        return statistics.median(times_s) if times_s else None

    def value(self, metric: str) -> float:
        """A metric of the last epoch; NaN where the trial diverged or did not finish."""
        final = self.trial.final.get(metric)
        return math.nan if final is None or self.trial.state != "done" else float(final)


@dataclass(frozen=True)
class Evidence:
    """All records of a run so far."""

    record: StudyRecord
    study: Study
    environments: Mapping[str, Environment]
    """The machines it ran on, by the names that trials refer to."""
    trials: tuple[TrialRecord, ...]
    learned: Mapping[str, Mapping[int, LearnedTrial]]
    """Learn trials that ended in any way, by cell and then by seed."""
    measured: tuple[Measurement, ...]
    """One per cell, mode and weights, the second of an A/A pair included."""
    probed: tuple[ProbedTrial, ...] = ()
    """Learn trials with probes, and the values of these."""
    list_files: Callable[[], frozenset[str]] = frozenset
    """Lists the names of all files of the run; those of trials without their folders."""
    read_digests: Callable[[], Digests | None] = lambda: None
    """Digests of all raw records; only reports that are handed in need them."""

    @property
    def name(self) -> str:
        """The study's name."""
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

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that the learn trials ended with, in the order of the records; settings apart."""
        trials = (learned.trial for seeds in self.learned.values() for learned in seeds.values())
        return tuple(dict.fromkeys(name for trial in trials for name in trial.final if "/" in name))

    def values(self, cell: str, metric: str) -> dict[int, float]:
        """A metric of the last epoch by seed, of trials that ended well; NaN where one diverged."""
        return {
            seed: learned.value(metric)
            for seed, learned in self.learned.get(cell, {}).items()
            if learned.trial.state in ENDED_WELL
        }

    def level_that_ran(self, cell: Cell, factor: str) -> Scalar | None:
        """The level of a factor in a cell as its trials had it: a batch is no larger than the data."""
        ran = self._resolved.get(cell.id, {}).get(factor) if factor == "batch_size" else None
        return level_of(cell, factor) if ran is None else ran

    @cached_property
    def _resolved(self) -> dict[str, Mapping[str, Any]]:
        """What settings became in the first trial of each cell that got so far."""
        resolved: dict[str, Mapping[str, Any]] = {}
        for trial in self.trials:
            if trial.resolved:
                resolved.setdefault(trial.cell, trial.resolved)
        return resolved

    def finite_values(self, cell: str, metric: str) -> list[float]:
        """A metric of the last epoch of the trials that did not diverge."""
        return [value for value in self.values(cell, metric).values() if math.isfinite(value)]

    def measurement(
        self, cell: str, mode: str, *, again: bool = False, trained: bool | None = None
    ) -> Measurement | None:
        """A cell's cost measurement; `trained` None: with the weights that the study names first."""
        if trained is None:
            trained = self.study.cost is not None and self.study.cost.weights == "trained"
        return self._measurement_by_key.get((cell, mode, again, trained))

    def measured_in(self, mode: str) -> list[Measurement]:
        """One measurement per cell, in the order asked; the second of an A/A pair is left out."""
        measurements = (self.measurement(cell.id, mode) for cell in self.cells)
        return [measurement for measurement in measurements if measurement is not None]

    @cached_property
    def _measurement_by_key(self) -> dict[tuple[str, str, bool, bool], Measurement]:
        return {
            (m.trial.cell, m.summary.mode, m.trial.again, m.is_trained): m for m in self.measured
        }


def gather(folder: RunFolder) -> Evidence:
    """Reads a run; RecordError where the folder is not a run of trainlab."""
    record = folder.study()
    study = record.to_study(str(folder.study_file))
    trials = tuple(folder.trial(trial_id).read() for trial_id in record.trials)
    _check_cells(folder, study, trials)
    learned: dict[str, dict[int, LearnedTrial]] = {}
    for trial in trials:
        if trial.kind == "learn" and trial.state not in UNFINISHED:
            learned.setdefault(trial.cell, {})[trial.seed] = _learned(folder, trial)
    cell_order = {cell.id: number for number, cell in enumerate(study.all_cells)}

    def position(m: Measurement) -> tuple[int, int, bool, bool]:
        """Cells in the order asked, training before inference, an A/A pair in its own order."""
        mode = MODES.index(m.summary.mode)
        return cell_order[m.trial.cell], mode, m.is_trained, m.trial.again

    return Evidence(
        record=record,
        study=study,
        environments=folder.environments(),
        trials=trials,
        learned=learned,
        measured=tuple(sorted(_measurements(folder, trials), key=position)),
        probed=tuple(read_probed(folder, trials)),
        list_files=folder.file_names,
        read_digests=lambda: run_digests(folder),
    )


def _check_cells(folder: RunFolder, study: Study, trials: Iterable[TrialRecord]) -> None:
    """RecordError where a trial is of a cell that the study does not have."""
    known = {cell.id for cell in study.all_cells}
    for trial in trials:
        if trial.cell not in known:
            raise RecordError(
                f"{folder.study_file}: study.cells: has no {trial.cell}, of which {trial.id} is; {CHANGED}"
            )


def _learned(folder: RunFolder, trial: TrialRecord) -> LearnedTrial:
    files = folder.trial(trial.id)
    return LearnedTrial(
        trial,
        epochs=tuple(files.epochs()),
        read_steps=lambda: [line for line in files.curve() if line["kind"] == "step"],
        read_network=lambda: _read(files.network),
    )


def _measurements(folder: RunFolder, trials: Iterable[TrialRecord]) -> Iterator[Measurement]:
    """One per cell, mode and weights; those without a timed process are left out."""
    groups: dict[object, list[TrialRecord]] = {}
    records: dict[str, CostRecord] = {}
    for trial in trials:
        if trial.kind == "cost" and trial.state == "done":
            groups.setdefault((trial.cell, trial.mode, trial.weights_of), []).append(trial)
            if trial.watch == "steps":
                records[trial.id] = folder.trial(trial.id).cost.read()
    steps_ms = process_steps_ms(records)
    for group in (part for trials in groups.values() for part in _measured_apart(trials)):
        timed = [trial for trial in group if trial.watch == "steps"]
        if not timed:
            continue
        costs = tuple(records[trial.id] for trial in timed)
        process_ms = tuple(steps_ms[trial.id] for trial in timed)
        files = {trial.watch: folder.trial(trial.id) for trial in group}
        operators, layers = files.get("operators"), files.get("layers")
        yield Measurement(
            trial=timed[0],
            processes=tuple(trial.id for trial in timed),
            costs=costs,
            process_ms=process_ms,
            summary=summarise(costs, process_ms),
            operators=None if operators is None else _read(operators.operators),
            layers=None if layers is None else _read(layers.layers),
            memory=None if layers is None else _read(layers.memory),
            limits=None if layers is None else _read(layers.limits),
            probe_price=None if layers is None else _read(layers.probe_price),
        )


def _measured_apart(trials: Sequence[TrialRecord]) -> Iterator[list[TrialRecord]]:
    """The trials of a cell, and apart from them those of its second measurement. Where every process of the
    first broke, the second stands for it: the cell is the same, and it took the same turns."""
    first = [trial for trial in trials if not trial.again]
    second = [trial for trial in trials if trial.again]
    if any(trial.watch == "steps" for trial in first):
        yield first
        yield second
    else:
        yield first + [trial.model_copy(update={"again": False}) for trial in second]


def _read(file: RecordFile[R]) -> R | None:
    return file.read() if file.exists() else None


def read_probed(folder: RunFolder, trials: Iterable[TrialRecord]) -> Iterator[ProbedTrial]:
    """The trials with probes, in the order planned."""
    for trial in trials:
        files = folder.trial(trial.id)
        if files.probes_file.exists():
            fired = _read(files.probes)
            yield ProbedTrial(
                trial, tuple(files.probe_lines()), () if fired is None else tuple(fired.rows)
            )
