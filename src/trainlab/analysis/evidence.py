"""Evidence: all records of a run, read once, arranged by cell. The only reader of run folders."""

import math
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, TypeVar

from trainlab.analysis.contrast import level_of
from trainlab.analysis.measurement import MODES, Measurement, process_steps_ms, summarise
from trainlab.analysis.probes import ProbedTrial
from trainlab.analysis.trial_records import (
    UNFINISHED,
    LearnedTrial,
    Line,
    TrialRecords,
    read_trial,
)
from trainlab.errors import RecordError
from trainlab.record.cost_record import CostRecord
from trainlab.record.run_folder import CHANGED, Digests, RunFolder, run_digests
from trainlab.record.script_record import DiagnosisRecord
from trainlab.record.study_record import UNKNOWN, Environment, StudyRecord
from trainlab.record.trial_record import TrialRecord
from trainlab.spec import Cell, Study
from trainlab.spec.settings import Scalar

ENDED_WELL = ("done", "diverged")
"""Trials that ran to their end: a loss that diverged is a result, a failure is not."""

T = TypeVar("T")


@dataclass(frozen=True)
class Damage:
    """A file that cannot be read, or is not as it was written, or times of another machine: what is left
    out."""

    trial: str | None
    """The trial's id; None for a machine's record."""
    reason: str
    """An error line, which names the file."""


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
    begun: Mapping[str, tuple[Line, ...]] = field(default_factory=dict)
    """Learn trials that have begun and not ended, by id: the epochs that are recorded so far."""
    damaged: tuple[Damage, ...] = ()
    """What is left out, and why."""
    diagnosis: DiagnosisRecord | None = None
    """What limits the script, where the run was made to find that out."""
    path: str = ""
    """The run folder as it was named; empty where several runs are pooled."""
    list_files: Callable[[], frozenset[str]] = frozenset
    """Lists the names of all files of the run; those of trials without their folders."""
    read_digests: Callable[[], Digests | None] = lambda: None
    """Digests of all raw records; only reports that are handed in need them."""

    @property
    def name(self) -> str:
        """The study's name."""
        return self.record.name

    @property
    def num_damaged(self) -> int:
        """Trials that are left out."""
        return sum(damage.trial is not None for damage in self.damaged)

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
        """A metric of the last epoch by seed, of trials that ended well and repeat no other; NaN where one
        diverged."""
        repeats = self.repeats.get(cell, frozenset())
        return {
            seed: learned.value(metric)
            for seed, learned in self.learned.get(cell, {}).items()
            if learned.trial.state in ENDED_WELL and seed not in repeats
        }

    @cached_property
    def repeats(self) -> Mapping[str, frozenset[int]]:
        """By cell, seeds with which a script computed exactly what it did with an earlier one: it seeds
        itself, and its second run is no second sample."""
        found = {cell: frozenset(_repeated(seeds)) for cell, seeds in self.learned.items()}
        return {cell: seeds for cell, seeds in found.items() if seeds}

    def level_that_ran(self, cell: Cell, factor: str) -> Scalar | None:
        """The level of a factor in a cell as its trials had it: a batch is no larger than the data."""
        ran = self._resolved.get(cell.id, {}).get(factor) if factor == "batch_size" else None
        if cell.settings.accumulate > 1:
            ran = None  # what was resolved is that of an update, of several batches
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
    """Reads a run; RecordError where the folder is not a run of trainlab, or nothing in it is sound."""
    record = folder.study()
    study = record.to_study(str(folder.study_file))
    known = {cell.id for cell in study.all_cells}
    sound = _Sound(folder)
    read_one = partial(_read_trial, folder, known=known, of_script=study.script is not None)
    tried = (sound.read(one, partial(read_one, one)) for one in record.trials)
    read = [one for one in tried if one is not None]
    machines = {
        name: sound.read(None, file.read) for name, file in folder.environment_files().items()
    }
    has_diagnosis = folder.diagnosis.exists()
    diagnosis = sound.read(None, folder.diagnosis.read) if has_diagnosis else None
    elsewhere = _elsewhere(read, machines)
    sound.damaged += elsewhere.values()
    read = [one for one in read if one.trial.id not in elsewhere]
    if not read and sound.damaged:
        raise RecordError(f"{folder.path}: no trial is sound: {sound.damaged[0].reason}")
    learned: dict[str, dict[int, LearnedTrial]] = {}
    for one in read:
        if one.learned is not None and one.trial.state not in UNFINISHED:
            learned.setdefault(one.trial.cell, {})[one.trial.seed] = one.learned
    cell_order = {cell.id: number for number, cell in enumerate(study.all_cells)}

    def position(m: Measurement) -> tuple[int, int, bool, bool]:
        """Cells in the order asked, training before inference, an A/A pair in its own order."""
        mode = MODES.index(m.summary.mode)
        return cell_order[m.trial.cell], mode, m.is_trained, m.trial.again

    return Evidence(
        path=str(folder.path),
        record=record,
        study=study,
        environments={name: one for name, one in machines.items() if one is not None},
        trials=tuple(one.trial for one in read),
        learned=learned,
        measured=tuple(sorted(_measurements(read), key=position)),
        probed=tuple(one.probed for one in read if one.probed is not None),
        begun={
            one.trial.id: one.learned.epochs
            for one in read
            if one.learned is not None and one.trial.state == "running"
        },
        damaged=tuple(sound.damaged),
        diagnosis=diagnosis,
        list_files=folder.file_names,
        read_digests=lambda: run_digests(folder),
    )


def _repeated(by_seed: Mapping[int, LearnedTrial]) -> Iterator[int]:
    known: set[object] = set()
    for seed, one in sorted(by_seed.items()):
        if one.watched is not None and one.watched.num_steps and one.trial.state == "done":
            did = (*one.watched.losses, repr(sorted(one.trial.final.items())))
            if did in known:
                yield seed
            known.add(did)


class _Sound:
    """Reads what is sound and keeps a list of what is not."""

    def __init__(self, folder: RunFolder) -> None:
        self._prefix = f"{folder.path}{os.sep}"
        self.damaged: list[Damage] = []

    def read(self, trial: str | None, read: Callable[[], T]) -> T | None:
        """What a reader gives; None where it is damaged. The reason has paths as in the run folder, so that
        a copy of it gives the same report."""
        try:
            return read()
        except RecordError as error:
            self.damaged.append(Damage(trial, str(error).removeprefix(self._prefix)))
            return None


def _read_trial(
    folder: RunFolder, trial_id: str, known: Collection[str], *, of_script: bool
) -> TrialRecords:
    """RecordError where a record is damaged, or the trial is of a cell that the study does not have."""
    records = read_trial(folder.trial(trial_id), of_script=of_script)
    if (cell := records.trial.cell) not in known:
        raise RecordError(
            f"{folder.study_file}: study.cells: has no {cell}, of which {trial_id} is; {CHANGED}"
        )
    return records


def _elsewhere(
    read: Iterable[TrialRecords], machines: Mapping[str, Environment | None]
) -> dict[str, Damage]:
    """Cost trials that another machine has measured than most, by id: times of two are not compared. A
    cluster may give what a lost node has left to another one."""
    hosts: dict[str, str] = {}
    for one in read:
        machine = machines.get(one.trial.environment or "")
        if one.trial.kind == "cost" and one.trial.state == "done" and machine is not None:
            hosts[one.trial.id] = machine.host
    if len(set(hosts.values())) < 2:
        return {}
    most = Counter(hosts.values()).most_common(1)[0][0]
    return {
        trial: Damage(trial, f"{trial}: measured on {host}, most others on {most}")
        for trial, host in hosts.items()
        if host != most
    }


def _measurements(read: Iterable[TrialRecords]) -> Iterator[Measurement]:
    """One per cell, mode and weights; those without a timed process are left out."""
    groups: dict[object, list[TrialRecords]] = {}
    records: dict[str, CostRecord] = {}
    for one in read:
        if one.trial.kind == "cost" and one.trial.state == "done":
            key = one.trial.cell, one.trial.mode, one.trial.weights_of
            groups.setdefault(key, []).append(one)
            if one.cost is not None:
                records[one.trial.id] = one.cost
    steps_ms = process_steps_ms(records)
    for group in (part for trials in groups.values() for part in _measured_apart(trials)):
        timed = [one.trial for one in group if one.cost is not None]
        if not timed:
            continue
        costs = tuple(one.cost for one in group if one.cost is not None)
        process_ms = tuple(steps_ms[trial.id] for trial in timed)
        watched = {one.trial.watch: one for one in group}
        operators, layers = watched.get("operators"), watched.get("layers")
        yield Measurement(
            trial=timed[0],
            processes=tuple(trial.id for trial in timed),
            costs=costs,
            process_ms=process_ms,
            summary=summarise(costs, process_ms),
            operators=None if operators is None else operators.operators,
            layers=None if layers is None else layers.layers,
            memory=None if layers is None else layers.memory,
            limits=None if layers is None else layers.limits,
            probe_price=None if layers is None else layers.probe_price,
        )


def _measured_apart(trials: Sequence[TrialRecords]) -> Iterator[list[TrialRecords]]:
    """The trials of a cell, and apart from them those of its second measurement. Where every process of the
    first broke, the second stands for it: the cell is the same, and it took the same turns."""
    first = [one for one in trials if not one.trial.again]
    second = [one for one in trials if one.trial.again]
    if any(one.cost is not None for one in first):
        yield first
        yield second
    else:
        stand_in = {"again": False}
        yield first + [replace(o, trial=o.trial.model_copy(update=stand_in)) for o in second]
