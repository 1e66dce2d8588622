"""The lines of curve.jsonl: a point per logged step and per epoch."""

from typing import Literal

from pydantic import ConfigDict, NonNegativeFloat, NonNegativeInt, PositiveInt

from trainlab.record.schema import Record


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
