"""What of a model keeps its step from being a program, as far as one can tell before it runs."""

import copy
import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from trainlab.train.program.python.fingerprint import TORCH_OWN, is_plain, state_of
from trainlab.train.program.unsuited import Unsuited

REAL = (torch.float32, torch.float64)
"""Types of parameters whose updates are computed as torch computes them."""


def check_model(model: nn.Module) -> None:
    """Raises for hooks that would not run, tensors that share memory, and numbers of another kind."""
    for name, parameter in model.named_parameters():
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
            raise Unsuited("not_hooked", what=name)
        if parameter.requires_grad and parameter.dtype not in REAL:
            raise Unsuited("not_real", what=name, dtype=str(parameter.dtype).removeprefix("torch."))
    _check_apart(model)
    _check_train(model)


def _check_train(model: nn.Module) -> None:
    """Raises where being put into training mode changes more than that: it is done once more often here."""
    if all(type(one).train is nn.Module.train for one in model.modules()):
        return
    try:
        tried = copy.deepcopy(model).train()
    except Exception as error:
        raise Unsuited("not_copied") from error
    before = state_of(tried, with_buffers=True)
    if state_of(tried.train(), with_buffers=True) != before:
        raise Unsuited("not_stateless", what="train()")


def _check_apart(model: nn.Module) -> None:
    """Views of one piece of memory would come apart when each gets its place among the others'."""
    named = [*model.named_parameters(), *model.named_buffers(remove_duplicate=False)]
    spans = sorted((tensor.data_ptr(), *_end_and_name(name, tensor)) for name, tensor in named)
    end = 0
    for start, stop, name in spans:
        if start < end and stop > start:
            raise Unsuited("not_apart", what=name)
        end = max(end, stop)


def _end_and_name(name: str, tensor: Tensor) -> tuple[int, str]:
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    num_bytes = (last + 1) * tensor.element_size() if tensor.numel() else 0
    return tensor.data_ptr() + num_bytes, name


def check_alike(models: Sequence[nn.Module], *, have_same_settings: bool) -> None:
    """Raises where the models of lanes differ in more than their numbers and the probability of dropout,
    since the modules of the first run for all."""
    first = _shape_of(models[0], have_same_settings=have_same_settings)
    for model in models[1:]:
        if _shape_of(model, have_same_settings=have_same_settings) != first:
            raise Unsuited("not_alike")


def _shape_of(model: nn.Module, *, have_same_settings: bool) -> list[object]:
    """All that one can tell of a model but its numbers."""
    found: list[object] = [
        (name, tuple(tensor.shape), tensor.dtype, tensor.requires_grad)
        for name, tensor in (*model.named_parameters(), *model.named_buffers())
    ]
    for path, module in model.named_modules():
        found.append((path, type(module)))
        for name, value in vars(module).items():
            if name in TORCH_OWN or (name == "p" and isinstance(module, _DropoutNd)):
                continue
            if is_plain(value):
                found.append((path, name, value))
            elif isinstance(value, Tensor | np.ndarray):
                # No lane of its own: the first trial's would serve them all.
                found.append((path, name, _content(value)))
            elif not have_same_settings and not isinstance(value, Tensor | nn.Module):
                raise Unsuited("not_alike")  # what it holds cannot be compared
    return found


def _content(value: "Tensor | np.ndarray[Any, Any]") -> tuple[object, ...]:
    """Equal where the numbers are."""
    array = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
    return array.shape, str(array.dtype), hashlib.sha256(array.tobytes()).hexdigest()
