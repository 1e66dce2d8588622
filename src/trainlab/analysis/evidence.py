"""Evidence: all records of a run, read once, arranged by cell. The only reader of run folders."""

import json
import math
import os
import statistics
from collections import Counter
from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, TypeVar

from pydantic import ValidationError

from trainlab.analysis.measurement import MODES, Measurement, process_steps_ms, summarise
from trainlab.errors import RecordError
from trainlab.record.cost_record import (
    CostRecord,
    LayersRecord,
    LimitsRecord,
    MemoryRecord,
    NetworkRecord,
    OperatorsRecord,
    ProbeCostRecord,
)
from trainlab.record.learning_record import ConfusionRecord, FiredRecord, ProbeRecord
from trainlab.record.run_folder import (
    CHANGED,
    Digests,
    RecordFile,
    RunFolder,
    TrialFolder,
    run_digests,
)
from trainlab.record.schema import Record, first_problem
from trainlab.record.script_record import DiagnosisRecord, WatchedRecord
from trainlab.record.study_record import UNKNOWN, Environment, StudyRecord
from trainlab.record.trial_record import TrialRecord
from trainlab.spec import Cell, Study, TrainSpec
from trainlab.spec.base import setting_of
from trainlab.spec.settings import Scalar

# The records of one trial, read and checked together: one that is damaged leaves the others readable.

UNFINISHED = ("pending", "running")
SHOWN_SETTINGS = (
    *("epochs", "batch_size", "optimizer", "lr", "precision", "device", "zero_grad", "model"),
)

R = TypeVar("R", bound=Record)
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
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
    read_confusion: Callable[[], ConfusionRecord | None] = lambda: None
    """Reads which classes it took for which; None where that was not recorded."""

    watched: WatchedRecord | None = None
    """What a script was seen to do; None where it was no script, or its process died."""

    def epoch_s(self) -> float | None:
        """The median training time of its epochs; None where none ended."""
        times_s = [float(line["train_s"]) for line in self.epochs]
        return statistics.median(times_s) if times_s else None

    def is_one_pass(self) -> bool:
        """Of a script: whether nothing told what a pass over its data is, so that all it did counts as one;
        its final values of training are means over the last updates."""
        is_untold = self.watched is not None and "passes" not in self.trial.resolved
        return is_untold and self.trial.epochs_done <= 1

    def value(self, metric: str) -> float:
        """A metric of the last epoch; NaN where the trial diverged or did not finish."""
        final = self.trial.final.get(metric)
        return math.nan if final is None or self.trial.state != "done" else float(final)


@dataclass(frozen=True)
class ProbedTrial:
    """One learn trial: the values of its probes in order, and which probes fired."""

    trial: TrialRecord
    lines: tuple[ProbeRecord, ...]
    rows: tuple[FiredRecord, ...]

    @cached_property
    def _series(self) -> dict[tuple[str, str], list[ProbeRecord]]:
        series: dict[tuple[str, str], list[ProbeRecord]] = {}
        for line in self.lines:
            series.setdefault((line.probe, line.target), []).append(line)
        return series

    def series(self, probe: str, target: str) -> Sequence[ProbeRecord]:
        """The values of one probe at one layer, in order."""
        return self._series.get((probe, target), [])

    def last(self, probe: str, target: str) -> ProbeRecord | None:
        """The value of the last period."""
        return next(reversed(self.series(probe, target)), None)


@dataclass(frozen=True)
class TrialRecords:
    """A trial and all that was recorded of it; None for what was not."""

    trial: TrialRecord
    learned: LearnedTrial | None = None
    """Of a learn trial, ended or not."""
    probed: ProbedTrial | None = None
    cost: CostRecord | None = None
    """This and the next: of a cost trial that is done."""
    operators: OperatorsRecord | None = None
    layers: LayersRecord | None = None
    memory: MemoryRecord | None = None
    limits: LimitsRecord | None = None
    probe_price: ProbeCostRecord | None = None


def read_trial(files: TrialFolder, *, of_script: bool = False) -> TrialRecords:
    """All records of a trial; RecordError names the first that is missing or damaged."""
    trial = files.read()
    if trial.id != files.path.name:
        raise RecordError(
            f"{files.trial_file}: id: got {trial.id!r}, must be its folder's name; {CHANGED}"
        )
    _check_settings(files, trial)
    if of_script:
        trial = _of_script(trial)
    files.check_files(trial)
    probed = probed_trial(files, trial)
    if trial.kind == "learn":
        return TrialRecords(trial, learned=_learned(files, trial), probed=probed)
    if trial.state != "done":
        return TrialRecords(trial, probed=probed)
    return TrialRecords(
        trial,
        probed=probed,
        cost=files.cost.read() if trial.watch == "steps" else None,
        operators=_read(files.operators),
        layers=_read(files.layers),
        memory=_read(files.memory),
        limits=_read(files.limits),
        probe_price=_read(files.probe_price),
    )


OF_SCRIPTS = tuple(
    name for name in TrainSpec.model_fields if setting_of(TrainSpec, name).is_of_scripts
)


def _of_script(trial: TrialRecord) -> TrialRecord:
    """With the settings alone that a script is given: it chooses the others itself, and what they were seen
    to be is in `resolved`."""
    given = {name: trial.settings[name] for name in OF_SCRIPTS if trial.settings.get(name)}
    if trial.settings.get("threads") is not None:
        given["threads"] = trial.settings["threads"]
    return trial.model_copy(update={"settings": given})


def _check_settings(files: TrialFolder, trial: TrialRecord) -> None:
    """RecordError where settings that tables show are missing, or hold what no setting can."""
    if lacking := [name for name in SHOWN_SETTINGS if name not in trial.settings]:
        raise RecordError(f"{files.trial_file}: settings: has no {lacking[0]}; {CHANGED}")
    try:
        # Strict, and as JSON, which has no tuples: they are used as they are.
        TrainSpec.model_validate_json(json.dumps(trial.settings), extra="ignore", strict=True)
    except ValidationError as error:
        raise RecordError(
            f"{files.trial_file}: settings: {first_problem(error)}; {CHANGED}"
        ) from None


def probed_trial(files: TrialFolder, trial: TrialRecord) -> ProbedTrial | None:
    """The values of its probes; None where it has none."""
    if not files.probes_file.exists():
        return None
    fired = _read(files.probes)
    return ProbedTrial(
        trial, tuple(files.probe_lines()), () if fired is None else tuple(fired.rows)
    )


def _learned(files: TrialFolder, trial: TrialRecord) -> LearnedTrial:
    if not trial.files:
        # No digest vouches for what is read later.
        files.curve()
        _read(files.network)
        _read(files.confusion)
    return LearnedTrial(
        trial,
        epochs=tuple(files.epochs()),
        read_steps=lambda: [line for line in files.curve() if line["kind"] == "step"],
        read_network=lambda: _read(files.network),
        read_confusion=lambda: _read(files.confusion),
        watched=_read(files.watched),
    )


def _read(file: RecordFile[R]) -> R | None:
    return file.read() if file.exists() else None


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """The items by their key, in the order in which keys first come."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


ENDED_WELL = ("done", "diverged")
"""Trials that ran to their end: a loss that diverged is a result, a failure is not."""


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


def level_of(cell: Cell, factor: str) -> Scalar | None:
    """The level of any factor in a cell, also where the cell does not change it. None where the setting is
    not known here: a newer trainlab may have recorded it."""
    outer, dot, inner = factor.partition(".")
    value: Any = getattr(cell.settings, outer, cell.levels.get(factor))
    inside = value.get(inner) if isinstance(value, Mapping) else None
    level: Scalar | None = cell.levels.get(factor, inside) if dot else value
    return cell.settings.start_lr if level is None and factor == "lr" else level


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


# What differs between two trials or two runs beyond the factor that was meant to.

COMPANY = frozenset({"trials_together"})
"""With how many others a trial ran as one program: it computes the same with any, and has its share of the
time."""
UPDATES, OF_SCRIPT = "updates", "script."
CALLED = {
    "accumulate": ("accum",),
    "batch_size": ("batch",),
    "device": ("device", "accel", "cuda", "cpu", "gpu"),
    "drop_last": ("drop",),
    "dtype": ("type", "precision", "amp", "half"),
    "lr": ("lr", "rate"),
    "model": ("model", "arch", "net"),
    "optimizer": ("opt",),
    "order": ("shuffle", "order", "sampler"),
    "passes": ("epoch", "pass"),
    "pinned": ("pin",),
    "threads": ("thread",),
    "train_samples": ("sample", "size", "data"),
    "workers": ("worker",),
}
"""What the arguments of scripts are called that set what is seen under these names."""
BREAKS_POOLING = ("torch", "numpy", "trainlab")
"""Packages whose version changes results: runs that differ in one are compared, never pooled."""


@dataclass(frozen=True)
class Confound:
    """Something that differs without being one of the factors compared."""

    what: str
    first: Scalar | None
    second: Scalar | None

    def __str__(self) -> str:
        first, second = ("not set" if v is None else v for v in (self.first, self.second))
        return f"{self.what}: {first} against {second}"


def trial_confounds(
    first: TrialRecord, second: TrialRecord, factors: frozenset[str]
) -> tuple[Confound, ...]:
    """Of two trials that should differ by these factors only."""
    varied = {factor.partition(".")[0] for factor in factors}
    expected = COMPANY.union(factors, *(setting_of(TrainSpec, name).resolves_to for name in varied))
    # What a setting became counts, where that is known: `auto` and `cpu` may be the same device.
    ignored = varied | expected | first.resolved.keys() | second.resolved.keys()
    seen = _differences(first.resolved, second.resolved, expected)
    return (
        *(one for one in seen if not _follows(one, first, second, factors)),
        *_differences(first.settings, second.settings, ignored),
        *_differences(_data(first), _data(second), expected),
    )


def _follows(
    confound: Confound, first: TrialRecord, second: TrialRecord, factors: frozenset[str]
) -> bool:
    """Whether what a script was seen to use is what its varied argument says, or follows from it: as many
    passes over the data are fewer updates of larger batches."""
    if confound.what == UPDATES:
        a, b = first.resolved, second.resolved
        return a.get("passes") != b.get("passes") or a.get("batch_size") != b.get("batch_size")
    seen = confound.first, confound.second
    for factor in factors:
        name = factor.removeprefix(OF_SCRIPT).casefold()
        is_about = any(hint in name for hint in CALLED.get(confound.what, ()))
        levels = first.levels.get(factor), second.levels.get(factor)
        if factor.startswith(OF_SCRIPT) and is_about and all(map(_is_level, levels, seen)):
            return True
    return False


def _is_level(level: Scalar | None, seen: Scalar | None) -> bool:
    """Whether it says what was seen, or may: None is an argument that was not given, whose default is not
    known; words and switches have no number to compare."""
    return level is None or isinstance(level, bool | str) or level == seen


def run_confounds(first: Environment, second: Environment) -> tuple[Confound, ...]:
    """Of the machines and software of two runs."""
    a, b = (_flat(environment.model_dump(mode="json")) for environment in (first, second))
    return tuple(_differences(a, b, {"format"}))


def pooling_problems(
    first: Environment, second: Environment, git_matters: bool = True
) -> tuple[str, ...]:
    """Why trials of two runs must not be put into one mean; empty where nothing speaks against it.

    `git_matters`: whether the code that ran may be that of the folder a run was started in.
    """
    problems = [
        f"{name} {first.packages.get(name)} against {second.packages.get(name)}"
        for name in BREAKS_POOLING
        if first.packages.get(name) != second.packages.get(name)
    ]
    if (first.cpu, first.gpus) != (second.cpu, second.gpus):
        problems.append(f"another machine: {first.cpu} against {second.cpu}")
    if git_matters and (code_a := _code(first)) != (code_b := _code(second)):
        problems.append(f"other code: {code_a} against {code_b}")
    return tuple(problems)


def _code(environment: Environment) -> str:
    """The git state of the folder a run was started in."""
    if environment.git_commit is None:
        return "not in git"
    changed = " with changes" if environment.git_dirty else ""
    return f"git commit {environment.git_commit[:10]}{changed}"


def _differences(
    first: Mapping[str, Any], second: Mapping[str, Any], expected: Set[str]
) -> list[Confound]:
    return [
        Confound(name, _scalar(first.get(name)), _scalar(second.get(name)))
        for name in dict.fromkeys([*first, *second])
        if name not in expected and first.get(name) != second.get(name)
    ]


def _data(trial: TrialRecord) -> dict[str, Any]:
    if trial.data is None:
        return {}
    facts = trial.data.model_dump(include={"name", "num_train", "num_test", "num_val", "is_subset"})
    return {f"data.{name}": value for name, value in facts.items()}


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        nested = isinstance(value, dict)
        flat |= {f"{name}.{inner}": v for inner, v in value.items()} if nested else {name: value}
    return flat


def _scalar(value: Any) -> Scalar | None:
    """A list or a table as text, so that confounds can be compared and hashed."""
    return value if value is None or isinstance(value, Scalar) else str(value)
