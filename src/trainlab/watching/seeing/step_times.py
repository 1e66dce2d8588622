"""StepTimes: the parts of every step, in nanoseconds, in as little memory as they need."""

from array import array
from collections.abc import Iterable, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray


class StepTimes(Sequence[list[int]]):
    """A row per step."""

    def __init__(self, num_parts: int, steps: Iterable[Sequence[int]] = ()) -> None:
        self._num_parts = num_parts
        self._flat = array("q")
        for step in steps:
            self.append(step)

    def __len__(self) -> int:
        return len(self._flat) // self._num_parts

    @overload
    def __getitem__(self, step: int) -> list[int]: ...
    @overload
    def __getitem__(self, step: slice) -> list[list[int]]: ...
    def __getitem__(self, step: int | slice) -> list[int] | list[list[int]]:
        if isinstance(step, slice):
            return [self[number] for number in range(*step.indices(len(self)))]
        number = range(len(self))[step]
        return self._flat[number * self._num_parts : (number + 1) * self._num_parts].tolist()

    def append(self, parts_ns: Sequence[int]) -> None:
        """Of the next step."""
        self._flat.extend(parts_ns)

    def extend(self, parts_ns: NDArray[np.int64]) -> None:
        """Of the next steps, a row each."""
        self._flat.frombytes(np.ascontiguousarray(parts_ns, dtype=np.int64).tobytes())

    def totals_s(self, first: int, end: int) -> list[float]:
        """What these steps took, in seconds."""
        flat = np.array(self._flat[first * self._num_parts : end * self._num_parts])
        totals: list[float] = (flat.reshape(-1, self._num_parts).sum(axis=1) / 1e9).tolist()
        return totals
