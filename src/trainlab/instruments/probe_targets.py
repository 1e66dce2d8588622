"""Selectors: which layers and parameters a probe reaches, by name, glob or type."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from trainlab.errors import SpecError
from trainlab.instruments.calls import types_of
from trainlab.spec.probe import ProbeSpec

MOST_NAMES = 40
"""Of layers in an error line; with a command that lists them all, `MOST_WITH_LIST`."""
MOST_WITH_LIST = 12


class Selector:
    """One selector: a name or glob, perhaps with the number of a call, or a type."""

    def __init__(self, text: str) -> None:
        self.text, self.is_type = text, text.startswith("type=")
        name, _, number = text.rpartition("/")
        self._number = int(number) if name and number.isdigit() and not self.is_type else None
        self.pattern = text.removeprefix("type=") if self._number is None else name
        """What names or types are held against."""
        self.is_glob = any(sign in self.pattern for sign in "*?[")
        """Whether it may reach several names; `*` crosses dots."""

    def reaches(self, name: str, types: Sequence[str], number: int | None = None) -> bool:
        """Whether it reaches a call of that name and type; without a number, any call of it."""
        if self.is_type:
            return any(fnmatchcase(kind, self.pattern) for kind in types)
        if self._number is not None and number is not None and self._number != number:
            return False
        return fnmatchcase(name, self.pattern) if self.is_glob else name == self.pattern


def parameters_reached(
    model: nn.Module, spec: ProbeSpec, **listed: bool
) -> dict[str, nn.Parameter]:
    """Parameters by name, each once, in the order of the model; SpecError for a selector that reaches none.

    A selector that reaches a layer reaches every parameter in it.
    """
    named = list(model.named_parameters(remove_duplicate=False))
    modules = [(name, module) for name, module in model.named_modules() if name]
    reached: set[int] = set()
    for selector in map(Selector, spec.select):
        found = {id(one) for name, one in named if selector.reaches(name, ("parameter",))}
        for name, module in modules:
            if selector.reaches(name, types_of(module)):
                found |= {id(one) for one in module.parameters()}
        if not found:
            names = [name for name, _ in (*model.named_parameters(), *modules)]
            types = [types_of(module)[0] for module in model.modules()]
            raise no_match(str(spec), selector, names, types, "parameter", **listed)
        reached |= found
    return {name: one for name, one in model.named_parameters() if id(one) in reached}


def no_match(
    probe: str,
    selector: Selector,
    names: Iterable[str],
    types: Iterable[str],
    what: str,
    *,
    is_listed: bool = False,
) -> SpecError:
    """The error of a selector that reaches no layer, or no parameter, with the nearest that would, and what
    there is; where `trainlab probes` lists that, with the command."""
    known = list(dict.fromkeys(types if selector.is_type else names))
    near = [name for name in known if name.endswith(f".{selector.pattern}")][:3]
    near = near or get_close_matches(selector.pattern, known, n=3, cutoff=0.5)
    if selector.is_type:
        near, known = [f"type={name}" for name in near], [f"type={name}" for name in known]
    most = MOST_WITH_LIST if is_listed else MOST_NAMES
    listed = ", ".join(known[:most]) + (", …" if len(known) > most else "")
    hints = [f"did you mean {' or '.join(near)}?"] if near else []
    if not (near and is_listed):
        hints.append(f"there are {listed or 'none'}")
    if is_listed:
        hints.append("see `trainlab probes WORKLOAD`")
    rule = "reaches no layer" if what == "layer" else "reaches no parameter"
    return SpecError([f"probe {probe}: {selector.text!r} {rule}; {'; '.join(hints)}"])


def main_tensor(
    tensors: Iterable[Tensor], constants: frozenset[int] = frozenset()
) -> Tensor | None:
    """The tensor that a call is about: the first of floating point, one that is no parameter or buffer if
    there is such a one."""
    usable = [
        tensor
        for tensor in tensors
        if tensor.is_floating_point() and not tensor.is_nested and tensor.layout == torch.strided
    ]
    moving = [tensor for tensor in usable if id(tensor) not in constants]
    return next(iter(moving or usable), None)
