"""Evidence: all records of a run, read once, arranged by cell. The only reader of run folders."""

import math
import os
import statistics
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, partial
from typing import Any, TypeVar

from trainlab.analysis.measurement import MODES, Measurement, noises_of, process_steps_ms, summarise
from trainlab.errors import RecordError
from trainlab.record import cost_record as costs
from trainlab.record.learning_record import ConfusionRecord, FiredRecord, ProbeRecord
from trainlab.record.run_folder import CHANGED, RecordFile, RunFolder, TrialFolder
from trainlab.record.schema import Record
from trainlab.record.script_record import DiagnosisRecord, WatchedRecord
from trainlab.record.study_record import UNKNOWN, Environment, StudyRecord
from trainlab.record.trial_record import TrialRecord
from trainlab.spec import Cell, Study, TrainSpec
from trainlab.spec.base import setting_of
from trainlab.spec.settings import Scalar

UNFINISHED = ("pending", "running")
ENDED_WELL = ("done", "diverged")
"""Trials that ran to their end: a loss that diverged is a result, a failure is not."""

LOSS = "train/loss"
R = TypeVar("R", bound=Record)
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
Line = Mapping[str, Any]


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """The items by their key, in the order in which keys first come."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


@dataclass(frozen=True)
class TrialRecords:
    """A trial and what was recorded of it; what is large and needed by few is read when asked for."""

    trial: TrialRecord
    files: TrialFolder
    epochs: tuple[Line, ...] = ()
    """The curve's lines of kind `epoch`, in order."""
    watched: WatchedRecord | None = None
    """What a script was seen to do; None where it was no script, or its process died."""
    lines: tuple[ProbeRecord, ...] = ()
    """The values of its probes, in order."""
    rows: tuple[FiredRecord, ...] = ()
    """Which probes fired."""
    cost: costs.CostRecord | None = None
    """This and the next: of a cost trial that is done; None for what was not recorded."""
    operators: costs.OperatorsRecord | None = None
    layers: costs.LayersRecord | None = None
    memory: costs.MemoryRecord | None = None
    limits: costs.LimitsRecord | None = None
    probe_price: costs.ProbeCostRecord | None = None

    def read_network(self) -> costs.NetworkRecord | None:
        """The calls of its model; None where they were not recorded."""
        return _read(self.files.network)

    def read_confusion(self) -> ConfusionRecord | None:
        """Which classes it took for which; None where that was not recorded."""
        return _read(self.files.confusion)

    def epoch_s(self) -> float | None:
        """The median training time of its epochs; of Keras without the first, which compiles."""
        times_s = [float(line["train_s"]) for line in self.epochs]
        if self.watched is not None and self.watched.framework:
            times_s = times_s[1:] or times_s
        return statistics.median(times_s) if times_s else None

    def has_epochs(self) -> bool:
        """Of a script only where a loader gives them."""
        return self.watched is None or bool(
            self.trial.resolved.get("passes") and self.trial.epochs_done
        )

    def is_one_pass(self) -> bool:
        """Of a script: whether nothing told what a pass over its data is, so that all it did counts as one,
        or it did not finish one; its final values of training are means over the last updates."""
        num_told = 1 if "passes" not in self.trial.resolved else 0
        return self.watched is not None and self.trial.epochs_done <= num_told

    def value(self, metric: str) -> float:
        """A metric of the last epoch; NaN where it was not finite, or the trial diverged or failed."""
        final = self.trial.final.get(metric)
        return math.nan if final is None or self.trial.state != "done" else float(final)

    @cached_property
    def _series(self) -> dict[tuple[str, str], list[ProbeRecord]]:
        return grouped(self.lines, lambda line: (line.probe, line.target))

    def series(self, probe: str, target: str) -> Sequence[ProbeRecord]:
        """The values of one probe at one layer, in order."""
        return self._series.get((probe, target), [])

    def last(self, probe: str, target: str) -> ProbeRecord | None:
        """The value of the last period."""
        return next(reversed(self.series(probe, target)), None)


OF_SCRIPTS = (
    *(name for name in TrainSpec.model_fields if setting_of(TrainSpec, name).is_of_scripts),
    "threads",
)
"""The settings that a script is given; all others it chooses itself, and `resolved` has them."""


def read_trial(files: TrialFolder, *, of_script: bool) -> TrialRecords:
    """All records of a trial; RecordError names the first that is missing or damaged."""
    trial = files.read()
    if trial.state == "diverged" and trial.diverged_at_step is None:
        # Of an earlier version, where its test loss alone was not finite.
        trial = trial.model_copy(update={"state": "done"})
    if of_script:
        given = {name: trial.settings[name] for name in OF_SCRIPTS if trial.settings.get(name)}
        trial = trial.model_copy(update={"settings": given})
    files.check_files(trial)
    fired = _read(files.probes)
    recorded: dict[str, Any] = {
        "lines": tuple(files.probe_lines()),
        "rows": tuple(fired.rows) if fired else (),
    }
    if trial.kind != "cost":
        if not trial.files:
            # No digest vouches for what is read later.
            _ = files.curve(), _read(files.network), _read(files.confusion)
        recorded |= {"epochs": tuple(files.epochs()), "watched": _read(files.watched)}
    elif trial.state == "done":
        names = ("operators", "layers", "memory", "limits", "probe_price")
        recorded |= {name: _read(getattr(files, name)) for name in names}
        recorded["cost"] = files.cost.read() if trial.watch == "steps" else None
    return TrialRecords(trial, files, **recorded)


def _read(file: RecordFile[R]) -> R | None:
    return file.read() if file.exists() else None


@dataclass(frozen=True)
class Damage:
    """What is left out: a file that is damaged, or times of another machine."""

    trial: str | None
    """The trial's id; None for a machine's record."""
    reason: str
    """An error line, which names the file."""


@dataclass(frozen=True)
class Evidence:
    """All records of a run so far."""

    folder: RunFolder
    """Of several runs that are pooled, that of the first."""
    record: StudyRecord
    study: Study
    environments: Mapping[str, Environment]
    """The machines it ran on, by the names that trials refer to."""
    trials: tuple[TrialRecord, ...]
    learned: Mapping[str, Mapping[int, TrialRecords]]
    """Learn trials that ended in any way, by cell and then by seed."""
    tried: tuple[TrialRecords, ...] = field(default=(), kw_only=True)
    """Trials of a search that have ended, in the order in which they were planned."""
    measured: tuple[Measurement, ...]
    """One per cell, mode and weights, the second of an A/A pair included."""
    probed: tuple[TrialRecords, ...] = ()
    """Trials with probes."""
    begun: Mapping[str, TrialRecords] = field(default_factory=dict)
    """Learn trials that have begun and not ended, by id: what is recorded so far."""
    is_running: bool = False
    """Whether somebody runs it now; only who looks at its lease knows."""
    damaged: tuple[Damage, ...] = ()
    """What is left out, and why."""
    diagnosis: DiagnosisRecord | None = None
    """What limits the script, where the run was made to find that out."""

    @property
    def path(self) -> str:
        """The run folder as it was named."""
        return str(self.folder.path)

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def num_damaged(self) -> int:
        """Trials that are left out."""
        return sum(damage.trial is not None for damage in self.damaged)

    @property
    def environment(self) -> Environment:
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
        finals = (one.trial.final for one in self.all_learned)
        return tuple(dict.fromkeys(name for final in finals for name in final if "/" in name))

    @property
    def all_learned(self) -> list[TrialRecords]:
        """Learn trials that ended in any way, cell by cell."""
        return [one for seeds in self.learned.values() for one in seeds.values()]

    def values(self, cell: str, metric: str) -> dict[int, float]:
        """By seed, of trials that ended well and repeat no other; NaN where it was not finite."""
        repeats = self.repeats.get(cell, frozenset())
        return {
            seed: learned.value(metric)
            for seed, learned in self.learned.get(cell, {}).items()
            if learned.trial.state in ENDED_WELL and seed not in repeats
        }

    @cached_property
    def repeats(self) -> Mapping[str, Set[int]]:
        """By cell, seeds with which a script computed just what it did with another: no sample."""
        found: dict[str, Set[int]] = {}
        for cell, by_seed in self.learned.items():
            did = {
                seed: (*one.watched.losses, repr(sorted(one.trial.final.items())))
                for seed, one in sorted(by_seed.items())
                if one.watched is not None and one.watched.num_steps and one.trial.state == "done"
            }
            firsts = {what: seed for seed, what in reversed(did.items())}
            if repeated := did.keys() - {*firsts.values()}:
                found[cell] = repeated
        return found

    def level_that_ran(self, cell: Cell, factor: str) -> Scalar | None:
        """The level of a factor in a cell as its trials had it: a batch is no larger than the data."""
        asked = level_of(cell, factor)
        if factor != "batch_size" or cell.settings.accumulate > 1:
            return asked  # what was resolved with `accumulate` is that of an update, of several batches
        of_cell = (one.resolved for one in self.trials if one.cell == cell.id and one.resolved)
        ran: Scalar | None = next(of_cell, {}).get(factor)
        return asked if ran is None else ran

    def finite_values(self, cell: str, metric: str) -> list[float]:
        """A metric of the last epoch of the trials that did not diverge."""
        return [value for value in self.values(cell, metric).values() if math.isfinite(value)]

    def num_not_finite(self, cell: str, metric: str) -> int:
        """Trials of a cell that trained to their end with a metric that was not finite. What a script calls
        `backward` on may be no number at all: there one that was finite before counts."""
        done = (one for one in self.learned.get(cell, {}).values() if one.trial.state == "done")
        return sum(
            one.trial.final.get(metric, 0.0) is None
            and (metric != LOSS or one.watched is None or {*one.watched.losses} != {None})
            for one in done
        )

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
    """The level of any factor in a cell, also where that does not change it; None if unknown."""
    outer, dot, inner = factor.partition(".")
    value: Any = getattr(cell.settings, outer, cell.levels.get(factor))
    inside = value.get(inner) if isinstance(value, Mapping) else None
    level: Scalar | None = cell.levels.get(factor, inside) if dot else value
    return cell.settings.start_lr if level is None and factor == "lr" else level


def gather(folder: RunFolder) -> Evidence:
    """Reads a run; RecordError where the folder is not a run of trainlab, or nothing in it is sound."""
    record = folder.study()
    study = record.to_study(str(folder.study_file))
    cell_order = {cell.id: number for number, cell in enumerate(study.all_cells)}
    damaged: list[Damage] = []

    def sound(trial: str | None, read: Callable[[], T]) -> T | None:
        """What a reader gives; None where it is damaged. Reasons have paths within the run folder."""
        try:
            return read()
        except RecordError as error:
            damaged.append(Damage(trial, str(error).removeprefix(f"{folder.path}{os.sep}")))
            return None

    def read_one(trial_id: str) -> TrialRecords:
        one = read_trial(folder.trial(trial_id), of_script=study.script is not None)
        if (cell := one.trial.cell) not in cell_order and one.trial.kind != "try":
            lacking = f"study.cells: has no {cell}, of which {trial_id} is; {CHANGED}"
            raise RecordError(f"{folder.study_file}: {lacking}")
        return one

    read = [one for name in record.trials if (one := sound(name, partial(read_one, name)))]
    machines = {
        name: machine
        for name, file in folder.environment_files().items()
        if (machine := sound(None, file.read))
    }
    diagnosis = sound(None, partial(_read, folder.diagnosis))
    elsewhere = _elsewhere(read, machines)
    damaged += elsewhere.values()
    read = [one for one in read if one.trial.id not in elsewhere]
    if not read and damaged:
        raise RecordError(f"{folder.path}: no trial is sound: {damaged[0].reason}")
    learned: dict[str, dict[int, TrialRecords]] = {}
    for one in read:
        if one.trial.kind == "learn" and one.trial.state not in UNFINISHED:
            learned.setdefault(one.trial.cell, {})[one.trial.seed] = one

    def position(m: Measurement) -> tuple[int, int, bool, bool]:
        """Cells in the order asked, training before inference, an A/A pair in its own order."""
        mode = MODES.index(m.summary.mode)
        return cell_order[m.trial.cell], mode, m.is_trained, m.trial.again

    return Evidence(
        folder=folder,
        record=record,
        study=study,
        environments=machines,
        trials=tuple(one.trial for one in read),
        learned=learned,
        tried=tuple(
            one for one in read if one.trial.kind == "try" and one.trial.state not in UNFINISHED
        ),
        measured=tuple(sorted(_measurements(read), key=position)),
        probed=tuple(one for one in read if one.lines or one.rows),
        begun={
            one.trial.id: one
            for one in read
            if (one.trial.kind, one.trial.state) == ("learn", "running")
        },
        damaged=tuple(damaged),
        diagnosis=diagnosis,
    )


def _elsewhere(
    read: Iterable[TrialRecords], machines: Mapping[str, Environment]
) -> dict[str, Damage]:
    """Cost trials that another machine has measured than most, by id: times of two are not compared. A
    cluster may give what a lost node has left to another one."""
    done = (one.trial for one in read if (one.trial.kind, one.trial.state) == ("cost", "done"))
    known = ((trial.id, machines.get(trial.environment or "")) for trial in done)
    hosts = {trial: machine.host for trial, machine in known if machine is not None}
    most = next((host for host, _ in Counter(hosts.values()).most_common(1)), "")
    return {
        trial: Damage(trial, f"{trial}: measured on {host}, most others on {most}")
        for trial, host in hosts.items()
        if host != most
    }


def _measurements(read: Iterable[TrialRecords]) -> Iterator[Measurement]:
    """One per cell, mode and weights, and the second of an A/A pair; none without a timed process."""
    done = [one for one in read if one.trial.kind == "cost" and one.trial.state == "done"]
    steps_ms = process_steps_ms({one.trial.id: one.cost for one in done if one.cost is not None})
    measured = grouped(
        done, lambda o: (o.trial.cell, o.trial.mode, o.trial.weights_of, o.trial.again)
    )
    timed_of = [{o.trial.id: o.cost for o in group if o.cost} for group in measured.values()]
    noises, best = noises_of(timed_of, steps_ms), _best_limits(done)
    for group, timed in zip(measured.values(), timed_of, strict=True):
        if not timed:
            continue
        watched = {one.trial.watch: one for one in group}
        layers = watched.get("layers", group[0])
        process_ms = tuple(steps_ms[trial] for trial in timed)
        yield Measurement(
            trial=next(one.trial for one in group if one.cost is not None),
            processes=tuple(timed),
            costs=tuple(timed.values()),
            process_ms=process_ms,
            summary=summarise([*timed.values()], process_ms, noises.get(min(timed))),
            operators=watched.get("operators", group[0]).operators,
            layers=layers.layers,
            memory=layers.memory,
            limits=best.get(layers.trial.id),
            probe_price=layers.probe_price,
        )


def _best_limits(read: Iterable[TrialRecords]) -> dict[str, costs.LimitsRecord]:
    """By trial, the best of each peak seen with its device and threads; busy where all processes were."""
    known = [(one.trial.id, one.limits) for one in read if one.limits is not None]
    best: dict[str, costs.LimitsRecord] = {}
    for same in grouped(known, lambda one: (one[1].device_name, one[1].threads)).values():
        quietest = min((one for _, one in same), key=lambda one: one.busy)
        flops = {n: max(o.flops_per_s.get(n, 0.0) for _, o in same) for n in quietest.flops_per_s}
        peaks = {"flops_per_s": flops, "bytes_per_s": max(one.bytes_per_s for _, one in same)}
        best |= dict.fromkeys(dict(same), quietest.model_copy(update=peaks))
    return best


# What differs between two trials or two runs beyond the factor that was meant to.

COMPANY = frozenset({"trials_together"})
"""With how many others a trial ran as one program: it computes the same with any."""
CALLED = {
    "accumulate": ("accum",),
    "batch_size": ("batch",),
    "device": ("device", "accel", "cuda", "cpu", "gpu"),
    "drop_last": ("drop",),
    "dtype": ("type", "precision", "amp", "half"),
    "first_dimension": ("batch",),
    "framework": ("backend", "framework"),
    "lr": ("lr", "rate"),
    "lr_varies": ("lr", "rate", "sched", "warm"),
    "model": ("model", "arch", "net"),
    "optimizer": ("opt",),
    "order": ("shuffle", "order", "sampler"),
    "passes": ("epoch", "pass"),
    "pinned": ("pin",),
    "threads": ("thread", "backend", "framework"),
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
    facts = {"name", "num_train", "num_test", "num_val", "is_subset"}
    data_a, data_b = (
        {} if one.data is None else one.data.model_dump(include=facts) for one in (first, second)
    )
    return (
        *(one for one in seen if not _follows(one, first, second, factors)),
        *_differences(first.settings, second.settings, ignored),
        *_differences(data_a, data_b, expected, "data."),
    )


def _follows(
    confound: Confound, first: TrialRecord, second: TrialRecord, factors: frozenset[str]
) -> bool:
    """Whether what a script was seen to use is what its varied argument says, or follows from it: as many
    passes over the data are fewer updates of larger batches."""
    if confound.what == "updates":
        a, b = first.resolved, second.resolved
        return any(a.get(cause) != b.get(cause) for cause in ("passes", "batch_size"))
    for factor in factors:
        owner, _, name = factor.casefold().partition(".")
        if owner == "script" and any(hint in name for hint in CALLED.get(confound.what, ())):
            pairs = (
                (first.levels.get(factor), confound.first),
                (second.levels.get(factor), confound.second),
            )
            # The default of an argument that was not given is not known; words and switches have no number.
            if all(level in (None, seen) or isinstance(level, bool | str) for level, seen in pairs):
                return True
    return False


def run_confounds(first: Environment, second: Environment) -> tuple[Confound, ...]:
    """Of the machines and software of two runs; what is in a table of them as `packages.torch`."""
    flat_a, flat_b = (
        {
            f"{name}.{key}".rstrip("."): inner
            for name, value in environment.model_dump(mode="json").items()
            for key, inner in (value if isinstance(value, dict) else {"": value}).items()
        }
        for environment in (first, second)
    )
    return tuple(_differences(flat_a, flat_b, {"format"}))


def pooling_problems(
    first: Environment, second: Environment, git_matters: bool = True
) -> tuple[str, ...]:
    """Why trials of two runs must not be put into one mean; `git_matters`: if the folder's code ran."""
    versions = [
        (name, first.packages.get(name), second.packages.get(name)) for name in BREAKS_POOLING
    ]
    problems = [f"{name} {a} against {b}" for name, a, b in versions if a != b]
    if (first.cpu, first.gpus) != (second.cpu, second.gpus):
        problems.append(f"another machine: {first.cpu} against {second.cpu}")
    code_a, code_b = (
        "not in git"
        if one.git_commit is None
        else f"git commit {one.git_commit[:10]}{' with changes' if one.git_dirty else ''}"
        for one in (first, second)
    )
    if git_matters and code_a != code_b:
        problems.append(f"other code: {code_a} against {code_b}")
    return tuple(problems)


def _differences(
    first: Mapping[str, Any], second: Mapping[str, Any], expected: Set[str], prefix: str = ""
) -> list[Confound]:
    """Lists and tables as text, so that confounds can be compared and hashed."""

    def scalar(value: Any) -> Scalar | None:
        return value if value is None or isinstance(value, Scalar) else str(value)

    return [
        Confound(prefix + name, scalar(first.get(name)), scalar(second.get(name)))
        for name in dict.fromkeys([*first, *second])
        if prefix + name not in expected and first.get(name) != second.get(name)
    ]


def busy_s(trials: Iterable[TrialRecord]) -> float:
    """How long at least one of the trials ran; those of a bench run at the same time."""
    spans = sorted(
        tuple(datetime.fromisoformat(moment).timestamp() for moment in (one.started, one.ended))
        for one in trials
        if one.started and one.ended
    )
    total_s, latest = 0.0, -math.inf
    for start, end in spans:
        total_s += max(0.0, end - max(start, latest))
        latest = max(latest, end)
    return total_s
