"""Where in an epoch the training of a group is, and the time that it took to get there."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

Clock = Callable[[], float]


@dataclass
class Place:
    """In an epoch."""

    epoch: int = 1
    steps: int = 0
    """Updates of the epoch that are done."""
    totals: list[dict[str, float]] = field(default_factory=list)
    """Of each member: loss and metrics of the epoch so far, times their samples."""
    train_s: float = 0.0
    """Of the epoch so far."""


class Stopwatch:
    """Time spent on training, of which each member of a group counts a share."""

    def __init__(self, clock: Clock, share: float, before_s: float = 0.0) -> None:
        """`before_s` was spent by an earlier attempt."""
        self._clock, self._share = clock, share
        self._start_s, self._before_s = clock(), before_s

    def read(self) -> float:
        """So far."""
        return self._before_s + self._share * (self._clock() - self._start_s)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """What happens in this block is not training."""
        begun_s = self._clock()
        yield
        self._start_s += self._clock() - begun_s
