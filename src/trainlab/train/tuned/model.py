"""TunedModel: a model whose layers are computed in the ways chosen, while it runs and only then."""

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MethodType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from trainlab.train.tuned.layers import KINDS, kind_of
from trainlab.train.tuned.ways import ALL_TORCH, Ways, is_plain, is_transforming

WaysBySize = Mapping[int, Ways]
"""By the number of samples for which they were measured."""


class TunedModel:
    """Calls the model. Before and after the call its layers are as ever: copies, files of weights and other
    callers see nothing of it."""

    def __init__(
        self, model: nn.Module, ways: Mapping[str, tuple[tuple[int, ...], WaysBySize]]
    ) -> None:
        """`ways`: by layer, the shape of one sample and the ways for so many of them."""
        self._model = model
        layers = dict(model.named_modules())
        self._forwards = [
            (layers[name].__dict__, MethodType(_TunedForward(shape, by_size), layers[name]))
            for name, (shape, by_size) in ways.items()
        ]

    def __call__(self, inputs: Any) -> Any:
        with self.tuned():
            return self._model(inputs)

    @contextmanager
    def tuned(self) -> Iterator[None]:
        """In this block the layers are computed in the ways chosen."""
        for attributes, forward in self._forwards:
            attributes["forward"] = forward
        try:
            yield
        finally:
            for attributes, _ in self._forwards:
                attributes.pop("forward", None)


class _TunedForward:
    """The `forward` of a layer; torch's for an input that the ways were not measured for."""

    def __init__(self, shape: tuple[int, ...], by_size: WaysBySize) -> None:
        self._shape = shape
        self._by_size = sorted(by_size.items(), reverse=True)

    def __call__(self, module: nn.Module, x: Tensor) -> Tensor:
        kind, is_vectorised = KINDS[type(module)], is_transforming()
        assert isinstance(module.weight, Tensor)
        fits = x.shape[1:] == self._shape and is_plain(x) and is_plain(module.weight)
        ways = self._ways_for(len(x)) if fits else ALL_TORCH
        # Many at once gain even where one does not: torch's gradient would lie transposed in memory.
        gains = kind.runs_in_vmap if is_vectorised else ways != ALL_TORCH
        if not fits or not gains or torch.is_autocast_enabled("cpu"):
            output: Tensor = type(module).forward(module, x)
            return output
        return kind.run(module, x, ways)

    def _ways_for(self, size: int) -> Ways:
        """Those of the largest number measured that is not above this one, else of the smallest."""
        return next((ways for least, ways in self._by_size if least <= size), self._by_size[-1][1])


class Call(NamedTuple):
    """How a layer is called."""

    shape: tuple[int, ...]
    """Of one sample of its input."""
    needs_grad_input: bool


def sample_calls(model: nn.Module, inputs: Any) -> dict[str, Call]:
    """The first call of each layer that can be tuned, by its name. Runs a copy of the model,
    so that nothing of the trial is touched."""
    if not any(map(kind_of, model.modules())):
        return {}
    copied = copy.deepcopy(model).eval()
    calls: dict[str, Call] = {}

    def watcher(name: str, dims: int) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        def see(module: nn.Module, given: tuple[Any, ...]) -> None:
            x = given[0] if given else None
            if name not in calls and isinstance(x, Tensor) and x.dim() == dims and is_plain(x):
                calls[name] = Call(tuple(x.shape[1:]), x.requires_grad)

        return see

    for name, module in copied.named_modules():
        if (kind := kind_of(module)) is not None:
            module.register_forward_pre_hook(watcher(name, kind.dims))
    with torch.enable_grad():
        copied(inputs)
    return calls
