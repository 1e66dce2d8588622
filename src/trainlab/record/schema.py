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
    seed: int
    settings: dict[str, Any]
    """As asked, defaults filled in."""
    cost: dict[str, Any] | None = None
    """How the cost was to be measured, for a cost trial."""
    profiled: bool = False
    """Whether it ran under the profiler: such a process never supplies a speed."""
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


class LoadRecord(Record):
    """What else the machine did during a measurement."""

    load_before: float
    """The system's one-minute load average before."""
    others_cores: float
    """Cores kept busy by other processes, on average."""
    stolen_cores: float
    """Cores the host of a virtual machine took away, on average."""
    cpu_mhz: float | None
    governor: str | None
    affinity: list[int] | None


class CostRecord(Record):
    """cost.json: one fresh process's measurement of a step, raw."""

    format: int = FORMAT
    mode: Literal["train", "inference"]
    batch_size: int
    num_samples: int
    """Samples of an epoch (train) or of a pass over the test set (inference)."""
    steps_per_epoch: int
    warmup_ms: list[float]
    """The first steps of the process, device waited for after each; never averaged in."""
    step_ms: list[float]
    """Bare steps: the only source of a reported time."""
    phases_ms: dict[str, list[float]]
    """Per marked step, milliseconds of each phase; `other` is what lies between them."""
    stopped: Literal["tight", "budget"]
    load: LoadRecord


class OperatorRow(Record):
    """Sums over all profiled steps for one operator in one phase, or for one GPU kernel."""

    name: str
    kind: Literal["operator", "kernel"]
    phase: str
    """Empty for kernels."""
    calls: int
    self_cpu_us: float
    total_cpu_us: float
    """With what it called: wrappers count the same time again at each level."""
    self_device_us: float
    total_device_us: float
    self_cpu_bytes: int
    """Allocated less freed, by the operator itself."""
    self_device_bytes: int


class OperatorsRecord(Record):
    """operators.json: torch's profiler over some steps, in a process whose speed is never reported."""

    format: int = FORMAT
    mode: Literal["train", "inference"]
    batch_size: int
    num_steps: int
    profiled_step_us: float
    """Mean wall time of a profiled step: what the shares are shares of, not a speed."""
    calls_are_equal: bool
    """Whether every step called every operator equally often."""
    rows: list[OperatorRow]


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
