"""watched.json and diagnosis.json: what a script was seen to do, and what limits it."""

from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from trainlab.record.schema import FileRecord, Record


class LoaderRow(Record):
    """A DataLoader that the script used."""

    batch_size: int | None
    num_samples: int | None
    """That its sampler draws in a pass, or of its data set; None where neither has a length."""
    num_batches: int | None
    num_workers: NonNegativeInt
    pin_memory: bool
    order: str
    """`shuffled`, `in order`, or `own` for a sampler of the script's."""
    drop_last: bool
    num_passes: NonNegativeInt
    """Passes over it that began."""
    passes: NonNegativeFloat | None = None
    """Batches over those of a whole pass; of a loader that was trained on, batches that were."""
    is_trained_on: bool


class ModelRow(Record):
    """A module with weights that the script called."""

    name: str
    num_parameters: NonNegativeInt
    devices: list[str]
    dtypes: list[str]
    is_compiled: bool


class OptimizerRow(Record):
    """An optimizer that made updates."""

    name: str
    lr: float | None
    """At its first update."""
    lowest_lr: float | None = None
    """This and the next: over all its updates and groups of parameters."""
    highest_lr: float | None = None
    code: str
    """`fused`, `foreach`, `loop`, or `auto`: torch's choice."""
    num_steps: NonNegativeInt


class StatementRow(Record):
    """A statement of the script, and how often it was seen under way."""

    line: PositiveInt
    """Where it begins."""
    text: str
    samples: dict[str, NonNegativeInt]
    """By part; `logging`: between torch's calls, where something was written; `logging_in_loss`: between a
    model and its backward pass."""


class ReadRow(Record):
    """A line of code that reads numbers from tensors amid training, as by `loss.item()`."""

    file: str
    line: PositiveInt
    per_step: NonNegativeFloat
    """How often in a step."""
    ms: NonNegativeFloat
    """What that took of a step."""


class GrowingRow(Record):
    """A container of the script that grew from update to update."""

    name: str
    """As the script calls it: `history` or `self.history`."""
    tensor_bytes: NonNegativeInt
    """Memory of the tensors that were added per update."""


class WatchedRecord(FileRecord):
    """All that was seen, raw but for thinning."""

    framework: str = ""
    """What trained in place of torch's own optimizers, as `Keras 3.15.1, JAX 0.10.2`."""
    num_steps: NonNegativeInt
    wall_s: NonNegativeFloat
    """From the start of the process to the end of the script."""
    parts_s: dict[str, NonNegativeFloat]
    """All of it, by part; `other` lies between the calls that were seen."""
    steps: list[PositiveInt]
    """The updates whose parts are kept: all, or the first and evenly spaced ones of a long run."""
    steps_ms: dict[str, list[NonNegativeFloat]]
    """Milliseconds of each part of those."""
    losses: list[float | None]
    """What `backward` was called on, the first 20,000; null where that was not one finite number."""
    batch_size: int | None
    """Samples of the largest batch that was trained on, as its loader says."""
    first_dimension: int | None = None
    """Where it does not say: of the first tensor of that batch, which may be its samples or not."""
    threads: PositiveInt
    checks_anomalies: bool = False
    """Whether autograd looked for anomalies in backward passes."""
    loaders: list[LoaderRow]
    models: list[ModelRow]
    optimizers: list[OptimizerRow]
    memory: list[tuple[NonNegativeInt, NonNegativeInt]]
    """Update and resident bytes of the process, several times a second."""
    energy: list[tuple[NonNegativeInt, NonNegativeFloat, NonNegativeFloat]] = []
    """Samples trained on, seconds and joules of the GPU since the first update, at the first update of each
    pass over the data and at the end; none where nothing counts it."""
    samples: dict[str, NonNegativeInt] = {}
    """Looks at the script's stack, by part; none where it was not looked at."""
    statements: list[StatementRow] = []
    """Those seen most, in each look with those that called them."""
    growing: list[GrowingRow] = []
    reads: list[ReadRow] = []
    """The most frequent first."""
    num_calls: NonNegativeInt
    """Calls of torch that were seen."""
    call_us: NonNegativeFloat
    """What seeing one begin or end added, measured with a tiny loop at the end of the process."""
    num_marks: NonNegativeInt = 0
    """Calls of steps of which nothing else was seen: batches, backward passes, updates."""
    mark_us: NonNegativeFloat = 0.0
    """What seeing one of those added."""
    instruments_s: NonNegativeFloat = 0.0
    """What curves, progress, TensorBoard and probes took; it is in no part."""
    cpu_s: NonNegativeFloat = 0.0
    """CPU time of this process, and in the next of those that it started."""
    others_cpu_s: NonNegativeFloat = 0.0

    @property
    def is_of_others(self) -> bool:
        """Whether other processes did most of the work, unseen; workers of its loaders are known."""
        has_workers = any(one.num_workers for one in self.loaders)
        return self.others_cpu_s > self.cpu_s and not (has_workers and self.num_steps)

    @property
    def overhead_s(self) -> float:
        """What watching added to the calls of torch; it is in their parts."""
        return (self.num_calls * self.call_us + self.num_marks * self.mark_us) / 1e6

    @property
    def trained_s(self) -> float:
        """All parts of training steps."""
        apart = ("startup", "evaluation")
        return sum(spent for part, spent in self.parts_s.items() if part not in apart)

    @property
    def total_s(self) -> float:
        return self.trained_s + self.parts_s.get("evaluation", 0.0)


def num_at_the_end(num_steps: int) -> int:
    """The last of so many updates, whose mean stands for the end of a training without passes."""
    return max(1, num_steps // 10)


# diagnosis.json: what limits a script, what was tried to show it, and what came of it.

PartName = Literal["data", "transfer", "optimizer", "evaluation", "logging", "between"]
LimitName = Literal[PartName, "anomaly_checks", "batch_size", "threads", "memory"]
"""What may limit a script, beside the model's own computation."""
LimitVerdict = Literal["confirmed", "refuted", "cannot tell", "not tried"]


class TriedRow(Record):
    """One change made from outside, and what an update then took."""

    change: str
    """As `threads=1`."""
    is_remedy: bool
    """Whether it is something to do, rather than to prove."""
    verdict: LimitVerdict
    ratio: PositiveFloat | None = None
    """Time per update with the change over that without; per sample where the batch is another."""
    low: PositiveFloat | None = None
    """This and the next: its simultaneous 95% interval over all changes."""
    high: PositiveFloat | None = None
    processes: NonNegativeInt = 0
    """Fresh processes of each that took turns."""
    processes_needed: PositiveInt | None = None
    """To settle it, where it is open and that can be said."""
    growth_bytes: tuple[float, float] | None = None
    """Of memory: bytes per update without the change and with it; their ratio is the one above."""
    reason: str = ""
    """Why it could not be tried: a key among the words, or what the script raised."""


class LimitRow(Record):
    """One thing that may limit the script."""

    limit: LimitName
    share: NonNegativeFloat
    """Of the time of an update, everything included; of memory, 0."""
    potential: NonNegativeFloat
    """The share of the time that could be saved, guessed from the record: what is tried first."""
    verdict: LimitVerdict
    tried: list[TriedRow]
    line: int | None = None
    """Of the script, where it is about one."""
    text: str = ""
    """That line, or the container that grows."""
    number: float | None = None
    """The batch size, the threads, the workers or the bytes per update as they are."""


class DiagnosisRecord(FileRecord):
    """From what was seen to what was shown."""

    script: str
    device: str
    num_updates: PositiveInt
    """That were watched."""
    update_ms: PositiveFloat
    """Wall time of one, everything included."""
    parts_ms: dict[str, NonNegativeFloat]
    """Of an update, by part; they add up to it."""
    cores: PositiveInt
    threads: PositiveInt
    batch_size: int | None
    min_gain: PositiveFloat
    """Saving less of the time does not count as a limit."""
    others_cores: NonNegativeFloat = 0.0
    """Cores that other programs kept busy while changes were measured."""
    limits: list[LimitRow]
    """The most important first."""
