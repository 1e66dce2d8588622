"""study.json, environments/*.json and events/*.jsonl: what was asked, on which machines, how far it got."""

from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from trainlab.errors import RecordError
from trainlab.record.schema import FileRecord, Record, TrialId, first_problem
from trainlab.spec import Study


class GroupRecord(Record):
    """Trials that one worker runs, as planned."""

    trials: tuple[TrialId, ...]
    is_alone: bool
    """Nothing else may run on the machine meanwhile."""
    bench: str | None = None
    """Groups of one bench take turns."""


class JobsRecord(Record):
    """How many learn trials run side by side; the threads of each, None: torch's choice."""

    number: int
    threads: int | None


class StudyRecord(FileRecord):
    """What was asked and how it was resolved."""

    name: str
    created: str
    trainlab: str
    command: str
    study: dict[str, Any]
    on: str = "local"
    """The executor, as asked."""
    jobs: int | Literal["auto"] = "auto"
    """Learn trials side by side, as asked."""
    side_by_side: JobsRecord | None = None
    """What the jobs became; None before the first learn trial."""
    trial_timeout_s: float | None = None
    """How long a trial may take, as asked."""
    workload_digest: str | None = None
    """SHA-256 of the user's own workload file as it was when the run began; None for other workloads."""
    overridden: dict[str, Any] = {}
    """What the study's file says of settings and factors that were asked for otherwise."""
    groups: tuple[GroupRecord, ...]
    """In the order planned."""

    @property
    def trials(self) -> tuple[str, ...]:
        return tuple(trial for group in self.groups for trial in group.trials)

    def to_study(self, where: str) -> Study:
        """The study as a value; a setting that this version does not know is left out."""
        try:
            return Study.model_validate(self.study, extra="ignore")
        except ValidationError as error:
            raise RecordError(
                f"{where}: study: {first_problem(error)}; written by another trainlab?"
            ) from None


class Gpu(Record):
    """One GPU as the driver names it."""

    name: str
    memory_gib: float | None = None
    power_limit_w: float | None = None
    sm_clock_max_mhz: int | None = None


class Environment(FileRecord):
    """environments/*.json: one machine of a run."""

    host: str = ""
    """The machine's own name."""
    cpu: str = "unknown"
    num_vcpus: int = 0
    num_vcpus_usable: int = 0
    """What this process may use: affinity and container quota counted in."""
    memory_gib: float = 0.0
    gpus: tuple[Gpu, ...] = ()
    driver: str | None = None
    os: str = "unknown"
    kernel: str = "unknown"
    python: str = "unknown"
    packages: dict[str, str] = {}
    cuda: str | None = None
    cudnn: str | None = None
    torch_threads: int | None = None
    torch_interop_threads: int | None = None
    tf32: dict[str, bool] | None = None
    variables: dict[str, str] = {}
    """Environment variables that steer threads and GPUs, where set."""
    git_commit: str | None = None
    git_dirty: bool | None = None


UNKNOWN = Environment()
"""For a run in which no trial has been started."""

Kind = Literal["starting", "ready", "group_begins", "group_ends", "progress", "epoch", "ratio"]


class Event(Record):
    """One thing that happened. Fields that do not apply to its kind are left out of its line."""

    kind: Kind
    """`starting` and `ready`: processes for `groups` are started, and are past their imports; `ratio`: the
    time per sample of the second trial's setting over that of the first's, by now."""
    at: str = ""
    """When, in UTC, by the clock of the host that writes it."""
    groups: tuple[tuple[str, ...], ...] = ()
    """Trials by group."""
    trials: tuple[str, ...] = ()
    """Of the group that begins or ends, or the one trial that made progress."""
    num_side_by_side: int = 1
    """Of a group that begins: how many such groups run at a time."""
    share: float | None = None
    """How much of the trial is done."""
    epoch: int | None = None
    num_epochs: int | None = None
    metrics: dict[str, float | None] = {}
    """The last known; null where not finite."""
    time_s: float | None = None
    """Training and testing so far."""


class EventReader:
    """Reads what has been added since the last look."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: Counter[Path] = Counter()

    def new(self) -> list[Event]:
        """In the order of their times; lines that this version does not know are passed over."""
        events = []
        for path in sorted(self._folder.glob("*.jsonl")):
            with path.open("rb") as stream:
                stream.seek(self._offsets[path])
                content = stream.read()
            complete = content[: content.rfind(b"\n") + 1]
            self._offsets[path] += len(complete)
            for line in complete.splitlines():
                with suppress(ValidationError):
                    events.append(Event.model_validate_json(line))
        return sorted(events, key=lambda event: event.at)
