"""State: what a checkpoint holds of models, optimizers and random numbers, as tensors and plain values."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class State:
    """Tensors by name, and values that JSON holds exactly."""

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)


def model_state(model: nn.Module, *, with_gradients: bool) -> State:
    """Parameters, buffers and, where they pile up from update to update, gradients."""
    tensors: dict[str, Tensor] = {}
    tensors |= {f"parameter.{name}": one for name, one in model.named_parameters()}
    tensors |= {f"buffer.{name}": one for name, one in model.named_buffers()}
    if with_gradients:
        gradients = ((name, one.grad) for name, one in model.named_parameters())
        tensors |= {f"gradient.{name}": one for name, one in gradients if one is not None}
    return State(tensors)


def restore_model(model: nn.Module, state: State) -> None:
    """Puts the numbers into the model's own tensors."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(state.tensors[f"parameter.{name}"])
            gradient = state.tensors.get(f"gradient.{name}")
            if gradient is not None:
                parameter.grad = gradient.to(parameter.device)
        for name, buffer in model.named_buffers():
            buffer.copy_(state.tensors[f"buffer.{name}"])


def nested_state(name: str, value: Any) -> State:
    """Any nesting of tensors and plain values in mappings, lists and tuples, under a name."""
    tensors = dict[str, Tensor]()

    def told(one: Any) -> Any:
        if isinstance(one, Tensor):
            place = f"{name}.{len(tensors)}"
            tensors[place] = one.detach()
            return {"tensor": place}
        if isinstance(one, Mapping):
            return {"mapping": [[key, told(item)] for key, item in one.items()]}
        if isinstance(one, tuple):
            return {"tuple": [told(item) for item in one]}
        return [told(item) for item in one] if isinstance(one, list) else one

    return State(tensors, {name: told(value)})


def restored_nested(name: str, state: State) -> Any:
    """What `nested_state` took under that name."""

    def made(one: Any) -> Any:
        if isinstance(one, list):
            return [made(item) for item in one]
        if not isinstance(one, dict):
            return one
        ((kind, content),) = one.items()
        if kind == "tensor":
            return state.tensors[content]
        if kind == "mapping":
            return {key: made(item) for key, item in content}
        return tuple(made(item) for item in content)

    return made(state.values[name])


def random_state(device: torch.device) -> State:
    """Of all generators that a model may draw from without being told: torch's, numpy's, Python's."""
    tensors = {"random.torch": torch.random.get_rng_state()}
    if device.type == "cuda":
        tensors["random.cuda"] = torch.cuda.get_rng_state(device)
    version, numbers, gauss = random.getstate()
    kind, words, place, has_gauss, cached = np.random.get_state(legacy=True)
    of_numpy = [str(kind), [int(word) for word in words], place, has_gauss, cached]
    return State(tensors, {"random": {"python": [version, numbers, gauss], "numpy": of_numpy}})


def restore_random(device: torch.device, state: State) -> None:
    """Draws go on where they were."""
    torch.random.set_rng_state(state.tensors["random.torch"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(state.tensors["random.cuda"], device)
    told = state.values["random"]
    version, numbers, gauss = told["python"]
    random.setstate((version, tuple(numbers), gauss))
    kind, words, place, has_gauss, cached = told["numpy"]
    np.random.set_state((kind, np.array(words, np.uint32), place, has_gauss, cached))


def merged(*states: State) -> State:
    """All of them in one; their names must differ."""
    tensors = {name: one for state in states for name, one in state.tensors.items()}
    values = {name: one for state in states for name, one in state.values.items()}
    assert len(tensors) == sum(len(state.tensors) for state in states)
    return State(tensors, values)
