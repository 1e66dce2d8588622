"""ProbeSpec: which quantity of which layers is watched, how it is reduced and how often recorded."""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, PositiveInt, field_validator, model_validator

from trainlab.errors import SpecError
from trainlab.spec.base import Spec, checked, did_you_mean

CallQuantity = Literal["activation", "pre_activation", "grad_output", "grad_input", "local_grad"]
ParameterQuantity = Literal["weight", "grad", "update"]
Quantity = Literal[CallQuantity, ParameterQuantity]
"""What can be watched at the calls of layers, and at parameters."""
Every = Literal["step", "epoch"] | PositiveInt

QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)

REDUCERS = (
    *("sum", "sq_sum", "norm", "mean", "std", "min", "max"),
    *("zero_fraction", "positive_count", "dead_fraction", "histogram"),
)
"""Each is over all elements of all tensors of a period together."""

_NUMBER = r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?"
HISTOGRAM = (
    rf"histogram\((?P<log>log,)?(?P<low>{_NUMBER}),(?P<high>{_NUMBER}),(?P<num>0*[1-9]\d*)\)"
)

SYNTAX = "SELECT:QUANTITY:REDUCER[@EVERY], as in relu:grad_input:sq_sum@epoch"


class Bins(Spec):
    """The bins of a histogram: equally wide, or equally wide in the logarithm of the magnitude."""

    log: bool = True
    low: float = 1e-12
    high: float = 1e4
    num: PositiveInt = 64

    def edges(self) -> list[float]:
        """One more than there are bins; a value on an edge belongs to the bin above it."""
        if self.log:
            ratio = self.high / self.low
            return [self.low * ratio ** (i / self.num) for i in range(self.num + 1)]
        width = (self.high - self.low) / self.num
        return [self.low + width * i for i in range(self.num + 1)]


def _selectors(value: object) -> object:
    return tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else value


class ProbeSpec(Spec):
    """One probe; as text `SELECT:QUANTITY:REDUCER[@EVERY]`, or as a table with these keys."""

    select: Annotated[tuple[str, ...], BeforeValidator(_selectors)]
    """Layers by name (`conv1`, `relu/2` for the second call of that name), glob (`encoder.*`) or type
    (`type=Conv2d`); parameters by name or glob (`*.weight`) or through their layer."""
    quantity: Quantity
    """What is watched."""
    reducer: str
    """A name, `histogram(LOW,HIGH,BINS)`, `histogram(log,LOW,HIGH,BINS)`, or `FILE.py:FUNCTION`."""
    every: Every = "epoch"
    """A value per `step`, per that many steps, or per `epoch`."""

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        return split_probe(value) if isinstance(value, str) else value

    @field_validator("select")
    @classmethod
    def _selects_something(cls, select: tuple[str, ...]) -> tuple[str, ...]:
        if not select or any(part in ("", "type=") for part in select):
            raise ValueError("got nothing, must be a layer's name, a glob or type=NAME")
        return select

    @field_validator("every", mode="before")
    @classmethod
    def _is_a_period(cls, value: object) -> object:
        """`10` and `10steps` are a number of steps."""
        if isinstance(value, str) and (match := re.fullmatch(r"(\d+) ?(steps?)?", value)):
            value = int(match[1])
        if value in ("step", "epoch") or (type(value) is int and value > 0):
            return value
        raise ValueError(f"got {value!r}, must be step, epoch or a number of steps, as in 100")

    @field_validator("reducer")
    @classmethod
    def _is_a_reducer(cls, value: str) -> str:
        place, colon, name = value.rpartition(":")
        if colon:
            if not place.endswith(".py") or not name.isidentifier():
                raise ValueError(f"got {value!r}, a function of your own is FILE.py:FUNCTION")
        elif value.startswith("histogram"):
            bins_of(value)
        elif value not in REDUCERS:
            raise ValueError(_unknown(value, REDUCERS) + "; your own is FILE.py:FUNCTION")
        return value

    @model_validator(mode="after")
    def _reducer_fits_quantity(self) -> "ProbeSpec":
        activations = ("activation", "pre_activation")
        if self.reducer == "dead_fraction" and self.quantity not in activations:
            raise ValueError(
                f"reducer: got dead_fraction of {self.quantity}, "
                "it must be of activation or pre_activation"
            )
        return self

    def __str__(self) -> str:
        return f"{','.join(self.select)}:{self.quantity}:{self.reducer}@{self.every}"

    @property
    def is_of_parameters(self) -> bool:
        """Whether parameters are watched rather than calls."""
        return self.quantity in get_args(ParameterQuantity)

    @property
    def bins(self) -> Bins | None:
        return bins_of(self.reducer) if self.reducer.startswith("histogram") else None

    @property
    def function(self) -> tuple[str, str] | None:
        """File and name of the user's own reducer."""
        place, colon, name = self.reducer.rpartition(":")
        return (place, name) if colon else None


def probe_of(text: str, place: str = "--probe") -> ProbeSpec:
    """A probe written as text, or a SpecError with every problem."""
    try:
        values = split_probe(text)
    except ValueError as error:
        raise SpecError([str(error)], place) from None
    return checked(ProbeSpec, values, f"{place} {text!r}")


def split_probe(text: str) -> dict[str, Any]:
    """The parts of a probe's text, unchecked; ValueError where there are too few."""
    parts = text.split(":", 2)
    if len(parts) < 3 or not all(part.strip() for part in parts):
        raise ValueError(f"got {text!r}, must be {SYNTAX}")
    reducer, *every = (part.strip() for part in parts[2].rsplit("@", 1))
    values = {"select": parts[0], "quantity": parts[1].strip(), "reducer": reducer}
    return values | ({"every": every[0]} if every else {})


def bins_of(reducer: str) -> Bins:
    """The bins that `histogram`, `histogram(-3,3,60)` or `histogram(log,1e-9,1,45)` asks for."""
    if reducer in ("histogram", "histogram()"):
        return Bins()
    match = re.fullmatch(HISTOGRAM, reducer.replace(" ", ""))
    if match is None:
        forms = "histogram, histogram(LOW,HIGH,BINS) or histogram(log,LOW,HIGH,BINS)"
        raise ValueError(f"got {reducer!r}, must be {forms}")
    log, low, high = bool(match["log"]), float(match["low"]), float(match["high"])
    if low >= high:
        raise ValueError(f"histogram: got low {low:g}, must be below high {high:g}")
    if log and low <= 0:
        raise ValueError(f"histogram: got low {low:g}, must be above 0 for log bins")
    return Bins(log=log, low=low, high=high, num=int(match["num"]))


def _unknown(value: object, names: Sequence[str]) -> str:
    return f"got {value!r}, must be one of {', '.join(names)}{did_you_mean(str(value), names)}"
