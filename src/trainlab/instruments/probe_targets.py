"""Selectors: which layers and parameters a probe reaches, by name, glob or type."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, Literal

import torch
from torch import Tensor, nn

from trainlab.data.nesting import tensors_in
from trainlab.errors import SpecError, TrainlabError, WorkloadError, said_by
from trainlab.instruments.calls import (
    CallListener,
    CallWatch,
    EndListener,
    WatchedCall,
    constants_of,
    types_of,
)
from trainlab.instruments.probe_channels import slope_name
from trainlab.record.learning_record import target_name
from trainlab.spec.probe import ProbeSpec
from trainlab.train.callbacks import Moments
from trainlab.train.seeds import seeded
from trainlab.train.setup import Setup
from trainlab.train.step import Forward
from trainlab.workloads.user_code import DATA, mistake_in

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


@dataclass
class Probeable:
    """One call of a layer, or one parameter."""

    name: str
    """`relu`, `relu/2`, `fc1.weight`: as a selector."""
    kind: Literal["module", "function", "parameter"]
    types: tuple[str, ...]
    shape: tuple[int, ...]
    """Of what it gives, or of the parameter."""
    quantities: list[str]
    """Those that can be watched there."""

    @property
    def selectors(self) -> tuple[str, ...]:
        """What reaches it, the narrowest first."""
        if self.kind == "parameter":
            return self.name, f"*.{self.name.rpartition('.')[2]}"
        layer = self.name.partition("/")[0]
        return tuple(dict.fromkeys((self.name, layer, f"type={self.types[0]}")))


def probeable(setup: Setup) -> list[Probeable]:
    """Layers in the order of their calls, then parameters; runs one forward pass in training mode."""
    calls = _CallList(constants_of(setup.model))
    watch = CallWatch(setup.model, calls)
    forward = Forward(setup, Moments([]))
    setup.model.train()
    watch.install()
    try:
        with seeded(setup.trial.seed_of("dropout"), "dropout", 1, setup.device):
            with DATA:
                sample = setup.train_batches.sample()
            batch = forward.prepare(sample)
            watch.start_watching()
            forward.run(batch)
    except TrainlabError:
        raise
    except (Exception, SystemExit) as error:
        mistake = mistake_in(error, setup.workload.place)
        reason = f"{type(error).__name__}: {said_by(error)}" if mistake is None else mistake.mistake
        raise WorkloadError(f"{setup.workload.name}: cannot run a batch: {reason}") from error
    finally:
        watch.uninstall()
    return calls.layers + [
        Probeable(
            name,
            "parameter",
            ("parameter",),
            tuple(parameter.shape),
            ["weight", "grad", "update"] if parameter.requires_grad else ["weight"],
        )
        for name, parameter in setup.model.named_parameters()
    ]


def check_selectors(specs: tuple[ProbeSpec, ...], setup: Setup) -> None:
    """Raises a SpecError for the first selector that reaches nothing; the set-up is used up by it."""
    layers = [layer for layer in probeable(setup) if layer.kind != "parameter"]
    # A layer that this one pass did not call may yet be called in training.
    called = {layer.name.partition("/")[0] for layer in layers}
    modules = dict(setup.model.named_modules())
    uncalled = [(name, types_of(modules[name])) for name in modules.keys() - called - {""}]
    for spec in specs:
        if spec.is_of_parameters:
            parameters_reached(setup.model, spec, is_listed=True)
            continue
        for selector in map(Selector, spec.select):
            if not any(_reaches(selector, layer) for layer in layers) and not any(
                selector.reaches(name, types) for name, types in uncalled
            ):
                names, types = [one.name for one in layers], [one.types[0] for one in layers]
                raise no_match(str(spec), selector, names, types, "layer", is_listed=True)


def _reaches(selector: Selector, layer: Probeable) -> bool:
    name, _, number = layer.name.partition("/")
    return selector.reaches(name, layer.types, int(number or 1))


class _CallList(CallListener):
    """Notes every call that makes a floating-point tensor."""

    def __init__(self, constants: frozenset[int]) -> None:
        self.layers: list[Probeable] = []
        self._constants = constants

    def call_begins(self, call: WatchedCall, arguments: Any) -> EndListener:
        with torch._C.DisableTorchFunction():  # what is asked of a tensor is no call of the model
            given = main_tensor(tensors_in(arguments), self._constants)
            has_gradient = given is not None and given.requires_grad
        place = len(self.layers)

        def ends(returned: Any) -> bool:
            made = list(tensors_in(returned))
            with torch._C.DisableTorchFunction():
                result = main_tensor(made)
                if result is None:
                    return bool(made)
                has_graph = result.grad_fn is not None
                quantities = {
                    "activation": True,
                    "pre_activation": given is not None,
                    "grad_output": has_graph,
                    "grad_input": has_graph and has_gradient,
                    "local_grad": slope_name(call.types) is not None,
                }
                layer = Probeable(
                    target_name(call.name, call.number),
                    call.kind,
                    call.types,
                    tuple(result.shape),
                    [quantity for quantity, has_one in quantities.items() if has_one],
                )
            # A container ends after what it calls, and stands before it.
            self.layers.insert(place, layer)
            return True

        return ends
