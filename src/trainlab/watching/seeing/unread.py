"""Unread: single numbers on a device, which is asked for many of them at once."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

TRUSTED_AFTER = 20
"""Numbers that the script has left alone: it will go on so."""


Number = tuple[int, Tensor, Tensor | None, int]
"""Its place; the script's own tensor, or a copy; the script's own, None where it is part of something
larger, which is not held on to; how often that had been written to."""


class Unread:
    """Holds on to the script's tensors until they are read. A copy is one more kernel to launch, and made
    only until the script is known to leave its numbers alone."""

    __slots__ = ("_copies", "_num_left_alone", "waiting")

    def __init__(self) -> None:
        self.waiting: list[Number] = []
        self._num_left_alone, self._copies = 0, True

    def add(self, place: int, number: Tensor) -> None:
        """`place` is given back with its value. One call and no more where it can be: each takes
        microseconds while a script's own work fills the cache."""
        own = number.detach()
        if type(number) is not Tensor or number._is_view():
            self.waiting.append((place, own.clone(), None, 0))
        elif self._copies:
            self.waiting.append((place, own.clone(), own, own._version))
        else:
            self.waiting.append((place, own, own, own._version))

    def read(self) -> list[tuple[int, float]]:
        """All since the last time; one wait for the device, whatever their number. None while the script
        captures a graph, which must not wait."""
        if not self.waiting or is_capturing():
            return []
        numbers, self.waiting = self.waiting, []
        places = [place for place, _, _, _ in numbers]
        return list(zip(places, _values(self._kept(numbers)), strict=True))

    def _kept(self, numbers: Sequence[Number]) -> list[Tensor | None]:
        """The value of each where it still is what it was. A script that has written to one, as `loss *= 2`
        does, or a captured graph that writes the next to the same place may do it again: from then on all
        are copied."""
        last_at = {_address(own): own for _, _, own, _ in numbers if own is not None}
        kept: list[Tensor | None] = []
        for _, value, own, version in numbers:
            if own is None or (own._version == version and last_at[_address(own)] is own):
                self._num_left_alone += 1
                kept.append(value)
            else:
                self._num_left_alone = -(2**62)
                kept.append(value if value is not own else None)
        if self._copies and self._num_left_alone >= 0 and _are_written(numbers):
            self._num_left_alone = -(2**62)
        # Where several processes train, a loss is often summed up over them in its own place.
        self._copies = self._num_left_alone < TRUSTED_AFTER or _has_peers()
        return kept


def _address(number: Tensor) -> int:
    """Where it lies; of one without memory, as on `meta`, something of its own."""
    try:
        return number.data_ptr()
    except RuntimeError:
        return -id(number)


def _are_written(numbers: Sequence[Number]) -> bool:
    """Whether any differs from its copy, though no version tells: `loss.data *= 2` has none."""
    copied = [(own, value) for _, value, own, _ in numbers if own is not None and own is not value]
    pairs = zip(
        _values([own for own, _ in copied]), _values([copy for _, copy in copied]), strict=True
    )
    return any(own != copy and not (math.isnan(own) and math.isnan(copy)) for own, copy in pairs)


def _has_peers() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _values(numbers: Sequence[Tensor | None]) -> list[float]:
    """Of each, nan where there is none: all at once, unless they lie on several devices or hold none."""
    # To reshape one takes longer than all else that is done for it, and nearly all have no dimension.
    known = [one.reshape(()) if one.dim() else one for one in numbers if one is not None]
    try:
        with torch.no_grad():
            values = map(float, torch.stack(known).tolist() if known else [])
            found = iter([*values])
    except (RuntimeError, TypeError):
        found = map(value_of, known)
    return [math.nan if one is None else next(found) for one in numbers]


def value_of(number: Tensor) -> float:
    """Of a tensor of one number; nan where it has no real value that could be read, as on `meta`."""
    try:
        return float(number.item())
    except (RuntimeError, TypeError):
        return math.nan


def is_capturing() -> bool:
    """Whether what is called now is not run but becomes part of a CUDA graph."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
