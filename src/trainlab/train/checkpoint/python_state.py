"""What modules keep in Python beside parameters and buffers: a counter, say. No checkpoint holds it."""

from collections.abc import Iterable, Sized
from typing import Any

from torch import Tensor, nn

TORCH_OWN = ("training", "_forward", "_backward")
"""How attributes of torch's own begin that change without the model's doing: hooks, say."""
SHORT = 16


def python_state(models: Iterable[nn.Module]) -> dict[str, Any]:
    """Something that differs, as soon as what modules keep in Python does, as far as that can be seen."""
    found: dict[str, Any] = {}
    for number, model in enumerate(models):
        for path, module in model.named_modules():
            for name, value in vars(module).items():
                if not name.startswith(TORCH_OWN):
                    found[f"{number}.{path}.{name}"] = _seen(value)
    return found


def has_extra_state(models: Iterable[nn.Module]) -> bool:
    """Whether a module keeps a state of its own making, which may be anything."""
    modules = (module for model in models for module in model.modules())
    return any(type(one).get_extra_state is not nn.Module.get_extra_state for one in modules)


def _seen(value: Any) -> Any:
    if isinstance(value, Tensor):
        return id(value), value._version
    if _is_plain(value):
        return value
    if isinstance(value, tuple | list) and len(value) <= SHORT and all(map(_is_plain, value)):
        return tuple(value)
    return (id(value), len(value)) if isinstance(value, Sized) else None


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)
