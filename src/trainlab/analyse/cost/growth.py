"""How the time of each operator grows from one batch size to the next."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Growth:
    """An operator between two batch sizes; both ratios are the larger size over the smaller."""

    operator: str
    from_size: int
    to_size: int
    work: float
    time: float

    def __str__(self) -> str:
        return f"{self.time:.2g} times the time for {self.work:.3g} times the work"


def growth(times: Mapping[str, Mapping[int, float]]) -> tuple[Growth, ...]:
    """Time per step by operator and batch size, between consecutive sizes the operator was seen at.

    A size at which the operator took no time is skipped.
    """
    return tuple(
        Growth(operator, small, large, large / small, by_size[large] / by_size[small])
        for operator, by_size in times.items()
        for small, large in pairwise(sorted(size for size, time in by_size.items() if time > 0))
    )
