"""What modules keep in Python beside parameters and buffers: a counter, say. No checkpoint holds it."""

from collections.abc import Iterable, Sized
from typing import Any

from torch import nn

from trainlab.train.engines.capture import TORCH_OWN, fingerprint

CHANGING = ("training", "_forward", "_backward")
"""How attributes of torch's own begin that change without the model's doing: hooks, say."""


def python_state(models: Iterable[nn.Module]) -> dict[str, Any]:
    """Something that differs, as soon as what modules keep in Python does, as far as that can be seen."""
    found: dict[str, Any] = {}
    for number, model in enumerate(models):
        for path, module in model.named_modules():
            for name, value in vars(module).items():
                if name.startswith(CHANGING):
                    continue
                seen = _seen(value) if name in TORCH_OWN else fingerprint(value)
                found[f"{number}.{path}.{name}"] = seen
    return found


def has_extra_state(models: Iterable[nn.Module]) -> bool:
    """Whether a module keeps a state of its own making, which may be anything."""
    modules = (module for model in models for module in model.modules())
    return any(type(one).get_extra_state is not nn.Module.get_extra_state for one in modules)


def _seen(value: Any) -> Any:
    """Of what every module has: its tables of parameters and the like, whose numbers a checkpoint holds."""
    return (id(value), len(value)) if isinstance(value, Sized) else value
