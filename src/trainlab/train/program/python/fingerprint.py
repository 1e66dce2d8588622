"""Fingerprints of what a model keeps between steps, to tell whether a step has changed it."""

import random
from collections import deque
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

TORCH_OWN = frozenset(vars(nn.Module())) - {"training"}
"""Attributes that every module has."""
PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
MOST_ITEMS = 1000
MOST_NUMBERS = 1 << 20
DEEPEST = 4


def is_plain(value: Any) -> bool:
    """Whether a value says all there is to it when it is compared."""
    if isinstance(value, tuple | list | frozenset | set):
        return len(value) < MOST_ITEMS and all(map(is_plain, value))
    if isinstance(value, dict):
        return len(value) < MOST_ITEMS and all(map(is_plain, value.values()))
    return isinstance(value, PLAIN)


def state_of(part: Any, *, with_buffers: bool) -> dict[str, Any]:
    """Of a model, a loss or a function: what its attributes hold, by name."""
    if not isinstance(part, nn.Module):
        return {"": fingerprint(part)}
    attributes = {
        f"{path}.{name}".lstrip("."): fingerprint(value)
        for path, module in part.named_modules()
        for name, value in vars(module).items()
        if name not in TORCH_OWN
    }
    tensors = dict(part.named_parameters()) | (dict(part.named_buffers()) if with_buffers else {})
    # The version too: an average of the weights is what they are until these have moved.
    return attributes | {name: (one._version, _numbers(one)) for name, one in tensors.items()}


def fingerprint(value: Any, depth: int = 0) -> Any:
    """Equal for a value that did not change, as far as one can tell from outside."""
    if isinstance(value, PLAIN):
        return value if value == value else repr(value)  # what is no number equals nothing
    if depth > DEEPEST:
        return id(value)
    if isinstance(value, Tensor):
        return id(value), value._version, _numbers(value)
    if isinstance(value, nn.Module):
        return id(value)
    if isinstance(value, list | tuple | deque | set | frozenset) and len(value) < MOST_ITEMS:
        return type(value).__name__, tuple(fingerprint(one, depth + 1) for one in value)
    if isinstance(value, dict) and len(value) < MOST_ITEMS:
        return tuple((str(key), fingerprint(one, depth + 1)) for key, one in value.items())
    if (drawn := _random_state(value)) is not None:
        return id(value), drawn
    if isinstance(value, np.ndarray):
        return id(value), value.tobytes() if value.nbytes < MOST_NUMBERS else value.shape
    own = getattr(value, "__dict__", None)
    if isinstance(own, dict) and not isinstance(value, type) and len(own) < MOST_ITEMS:
        return id(value), tuple((name, fingerprint(one, depth + 1)) for name, one in own.items())
    return id(value)


def _random_state(value: Any) -> str | None:
    """Of what gives another number each time."""
    if isinstance(value, count):
        return repr(value)
    if isinstance(value, random.SystemRandom):
        return None  # it has none
    if isinstance(value, torch.Generator):
        return value.get_state().numpy().tobytes().hex()
    if isinstance(value, np.random.Generator):
        return str(value.bit_generator.state)
    return str(value.getstate()) if isinstance(value, random.Random) else None


def _numbers(tensor: Tensor) -> Any:
    """What the numbers add up to, where they are not too many."""
    if tensor.layout != torch.strided or not tensor.numel() or tensor.is_complex():
        return tuple(tensor.shape)
    numbers = tensor.detach().double()
    return float(numbers.sum()).hex(), float(numbers.abs().sum()).hex()
