"""Selectors: which layers and parameters a probe reaches, by name, glob or type."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Literal

from torch import nn

from trainlab.errors import SpecError
from trainlab.instruments.calls import types_of

MOST_NAMES = 40
"""Of layers in an error line; with a command that lists them all, `MOST_WITH_LIST`."""
MOST_WITH_LIST = 12


@dataclass(frozen=True)
class Selector:
    """One selector: a name or glob, perhaps with the number of a call, or a type."""

    text: str

    @property
    def is_type(self) -> bool:
        """Whether it selects by type."""
        return self.text.startswith("type=")

    @property
    def pattern(self) -> str:
        """What names or types are held against."""
        return self.text.removeprefix("type=") if self.is_type else self._split()[0]

    @property
    def is_glob(self) -> bool:
        """Whether it may reach several names; `*` crosses dots."""
        return any(sign in self.pattern for sign in "*?[")

    def reaches(self, name: str, types: Sequence[str], number: int | None = None) -> bool:
        """Whether it reaches a call of that name and type; without a number, any call of it."""
        if self.is_type:
            return any(fnmatchcase(kind, self.pattern) for kind in types)
        wanted = self._split()[1]
        if wanted is not None and number is not None and wanted != number:
            return False
        return fnmatchcase(name, self.pattern) if self.is_glob else name == self.pattern

    def _split(self) -> tuple[str, int | None]:
        name, slash, number = self.text.rpartition("/")
        return (name, int(number)) if slash and number.isdigit() else (self.text, None)


def parameters_reached(
    model: nn.Module, selectors: Iterable[Selector]
) -> tuple[dict[str, nn.Parameter], list[Selector]]:
    """Parameters by name, each once, in the order of the model; and selectors that reach none.

    A selector that reaches a layer reaches every parameter in it.
    """
    named = list(model.named_parameters(remove_duplicate=False))
    known: dict[int, tuple[int, str]] = {}
    for place, (name, parameter) in enumerate(named):
        known.setdefault(id(parameter), (place, name))
    reached: dict[int, nn.Parameter] = {}
    missed = []
    for selector in selectors:
        parameters = [
            parameter for name, parameter in named if selector.reaches(name, ("parameter",))
        ]
        for name, module in model.named_modules():
            if name and selector.reaches(name, types_of(module)):
                parameters += module.parameters()
        reached |= {id(parameter): parameter for parameter in parameters}
        if not parameters:
            missed.append(selector)
    ordered = sorted(reached, key=lambda key: known[key])
    return {known[key][1]: reached[key] for key in ordered}, missed


def no_match(
    probe: str,
    selector: Selector,
    names: Iterable[str],
    types: Iterable[str],
    what: Literal["layer", "parameter"],
    *,
    is_listed: bool = False,
) -> SpecError:
    """The error of a selector that reaches nothing, with the nearest that would, and what there is; where
    `trainlab probes` lists that, with the command."""
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
