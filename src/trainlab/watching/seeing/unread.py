"""Unread: single numbers on a device, which is asked for many of them at once."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

TRUSTED_AFTER = 20
"""Numbers that the script has left alone: it will go on so."""


class _Number(NamedTuple):
    place: int
    value: Tensor
    """The script's own tensor, or a copy."""
    own: Tensor | None
    """The script's own; None where it is part of something larger, which is not held on to."""
    version: int
    """Of `own`: how often it had been written to."""


class Unread:
    """Holds on to the script's tensors until they are read. A copy is one more kernel to launch, and made
    only until the script is known to leave its numbers alone."""

    __slots__ = ("_copies", "_num_left_alone", "_numbers")

    def __init__(self) -> None:
        self._numbers: list[_Number] = []
        self._num_left_alone, self._copies = 0, True

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, place: int, number: Tensor) -> None:
        """`place` is given back with its value."""
        own = number.detach()
        if type(number) is not Tensor or number._is_view():
            self._numbers.append(_Number(place, own.clone(), None, 0))
        else:
            value = own.clone() if self._copies else own
            self._numbers.append(_Number(place, value, own, own._version))

    def read(self) -> list[tuple[int, float]]:
        """All since the last time; one wait for the device, whatever their number. None while the script
        captures a graph, which must not wait."""
        if not self._numbers or is_capturing():
            return []
        numbers, self._numbers = self._numbers, []
        found, alike = list[tuple[int, float]](), dict[Any, list[_Number]]()
        for one, is_kept in zip(numbers, self._are_kept(numbers), strict=True):
            if is_kept:
                alike.setdefault((one.value.device, one.value.dtype), []).append(one)
            else:
                found.append((one.place, math.nan))
        for those in alike.values():
            with torch.no_grad():
                together = torch.stack([one.value.reshape(()) for one in those]).double()
            found += zip([one.place for one in those], together.tolist(), strict=True)
        return found

    def _are_kept(self, numbers: list[_Number]) -> list[bool]:
        """Of each, whether its value still is what it was. A script that has written to one, as `loss *= 2`
        does, or a captured graph that writes the next to the same place may do it again: from then on all
        are copied."""
        last_at = {one.own.data_ptr(): one for one in numbers if one.own is not None}
        kept = []
        for one in numbers:
            is_alone = one.own is None or (
                one.own._version == one.version and last_at[one.own.data_ptr()] is one
            )
            kept.append(is_alone or one.value is not one.own)
            self._num_left_alone += 1 if is_alone else -(2**62)
        self._copies = self._num_left_alone < TRUSTED_AFTER
        return kept


def is_capturing() -> bool:
    """Whether what is called now is not run but becomes part of a CUDA graph."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
