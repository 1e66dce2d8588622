"""confusion.json: which classes a trained model takes for which on the test set, and its worst mistakes."""

import base64
import binascii
from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import Field, NonNegativeInt, model_validator

from trainlab.record.schema import FileRecord, Record

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

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.channels == 2 or len(self.values) != self.height * self.width * self.channels:
            raise ValueError("pixels: must be height * width * channels bytes of 1 or 3 channels")
        return self

    @property
    def values(self) -> bytes:
        """The pixels as bytes."""
        try:
            return base64.b64decode(self.pixels, validate=True)
        except (binascii.Error, ValueError):
            raise ValueError("pixels: must be base64") from None

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

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        for problem in self._problems():
            raise ValueError(problem)
        return self

    def _problems(self) -> Sequence[str]:
        number = self.num_classes
        classes = [one for mistake in self.worst for one in (mistake.true, mistake.said)]
        rules = {
            f"counts: must be of {FEWEST_CLASSES} to {MOST_CLASSES} classes": FEWEST_CLASSES
            <= number
            <= MOST_CLASSES,
            "counts: must have as many columns as rows": all(
                len(row) == number for row in self.counts
            ),
            "counts: must add up to num_samples": sum(map(sum, self.counts)) == self.num_samples,
            "classes: must be as many as counts has": len(self.classes) in (0, number),
            "worst: names a class that is not there": all(one < number for one in classes),
            "worst: names a sample that is not there": all(
                mistake.index < self.num_samples for mistake in self.worst
            ),
        }
        return [text for text, holds in rules.items() if not holds]

    @property
    def num_classes(self) -> int:
        """How many there are."""
        return len(self.counts)

    @property
    def num_right(self) -> int:
        """Samples that were taken for the class that they are of."""
        return sum(row[number] for number, row in enumerate(self.counts))
