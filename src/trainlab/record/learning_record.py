"""What a learn trial records beside trial.json: curve, probes, confusion; and its tags in TensorBoard."""

import base64
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from trainlab.record.schema import FileRecord, Record
from trainlab.spec.probe import Quantity


class CurveLine(Record):
    """What every line has; all else in it is a metric or a time, null where it is not finite."""

    # Strict: the lines are used as they are, and "1" is no number there.
    model_config = ConfigDict(extra="allow", strict=True)
    __pydantic_extra__: dict[str, float | None]

    kind: Literal["step", "epoch"]
    epoch: PositiveInt
    step: NonNegativeInt
    samples: NonNegativeInt


class EpochLine(CurveLine):
    """A line of kind `epoch`."""

    kind: Literal["epoch"]
    train_s: NonNegativeFloat
    """Training of this epoch."""
    test_s: NonNegativeFloat
    """The test after it."""
    time_s: NonNegativeFloat
    """Training and testing so far."""


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


class ProbedRecord(Record):
    """One probe at one layer or parameter."""

    probe: str
    """As asked: `relu:grad_input:sq_sum@epoch`."""
    layer: str
    """The layer's or parameter's name, as in layers.json."""
    call: int = 1
    """Which call of that name in the step, from 1; always 1 for a parameter."""

    @property
    def target(self) -> str:
        """The layer with its call: `relu`, `relu/2`."""
        return target_name(self.layer, self.call)


class ProbeRecord(ProbedRecord):
    """One line of probes.jsonl: the value of a probe over one period."""

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

    def line(self) -> dict[str, Any]:
        """As a flat JSON object without what does not apply."""
        return self.model_dump(mode="json", exclude_none=True)


class FiredRecord(ProbedRecord):
    """Whether, how often and on what a probe fired."""

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


class ProbesRecord(FileRecord):
    """probes.json: what the probes of a trial really saw."""

    rows: list[FiredRecord]


def target_name(layer: str, call: int) -> str:
    """`relu` for the first call of that name, `relu/2` for the second."""
    return layer if call == 1 else f"{layer}/{call}"


# confusion.json: which classes a trained model takes for which on the test set, and its worst mistakes.

FEWEST_CLASSES, MOST_CLASSES = 2, 50
MOST_MISTAKES = 12
LONGEST_SIDE = 64
"""Of a picture, in pixels; larger inputs are scaled down."""

Probability = Annotated[float, Field(ge=0, le=1)]
Side = Annotated[int, Field(ge=1, le=LONGEST_SIDE)]


class Picture(Record):
    """An input that is an image, in 8 bits per channel."""

    height: Side
    width: Side
    channels: Annotated[int, Field(ge=1, le=3)]
    """1: grey; 3: red, green, blue."""
    pixels: str
    """Row by row, the channels of a pixel together, in base64."""

    @property
    def values(self) -> bytes:
        return base64.b64decode(self.pixels)

    @classmethod
    def of(cls, height: int, width: int, values: bytes) -> Self:
        """From bytes, as many channels as they have."""
        pixels, channels = base64.b64encode(values).decode(), len(values) // (height * width)
        return cls(height=height, width=width, channels=channels, pixels=pixels)


class Mistake(Record):
    """A test sample that was taken for another class than it is of."""

    index: NonNegativeInt
    """Its place in the test set as it is stored, from 0."""
    true: NonNegativeInt
    said: NonNegativeInt
    """The class with the highest score."""
    said_probability: Probability
    true_probability: Probability
    """That the model gave to the right class."""
    picture: Picture | None = None
    """None where inputs are no images."""


class ConfusionRecord(FileRecord):
    """Of a learn trial that is done, by the weights that its result is of."""

    num_samples: NonNegativeInt
    """Of the test set; each is counted once."""
    counts: tuple[tuple[NonNegativeInt, ...], ...]
    """Samples by the class that they are of (outer) and the class they were taken for (inner)."""
    classes: tuple[str, ...] = ()
    """The names of the classes, where the data has them."""
    worst: tuple[Mistake, ...] = ()
    """Of the wrongly classified samples those whose wrong class got the highest probability, from there
    down."""

    @property
    def num_classes(self) -> int:
        return len(self.counts)

    @property
    def num_right(self) -> int:
        """Samples that were taken for the class that they are of."""
        return sum(row[number] for number, row in enumerate(self.counts))


USUAL = ("test/accuracy", "train/accuracy", "test/loss", "train/loss")
"""The metrics that are looked at first."""


def metric_tag(metric: str) -> str:
    """`test/accuracy` as `accuracy/test over samples`: the two curves of a metric stand beside each other,
    accuracies and losses come before everything else, and what TensorBoard calls a step is named."""
    part, slash, name = metric.partition("/")
    return f"{name}/{part} over samples" if slash else metric
