"""The records of probes in a run folder: probes.jsonl, a line per value; probes.json, what fired."""

from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from trainlab.record.schema import FileRecord, Record
from trainlab.spec.probe import Quantity

NEVER_NEGATIVE = ("sq_sum", "norm", "std")


class HistogramRecord(Record):
    """How many elements fell where; edges follow from the ends, the number of bins and `log`."""

    log: bool
    """Bins of magnitudes, equally wide in their logarithm; signs are not kept."""
    low: float
    high: float
    counts: Annotated[list[NonNegativeInt], Field(min_length=1)]
    below: NonNegativeInt
    """Below `low`; with log bins zeros are among them."""
    above: NonNegativeInt
    """At or above `high`, and what is not a number."""

    @model_validator(mode="after")
    def _ends_are_in_order(self) -> "HistogramRecord":
        if self.high <= self.low or (self.log and self.low <= 0):
            raise ValueError(f"from {self.low:g} to {self.high:g} there are no bins")
        return self


class ProbeRecord(Record):
    """One line of probes.jsonl: the value of one probe at one layer or parameter over one period."""

    probe: str
    """As asked: `relu:grad_input:sq_sum@epoch`."""
    layer: str
    """The layer's or parameter's name, as in layers.json."""
    call: int = 1
    """Which call of that name in the step, from 1; always 1 for a parameter."""
    quantity: Quantity
    reducer: str
    every: str
    """`step`, `epoch` or a number of steps."""
    epoch: NonNegativeInt
    step: PositiveInt
    """The last update of the period, counted over the whole trial."""
    num_steps: PositiveInt
    """Updates in the period; fewer than asked where the trial ended in it."""
    fired: PositiveInt
    """Tensors that were reduced in it."""
    count: NonNegativeInt
    """Elements that were reduced in it."""
    value: float | None = None
    """None for a histogram, and where it is not finite."""
    not_finite: Literal["nan", "inf", "-inf"] | None = None
    histogram: HistogramRecord | None = None

    @model_validator(mode="after")
    def _could_be_so(self) -> "ProbeRecord":
        if self.num_steps > self.step:
            raise ValueError(
                f"num_steps: got {self.num_steps}, but only {self.step} updates were made"
            )
        if self.value is not None and self.value < 0 and self.reducer in NEVER_NEGATIVE:
            raise ValueError(f"value: got {self.value:g}, but a {self.reducer} is never negative")
        return self

    @property
    def target(self) -> str:
        """The layer with its call: `relu`, `relu/2`."""
        return target_name(self.layer, self.call)

    def line(self) -> dict[str, Any]:
        """As a flat JSON object without what does not apply."""
        return self.model_dump(mode="json", exclude_none=True)


class FiredRecord(Record):
    """One probe at one layer or parameter: whether, how often and on what it fired."""

    probe: str
    layer: str
    call: int = 1
    type: str
    """The module's class, the function's name, or `parameter`."""
    owner: str = ""
    """Of a parameter: the class of the module that holds it."""
    kind: Literal["module", "function", "parameter"]
    place: int
    """Order of the first firing of layers, of definition of parameters: how deep in the model."""
    fired: int
    """Tensors reduced in the whole trial."""
    first_step: int | None
    last_step: int | None
    shapes: list[list[int]]
    """Distinct shapes in the order they came; the first few."""
    why_not: str | None = None
    """The code of why it never fired, where it did not; in format 1 a sentence."""

    @property
    def target(self) -> str:
        """The layer with its call: `relu`, `relu/2`."""
        return target_name(self.layer, self.call)


class ProbesRecord(FileRecord):
    """probes.json: what the probes of a trial really saw."""

    rows: list[FiredRecord]


def target_name(layer: str, call: int) -> str:
    """`relu` for the first call of that name, `relu/2` for the second."""
    return layer if call == 1 else f"{layer}/{call}"
