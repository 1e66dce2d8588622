"""trial.json: one trial as asked, as resolved, and what became of it."""

from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import NonNegativeInt

from trainlab.plan import Trial
from trainlab.record.cost_record import LoadRecord
from trainlab.record.schema import FileRecord, Note, Record, TrialId
from trainlab.spec.settings import Scalar

State = Literal["pending", "running", "done", "diverged", "interrupted", "failed"]
"""Where a trial stands; all but the first two are final."""

FINISHED = ("done", "diverged")
PLANNED = set(Trial.model_fields)
"""Fields that are known when a trial is planned; all others are filled in when it runs."""


@dataclass
class Progress:
    """How far a trial has come; updated while it trains, read by whoever records how it ended."""

    state: State = "running"
    epochs_done: int = 0
    steps_done: int = 0
    total_s: float = 0.0
    final: dict[str, float] = field(default_factory=dict)
    diverged_at_step: int | None = None
    diverged_loss: float | None = None
    best_epoch: int = 0
    """That with the lowest validation loss so far; 0: there was none."""
    best_val_loss: float | None = None


class DataRecord(Record):
    """The data a trial really used."""

    name: str
    source: str
    is_subset: bool
    num_train: NonNegativeInt
    num_test: NonNegativeInt
    num_val: NonNegativeInt = 0
    note: str = ""


class Failure(Record):
    """Why a trial failed: a result, not a loss."""

    kind: str
    message: str
    traceback: str
    field: str = ""
    """What of the workload ran, where the user's code raised it."""
    line: str = ""
    """Where in it, as `file.py:12`."""
    exit_code: int | None = None
    """Of a script by itself, as a shell tells it."""

    @property
    def mistake(self) -> str:
        """The user's mistake in a line: what raised it, or which rule the workload breaks; empty where
        neither."""
        if not self.field and self.kind not in OF_RULES:
            return ""
        first = self.message.partition("\n")[0]
        told = first if self.kind in OF_RULES else f"{self.field} raised {self.kind}: {first}"
        return f"{self.line}: {told}" if self.line else told

    @property
    def own_traceback(self) -> str:
        """From the user's file on; empty where none of her lines is in it."""
        is_whole = self.traceback.startswith("Traceback")
        return self.traceback if self.line and not is_whole and self.kind not in OF_RULES else ""


OUT_OF_MEMORY = "OutOfMemory"
"""The kind of failure of a trial that had too little, whoever noticed."""
SCRIPT_EXIT = "ScriptExit"
"""The kind of failure of a script that ended with an exit code other than 0."""
OF_RULES = ("WorkloadError", "DataError", "SpecError", SCRIPT_EXIT)
"""Errors that say themselves what is wrong, and where."""


class TrialRecord(FileRecord):
    """The trial as asked (see `plan.Trial`), as resolved, and what became of it."""

    id: TrialId
    kind: Literal["learn", "try", "cost"]
    workload: str
    cell: str = "base"
    levels: dict[str, Scalar | None] = {}
    seed: int
    settings: dict[str, Any]
    """As asked, defaults filled in."""
    cost: dict[str, Any] | None = None
    watch: Literal["steps", "operators", "layers"] | None = None
    again: bool = False
    weights_of: TrialId | None = None
    bars: dict[str, Any] | None = None
    state: State = "pending"
    attempt: NonNegativeInt = 0
    """How many times it was started; files of earlier attempts are in `attempts/`."""
    token: str | None = None
    """Of its last attempt: one that is no longer the last must not write here."""
    environment: str | None = None
    """The machine of its last attempt: the name of a file in `environments/`."""
    resolved: dict[str, Any] = {}
    """What the settings became on this machine: device, threads, optimizer code, …"""
    data: DataRecord | None = None
    started: str | None = None
    ended: str | None = None
    total_s: float | None = None
    """Wall time of training and testing, device synchronised; data loading and records apart."""
    load: LoadRecord | None = None
    """What else the machine did while a learn trial trained; None in runs from before it was recorded."""
    epochs_done: NonNegativeInt = 0
    steps_done: NonNegativeInt = 0
    final: dict[str, float | None] = {}
    """Metrics of the last whole epoch; null where not finite."""
    diverged_at_step: int | None = None
    """The first update whose loss was not finite or had exploded; null in earlier runs where only the test
    loss was not finite."""
    diverged_loss: float | None = None
    """That loss where it is finite: over a million times the larger of 1 and the first update's."""
    error: Failure | None = None
    notes: tuple[Note, ...] = ()
    """What an instrument could not do, and why."""
    files: dict[str, str] = {}
    """The sha256 of each of its other records as the trial ended; none in runs from before it was kept."""

    @property
    def is_finished(self) -> bool:
        """Whether it ran to its end; one that failed or was interrupted may run again."""
        return self.state in FINISHED

    @property
    def mode(self) -> str | None:
        """What a cost trial measures, `train` or `inference`; None for a learn trial."""
        return None if self.cost is None else self.cost.get("mode")
