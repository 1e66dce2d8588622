"""GroupLayout: where the numbers of a group of parameters lie, as the compiled update reads them.

An update of a small model takes less time than a close look at each of its tensors. So they are looked at
once; from then on it is only compared whether they are the same, and lie where they did.
"""

import ctypes
from array import array
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from operator import attrgetter, is_
from typing import Any

import torch
from torch import Tensor

from trainlab.train.tuned.rules import DTYPES, Group, Rule, options_in

NUMBERS_PER_TENSOR = 7
"""Parameter, gradient, three states, step, size: `Tensor` in update.cpp."""

States = Mapping[Tensor, dict[str, Any]]

KIND = attrgetter("dtype", "layout", "is_cpu")


class NotLaidOutError(Exception):
    """This update is torch's to make: a state is yet to be made, or not one that update.cpp takes."""


class GroupLayout:
    """Of the parameters of a group that have gradients, one or more; NotLaidOutError where it cannot be."""

    def __init__(
        self, rule: Rule, group: Group, parameters: Sequence[Tensor], states: States
    ) -> None:
        self.parameters = parameters
        self.dtype = parameters[0].dtype
        self._kinds = {(self.dtype, torch.strided, True)}
        self._rule, self._names = rule, rule.names(group)
        self._take_options(group)
        rows = [self._row(one, states.get(one) or {}) for one in parameters]
        self._tensors = [one for row in rows for one in row if one is not None]
        self._places = [*map(Tensor.data_ptr, self._tensors)]
        self._taken = {*self._places}
        if _overlap(self._tensors):
            raise NotLaidOutError  # one thread would change what another reads
        self._sizes = [*map(Tensor.numel, parameters)]
        self._numbers = array("q")
        for parameter, (_, *of_states), size in zip(parameters, rows, self._sizes, strict=True):
            states_at = [0 if one is None else one.data_ptr() for one in of_states]
            self._numbers.extend((parameter.data_ptr(), 0, *states_at, size))
        self._take_gradients()

    def is_renewed(self, group: Group, parameters: Sequence[Tensor]) -> bool:
        """Takes new options and gradients; the states are those that it was made with. False where more has
        changed; NotLaidOutError as above."""
        facts = options_in(group)
        if self._facts != facts or self._types != [*map(type, facts)]:
            if self._names != self._rule.names(group):
                return False
            self._take_options(group)
        is_same = (
            are_same(parameters, self.parameters)
            and [*map(Tensor.data_ptr, self._tensors)] == self._places
            and [*map(Tensor.numel, parameters)] == self._sizes
            and all(map(Tensor.is_contiguous, self._tensors))
        )
        if is_same:
            self._take_gradients()
        return is_same

    def update(self, library: ctypes.CDLL) -> None:
        """Makes one update of every parameter."""
        unknown = library.trainlab_update(
            self._rule.kind,
            self.dtype == torch.float64,
            ctypes.c_void_p(self._numbers.buffer_info()[0]),
            ctypes.c_int64(len(self.parameters)),
            ctypes.byref(self._options),
            ctypes.c_int64(torch.get_num_threads()),
        )
        assert not unknown, f"update.cpp has no kind {self._rule.kind}"
        torch.autograd.graph.increment_version(self.parameters)

    def _take_options(self, group: Group) -> None:
        options = self._rule.options_of(group)
        if options is None:
            raise NotLaidOutError
        self._options, self._facts = options, options_in(group)
        self._types = [*map(type, self._facts)]  # a tensor may be equal to a number, and less exact

    def _take_gradients(self) -> None:
        gradients: list[Any] = [one.grad for one in self.parameters]
        fit = (
            {*map(KIND, gradients)} == self._kinds
            and all(map(Tensor.is_contiguous, gradients))
            and [*map(Tensor.numel, gradients)] == self._sizes
        )
        places = array("q", map(Tensor.data_ptr, gradients))
        # Nowhere: zeros that have no memory, or no numbers at all.
        if not fit or 0 in places or not self._taken.isdisjoint(places):
            raise NotLaidOutError
        self._numbers[1::NUMBERS_PER_TENSOR] = places

    def _row(self, parameter: Tensor, state: Mapping[str, Any]) -> tuple[Tensor | None, ...]:
        """A parameter, its states and its step."""
        states: list[Any]
        *states, step = [None if name is None else state.get(name) for name in self._names]
        needed = [one for one, name in zip(states, self._names, strict=False) if name is not None]
        fits = (
            self.dtype in DTYPES
            and all(_is_plain(one, self.dtype) for one in (parameter, *needed))
            and all(one.shape == parameter.shape for one in needed)
            and (self._names[-1] is None or _is_plain(step, torch.float32))
        )
        if not fits:
            raise NotLaidOutError
        return parameter, *states, step


def held_by(states: States) -> list[Any]:
    """The parameters that have states, and these with their names."""
    try:
        of_each = states.values()
        values = chain.from_iterable(map(dict.values, of_each))
        return [*states, *chain.from_iterable(of_each), *values]
    except TypeError:  # something else than states is kept there
        raise NotLaidOutError from None


def _overlap(tensors: Sequence[Tensor]) -> bool:
    """Whether any two share memory."""
    spans = sorted((one.data_ptr(), one.data_ptr() + one.nbytes) for one in tensors)
    return any(start < end for (_, end), (start, _) in pairwise(spans))


def are_same(found: Sequence[Any], known: Sequence[Any]) -> bool:
    """The very same objects."""
    return len(found) == len(known) and all(map(is_, found, known))


def _is_plain(tensor: Tensor | None, dtype: torch.dtype) -> bool:
    """Numbers that lie one after the other in the CPU's memory."""
    return (
        isinstance(tensor, Tensor)
        and tensor.dtype == dtype
        and tensor.layout == torch.strided
        and tensor.device.type == "cpu"
        and tensor.is_contiguous()
    )
