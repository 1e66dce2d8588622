"""A user's own reducer: `FILE.py:FUNCTION`, a function from a tensor to a tensor of one number."""

import importlib.util
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from trainlab.errors import SpecError, said_by
from trainlab.instruments.probes.reducers import Reduce
from trainlab.spec.probe import ProbeSpec


def own_reducer(spec: ProbeSpec) -> Reduce | None:
    """The function a probe names, or None where its reducer is one of ours."""
    if spec.function is None:
        return None
    path, name = Path(spec.function[0]), spec.function[1]
    if not path.is_file():
        raise SpecError([f"probe {spec}: {path}: no such file"])
    module_spec = importlib.util.spec_from_file_location(f"trainlab_own_{path.stem}", path)
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    try:
        module_spec.loader.exec_module(module)
    except Exception as error:
        reason = f"{type(error).__name__}: {said_by(error)}"
        raise SpecError([f"probe {spec}: {path}: cannot be read: {reason}"]) from error
    function = getattr(module, name, None)
    if not callable(function):
        names = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        listed = f"; it has {', '.join(names)}" if names else ""
        raise SpecError([f"probe {spec}: {path} has no function {name!r}{listed}"])
    return _checked(spec, function)


def _checked(spec: ProbeSpec, function: Callable[[Tensor], object]) -> Reduce:
    """The function with its result checked: one number per tensor, averaged over a period."""

    def reduce(values: Tensor) -> Tensor:
        try:
            result = function(values)
        except Exception as error:
            reason = f"{type(error).__name__}: {said_by(error)}"
            raise SpecError([f"probe {spec}: {spec.reducer} failed: {reason}"]) from error
        if not isinstance(result, Tensor) or result.dim() != 0:
            got = f"shape {tuple(result.shape)}" if isinstance(result, Tensor) else repr(result)
            problem = f"{spec.reducer} gave {got}, must be a tensor of one number"
            raise SpecError([f"probe {spec}: {problem}"])
        return result.detach().to(torch.float32 if values.device.type == "mps" else torch.float64)

    return reduce
