"""The run folder: every file name of a run, how its files are written, read and proven unchanged."""

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from trainlab.errors import RecordError
from trainlab.record import cost_record as cost
from trainlab.record import learning_record as learning
from trainlab.record.files import (
    COPY_AGAIN,
    SEAL,
    WAS_CHANGED,
    make_folder,
    numbered_lines,
    read_bytes,
    read_json,
    sha256_of,
    sync,
    write_json,
    writing,
)
from trainlab.record.schema import FORMAT, Record, first_problem, migrated
from trainlab.record.script_record import DiagnosisRecord, WatchedRecord
from trainlab.record.study_record import Environment, StudyRecord
from trainlab.record.trial_record import PLANNED, TrialRecord
from trainlab.spec.base import did_you_mean

R = TypeVar("R", bound=Record)

CHANGED = "the file was changed by hand?"


@dataclass(frozen=True)
class RecordFile(Generic[R]):
    """One JSON file of a trial that holds one record."""

    path: Path
    kind: type[R]

    def write(self, record: R) -> None:
        """Writes it whole, or not at all."""
        write_json(self.path, record.model_dump(mode="json"))

    def read(self) -> R:
        """RecordError where it is missing or not one of ours."""
        return read_record(self.path, self.kind)

    def exists(self) -> bool:
        return self.path.exists()


def read_record(path: Path, kind: type[R]) -> R:
    """A record of this or an older version; RecordError where it is missing or none of ours."""
    value = read_json(path)
    number = value.get("format")
    if not isinstance(number, int) or number < 1:
        got = "has no format number" if number is None else f"format: got {number!r}"
        raise RecordError(f"{path}: {got}, must have one from 1 to {FORMAT}; {CHANGED}")
    if number > FORMAT:
        raise RecordError(f"{path}: format {number}, this trainlab reads up to {FORMAT}; update it")
    try:
        return kind.model_validate(migrated(path.name, value))
    except ValidationError as error:
        raise RecordError(f"{path}: {first_problem(error)}; {CHANGED}") from None


def checked_lines(
    path: Path, kind: type[R], holding: str = ""
) -> Iterator[tuple[dict[str, Any], R]]:
    """The lines as they are and as records; none where there is no file."""
    for number, line in numbered_lines(path, holding) if path.exists() else ():
        try:
            yield line, kind.model_validate(line)
        except ValidationError as error:
            problem = first_problem(error)
            raise RecordError(f"{path}: line {number}: {problem}; {CHANGED}") from None


class TrialFolder:
    """The records of one trial."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.trial_file = path / "trial.json"
        self.curve_file = path / "curve.jsonl"
        self.network = RecordFile(path / "network.json", cost.NetworkRecord)
        self.confusion = RecordFile(path / "confusion.json", learning.ConfusionRecord)
        self.cost = RecordFile(path / "cost.json", cost.CostRecord)
        self.operators = RecordFile(path / "operators.json", cost.OperatorsRecord)
        self.layers = RecordFile(path / "layers.json", cost.LayersRecord)
        self.memory = RecordFile(path / "memory.json", cost.MemoryRecord)
        self.limits = RecordFile(path / "limits.json", cost.LimitsRecord)
        self.probe_price = RecordFile(path / "probe_price.json", cost.ProbeCostRecord)
        self.probes = RecordFile(path / "probes.json", learning.ProbesRecord)
        self.watched = RecordFile(path / "watched.json", WatchedRecord)
        self.answers_pipe = path / ".answers"
        self.output_file = path / "output.txt"
        self.work_folder = path / "work"
        self.probes_file = path / "probes.jsonl"
        self.trace_file = path / "trace.json.gz"
        self.tensorboard_folder = path / "tensorboard"
        self.checkpoint_folder = path / "checkpoint"
        self.model_file = self.checkpoint_folder / "model.pt"
        self.resume_folder = path / "resume"
        self.attempts_folder = path / "attempts"

    def write(self, record: TrialRecord, *, synced: bool = True) -> None:
        """Writes trial.json; RecordError where another attempt has taken the trial over meanwhile."""
        make_folder(self.path)
        self.check_current(record.token)
        write_json(self.trial_file, record.model_dump(mode="json"), synced=synced)

    def check_current(self, token: str | None) -> None:
        """RecordError where the last attempt at the trial, as it is recorded, has another token."""
        try:
            is_current = self.read().token == token
        except RecordError:
            return  # not written yet, or damaged: nobody else's
        if not is_current:
            raise RecordError(
                f"{self.trial_file}: another attempt runs this trial now; this one is given up"
            )

    def read(self) -> TrialRecord:
        return read_record(self.trial_file, TrialRecord)

    def end(self, record: TrialRecord) -> None:
        """Writes trial.json for the last time. The other records are on the disk before it says that the
        trial has ended, and it holds their digests."""
        records = [path for path in self.readers() if path.exists()]
        for path in records:
            with suppress(OSError):  # what a failing disk loses is noticed by its digest
                sync(path)
        files = {path.name: sha256_of(path) for path in records}
        self.write(record.model_copy(update={"files": files}))
        with suppress(OSError):  # not every file system can
            sync(self.path)

    def check_files(self, record: TrialRecord) -> None:
        """RecordError where a record is missing or not as it was when the trial ended."""
        for name, digest in record.files.items():
            path = self.path / Path(name).name
            if sha256_of(path) != digest:
                raise RecordError(f"{path}: {WAS_CHANGED}; {COPY_AGAIN}")

    def begin_attempt(self, **changes: Any) -> TrialRecord:
        """Writes trial.json with the next attempt counted; what an earlier one left is set aside."""
        record = self.read()
        if record.attempt:
            aside = self.set_aside(record.attempt)
            make_folder(aside.path)
            with writing(aside.path):
                for path in self.path.iterdir():
                    if path.suffix == ".part":  # half-written: nobody's record
                        path.unlink()
                    elif path not in (self.trial_file, self.attempts_folder, self.resume_folder):
                        path.rename(aside.path / path.name)
            write_json(aside.trial_file, record.model_dump(mode="json"))
        planned = record.model_dump(include=record.model_fields_set & PLANNED)
        begun = TrialRecord(**planned, attempt=record.attempt + 1).model_copy(update=changes)
        write_json(self.trial_file, begun.model_dump(mode="json"))
        return begun

    def set_aside(self, attempt: int) -> "TrialFolder":
        """Where an earlier attempt's files are once another has begun."""
        return TrialFolder(self.attempts_folder / str(attempt))

    def readers(self) -> dict[Path, Callable[[], object]]:
        """Every record of a trial beside trial.json, and what reads and checks it."""
        files = [file for file in vars(self).values() if isinstance(file, RecordFile)]
        read: dict[Path, Callable[[], object]] = {file.path: file.read for file in files}
        return read | {self.curve_file: self.curve, self.probes_file: self.probe_lines}

    def curve(self) -> list[dict[str, Any]]:
        """The points of the curve so far, oldest first."""
        return [line for line, _ in checked_lines(self.curve_file, learning.CurveLine)]

    def epochs(self) -> list[dict[str, Any]]:
        """The points of kind `epoch` alone: few of many, and the others are never parsed."""
        return [line for line, _ in checked_lines(self.curve_file, learning.EpochLine, '"epoch",')]

    def probe_lines(self) -> list[learning.ProbeRecord]:
        """The values of the probes so far, oldest first."""
        return [record for _, record in checked_lines(self.probes_file, learning.ProbeRecord)]


class RunFolder:
    """The records of one execution of a study."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.study_file = path / "study.json"
        self.environments_folder = path / "environments"
        self.events_folder = path / "events"
        self.drivers_folder = path / "drivers"
        self.logs_folder = path / "logs"
        self.trials_folder = path / "trials"
        self.shares_folder = path / "shares"
        self.results_csv = path / "results.csv"
        self.results_parquet = path / "results.parquet"
        self.epochs_csv = path / "epochs.csv"
        self.probes_csv = path / "probes.csv"
        self.report_folder = path / "report"
        self.export_folder = path / "export"
        self.diagnosis = RecordFile(path / "diagnosis.json", DiagnosisRecord)

    def trial(self, trial_id: str) -> TrialFolder:
        return TrialFolder(self.trials_folder / trial_id)

    def trial_record(self, trial_id: str) -> RecordFile[TrialRecord]:
        """Its trial.json alone: of thousands of trials, the paths of all files take as long to make."""
        return RecordFile(self.trials_folder / trial_id / "trial.json", TrialRecord)

    def log_file(self, trial_id: str) -> Path:
        """What the process that ran a trial printed, and others with it whose first it was."""
        return self.logs_folder / f"{trial_id}.log"

    def write_study(self, record: StudyRecord) -> None:
        write_json(self.study_file, record.model_dump(mode="json"))

    def study(self) -> StudyRecord:
        if not self.study_file.exists():
            raise RecordError(f"{self.study_file}: no such file; is this a run folder?")
        return read_record(self.study_file, StudyRecord)

    def trials(self) -> list[TrialRecord]:
        return [self.trial(trial_id).read() for trial_id in self.study().trials]

    def write_environment(self, record: Environment) -> str:
        """Records a machine, once however often it is written; returns the name trials refer to it by."""
        content = record.model_dump(mode="json")
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]
        name = f"{re.sub(r'[^A-Za-z0-9.-]', '_', record.host) or 'host'}-{digest}"
        make_folder(self.environments_folder)
        write_json(self.machine(name).path, content)
        return name

    def machine(self, name: str) -> RecordFile[Environment]:
        """One that trials refer to by this name."""
        return RecordFile(self.environments_folder / f"{name}.json", Environment)

    def environment_files(self) -> dict[str, RecordFile[Environment]]:
        """The machines of the run by name. In format 1 there was one, without a name."""
        files = sorted(self.environments_folder.glob("*.json"))
        files = files or list(self.path.glob("environment.json"))
        return {path.stem: RecordFile(path, Environment) for path in files}

    def file_names(self) -> frozenset[str]:
        """The names of all files and folders there are: the run's own, and those of any trial."""
        paths = [*self.path.glob("*"), *self.trials_folder.glob("*/*")]
        return frozenset(path.name for path in paths)


RUNS = Path("runs")
"""Where run folders are made unless told otherwise."""


def create_run(out: Path | None, name: str, now: datetime) -> RunFolder:
    """A new run folder: `out`, or `runs/<name>-<time>`. Never one that another run has."""
    stem = out or RUNS / f"{name}-{now.strftime('%Y-%m-%dT%H-%M-%S')}"
    if out is not None:
        check_unused(out)
    for count in itertools.count(1):
        path = stem if count == 1 else stem.with_name(f"{stem.name}-{count}")
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
            # Of those who try at once, it fails for all but one.
            with suppress(FileExistsError):
                RunFolder(path).trials_folder.mkdir()
                break
        if out is not None:
            raise RecordError(f"{path}: another run has just taken it; choose another --out")
    return RunFolder(path)


def check_unused(path: Path) -> None:
    """RecordError where no run folder can be made at a path; writes nothing."""
    run, rule = RunFolder(path), "is not empty; choose another --out, or remove it"
    with suppress(RecordError):
        if run.study_file.is_file() and not all(trial.is_finished for trial in run.trials()):
            remedy = f"go on with it by `trainlab resume {path}`, or choose another --out"
            rule = f"holds a run that is not finished; {remedy}"
    with writing(path):
        if path.is_dir() and any(path.iterdir()):
            raise RecordError(f"{path}: {rule}")
        above = next(p for p in (path, *path.absolute().parents) if p.exists())
    if not above.is_dir():
        raise RecordError(f"{path}: cannot be written: {above} is a file; choose another --out")


def check_run(path: Path) -> None:
    """RecordError where a path is no run folder; names one where that is near."""
    if RunFolder(path).study_file.is_file():
        return
    if not path.exists():
        names = {str(path.parent / p.name): p for p in _runs_in(path.parent)}
        near = did_you_mean(str(path), names)
        raise RecordError(f"{path}: no such folder{near or '; name a run folder, as in runs/…'}")
    if not path.is_dir():
        raise RecordError(f"{path}: is a file; name the run folder that it is in")
    around = [above for above in path.parents if RunFolder(above).study_file.is_file()]
    inside = around[:1] or _runs_in(path)
    meant = "name one that `trainlab run` has made, as in runs/…"
    if inside:
        several = f"it holds {len(inside)}; name one of them, as {inside[-1]}"
        meant = several if len(inside) > 1 else f"did you mean {inside[0]}?"
    raise RecordError(f"{path}: is no run folder: it has no study.json; {meant}")


def _runs_in(folder: Path) -> list[Path]:
    return sorted(study.parent for study in folder.glob("*/study.json") if study.is_file())


@dataclass(frozen=True)
class Verification:
    """Whether the records of a run are as they were written."""

    num_files: int
    num_unproven: int
    """Readable, but without a digest: an earlier version wrote them, or their trial has not ended."""
    damaged: tuple[str, ...]
    """A line for each file that is missing, not readable or not as it was written."""


def verify(run: RunFolder) -> Verification:
    """Reads every record of a run that reports are written from."""
    machines, digests = run.environment_files(), dict[Path, str]()
    readers: dict[Path, Callable[[], object]] = {run.study_file: run.study}
    trials = {path.name for path in run.trials_folder.glob("*") if path.is_dir()}
    with suppress(RecordError):
        trials |= set(run.study().trials)
    for files in map(run.trial, sorted(trials)):
        readers[files.trial_file] = files.read
        with suppress(RecordError):
            record = files.read()
            digests |= {files.path / name: digest for name, digest in record.files.items()}
            if record.environment is not None:
                machines.setdefault(record.environment, run.machine(record.environment))
        others = files.readers().items()
        readers |= {path: read for path, read in others if path in digests or path.exists()}
    readers |= {machine.path: machine.read for machine in machines.values()}
    num_unproven, damaged = 0, list[str]()
    for path, read in readers.items():
        try:
            content = read_bytes(path)
            if path in digests and hashlib.sha256(content).hexdigest() != digests[path]:
                raise RecordError(f"{path}: {WAS_CHANGED}; {COPY_AGAIN}")
            read()
        except RecordError as error:
            damaged.append(str(error))
        else:
            num_unproven += path not in digests and not SEAL.search(content)
    return Verification(len(readers), num_unproven, tuple(damaged))


COMMAND = r"""cd RUN
find study.json environment* trials -maxdepth 2 \( -name '*.json' -o -name '*.jsonl' \) -print0 \
  | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum"""
"""Gives the digest of all records, without trainlab."""


@dataclass(frozen=True)
class Digests:
    """What the records of a run are, in a few characters; any change of a record changes them."""

    all: str
    """Of everything that reports are written from."""
    parts: Mapping[str, str]
    """Of `study.json`, of the machines and of each trial, by their paths in the run folder."""
    num_files: int


def run_digests(run: RunFolder) -> Digests:
    """Reads every raw record of a run. A digest of several files is that of the lines that `sha256sum`
    writes of them, in the order of their names' bytes."""
    paths = [run.study_file, *run.path.glob("environment.json")]
    paths += run.environments_folder.glob("*.json")
    paths += [p for p in run.trials_folder.glob("*/*") if p.suffix in (".json", ".jsonl")]
    names = sorted((path.relative_to(run.path).as_posix() for path in paths), key=str.encode)
    files = {name: sha256_of(run.path / name) for name in names}
    lines: dict[str, str] = {}
    for name, digest in files.items():
        # `trials/<id>` for a file of a trial, and the file itself for others.
        part = "/".join(name.split("/")[:2])
        lines[part] = lines.get(part, "") + f"{digest}  {name}\n"
    digests = {p: files.get(p) or _sha256(text) for p, text in sorted(lines.items())}
    return Digests(all=_sha256("".join(lines.values())), parts=digests, num_files=len(files))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
