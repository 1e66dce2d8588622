"""What nobody can see inside: compiled, scripted and traced modules. Each runs as one call."""

import copy
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn


def is_opaque(module: nn.Module) -> bool:
    """Whether what it calls runs elsewhere than in Python, so that no hook is told of it: compiled by
    `torch.compile(module)`, `module.compile()` or above its `forward`, or scripted."""
    if _is_wrapper(module) or getattr(module, "_compiled_call_impl", None) is not None:
        return True
    has_compiled_forward = hasattr(module.forward, "_torchdynamo_orig_callable")
    return has_compiled_forward or isinstance(module, torch.jit.ScriptModule)


def opaque_modules(model: nn.Module, path: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The outermost ones by their paths; what is inside them is not looked at."""
    if is_opaque(model):
        yield path, model
        return
    for name, child in model.named_children():
        yield from opaque_modules(child, f"{path}.{name}" if path else name)


def opaque_names(model: nn.Module) -> list[str]:
    """For a note: by their paths, or the class of the model itself."""
    return [path or type(module).__name__ for path, module in opaque_modules(model)]


def uncompiled_copy(model: nn.Module) -> nn.Module:
    """The model as it was written, with the same parameters: compiling leaves what it computes as it is."""
    shared = {id(parameter): parameter for parameter in model.parameters()}
    return _unwrapped(copy.deepcopy(_inner(model), shared))


def plain_name(name: str) -> str:
    """What a name in a state_dict is where nothing is compiled."""
    return name.replace("_orig_mod.", "")


def uncompiled() -> AbstractContextManager[Any]:
    """Inside, what is compiled runs as it was written: to count its operators."""
    if "torch._dynamo.eval_frame" not in sys.modules:
        return nullcontext()
    stance: AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return stance


def _unwrapped(model: nn.Module) -> nn.Module:
    for name, child in list(model.named_children()):
        setattr(model, name, _unwrapped(_inner(child)))
    return model


def _inner(module: nn.Module) -> nn.Module:
    while _is_wrapper(module):
        module = module._orig_mod  # type: ignore[assignment]
    return module


def _is_wrapper(module: nn.Module) -> bool:
    """Whether `torch.compile` made it; its class is not imported, which takes a second."""
    return "_orig_mod" in module._modules
