"""What a run folder's JSON files hold. Plain values only: readable without trainlab.

History of `format`:
    1 (2026-11-15): first; study, environment, trials with curves.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

FORMAT = 1

State = Literal["pending", "running", "done", "diverged", "interrupted", "failed"]
"""Where a trial stands; all but the first two are final."""


class Record(BaseModel):
    """Base of records: frozen, and deaf to keys that a later version may have added."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)


class DataRecord(Record):
    """The data a trial really used."""

    name: str
    source: str
    is_subset: bool
    num_train: int
    num_test: int
    note: str = ""


class Failure(Record):
    """Why a trial failed: a result, not a loss."""

    kind: str
    message: str
    traceback: str


class TrialRecord(Record):
    """trial.json: the trial as asked, as resolved, and what became of it."""

    format: int = FORMAT
    id: str
    kind: str
    workload: str
    cell: str = "base"
    """The cell's id; trials of one cell differ by seed or process only."""
    levels: dict[str, Any] = {}
    """The levels of the study's factors."""
    seed: int
    settings: dict[str, Any]
    """As asked, defaults filled in."""
    cost: dict[str, Any] | None = None
    """How the cost was to be measured, for a cost trial."""
    watch: str | None = None
    """What a cost trial looks at; only `steps` runs bare and supplies speeds."""
    again: bool = False
    """The second of an A/A pair: the same cell measured twice."""
    weights_of: str | None = None
    """The learn trial whose trained weights a cost trial starts from; None for untrained ones."""
    state: State = "pending"
    resolved: dict[str, Any] = {}
    """What the settings became on this machine: device, threads, optimizer code, …"""
    data: DataRecord | None = None
    started: str | None = None
    ended: str | None = None
    total_s: float | None = None
    """Wall time of training and testing, device synchronised; data loading and records apart."""
    epochs_done: int = 0
    steps_done: int = 0
    final: dict[str, float | None] = {}
    """Metrics of the last whole epoch; null where not finite."""
    diverged_at_step: int | None = None
    """The first update whose loss was not finite."""
    error: Failure | None = None
    notes: tuple[str, ...] = ()
    """What an instrument could not do, and why."""


class StudyRecord(Record):
    """study.json: what was asked and how it was resolved."""

    format: int = FORMAT
    name: str
    created: str
    trainlab: str
    command: str
    study: dict[str, Any]
    trials: tuple[str, ...]
    """In the order planned."""
