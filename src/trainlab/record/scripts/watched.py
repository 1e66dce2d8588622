"""watched.json: what a script was seen to do in one process."""

from typing import Annotated

from pydantic import Field, PositiveInt, model_validator

from trainlab.record.schema import FileRecord, Record

Count = Annotated[int, Field(ge=0, le=2**53)]
Amount = Annotated[float, Field(ge=0, le=1e15)]
"""Of seconds, milliseconds or bytes: more was never measured, and sums stay finite."""


class LoaderRow(Record):
    """A DataLoader that the script used."""

    batch_size: int | None
    num_samples: int | None
    """Of its data set; None where that has no length."""
    num_batches: int | None
    num_workers: Count
    pin_memory: bool
    order: str
    """`shuffled`, `in order`, or `own` for a sampler of the script's."""
    drop_last: bool
    num_given: Count
    """Batches it gave."""
    num_passes: Count
    """Passes over it that began."""
    is_trained_on: bool
    begins_alike: bool | None = None
    """Whether passes over it began with the same batch; None where only one was seen."""


class ModelRow(Record):
    """A module with weights that the script called itself."""

    name: str
    num_parameters: Count
    devices: list[str]
    dtypes: list[str]
    is_compiled: bool


class OptimizerRow(Record):
    """An optimizer that made updates."""

    name: str
    lr: float | None
    """At its first update."""
    code: str
    """`fused`, `foreach`, `loop`, or `auto`: torch's choice."""
    num_steps: Count


class StatementRow(Record):
    """A statement of the script, and how often it was seen under way."""

    line: PositiveInt
    """Where it begins."""
    text: str
    samples: dict[str, Count]
    """By part; `logging`: between torch's calls, where something was written."""


class GrowingRow(Record):
    """A container of the script that grew from update to update."""

    name: str
    """As the script calls it: `history` or `self.history`."""
    entries: Amount
    """Added per update."""
    tensor_bytes: Count
    """Memory of the tensors that were added per update."""


class WatchedRecord(FileRecord):
    """All that was seen, raw but for thinning."""

    rank: Count = 0
    """Which of the processes that torchrun started."""
    arguments: list[str]
    num_steps: Count
    num_backward: Count
    num_evaluation_passes: Count
    wall_s: Amount
    """From the start of the process to the end of the script."""
    parts_s: dict[str, Amount]
    """All of it, by part; `other` lies between the calls that were seen."""
    steps: list[PositiveInt]
    """The updates whose parts are kept: all, or evenly spaced ones of a long run."""
    steps_ms: dict[str, list[Amount]]
    """Milliseconds of each part of those."""
    losses: list[float | None]
    """What `backward` was called on, the first 20,000; null where that was not one finite number."""
    batch_size: int | None
    """Samples of the largest batch that was trained on."""
    threads: PositiveInt
    loaders: list[LoaderRow]
    models: list[ModelRow]
    optimizers: list[OptimizerRow]
    memory: list[tuple[Count, Count]]
    """Update and resident bytes of the process, several times a second."""
    samples: dict[str, Count] = {}
    """Looks at the script's stack, by part; none where it was not looked at."""
    statements: list[StatementRow] = []
    """Those seen most, in each look with those that called them."""
    growing: list[GrowingRow] = []
    num_calls: Count
    """Calls of torch that were seen."""
    call_us: Amount
    """What seeing one begin or end added, measured with a tiny loop at the end of the process."""
    num_marks: Count = 0
    """Calls of steps of which nothing else was seen: batches, backward passes, updates."""
    mark_us: Amount = 0.0
    """What seeing one of those added."""
    instruments_s: Amount = 0.0
    """What curves, progress, TensorBoard and probes took; it is in no part."""

    @model_validator(mode="after")
    def _steps_have_all_parts(self) -> "WatchedRecord":
        for part, values in self.steps_ms.items():
            if len(values) != len(self.steps):
                rule = f"steps has {len(self.steps)}"
                raise ValueError(f"steps_ms.{part} has {len(values)} values, {rule}")
        return self

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
        """Training and evaluation."""
        return self.trained_s + self.parts_s.get("evaluation", 0.0)


def num_at_the_end(num_steps: int) -> int:
    """The last of so many updates, whose mean stands for the end of a training without passes."""
    return max(1, num_steps // 10)
