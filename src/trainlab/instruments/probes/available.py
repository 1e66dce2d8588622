"""What can be probed: the layers and parameters of a model as one training step shows them."""

from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from trainlab.data.nesting import tensors_in
from trainlab.errors import TrainlabError, WorkloadError, said_by
from trainlab.instruments.calls import (
    CallListener,
    CallWatch,
    EndListener,
    WatchedCall,
    constants_of,
    types_of,
)
from trainlab.instruments.probes import quantities as q
from trainlab.instruments.probes.selectors import Selector, no_match, parameters_reached
from trainlab.record.learning_record import target_name
from trainlab.spec.probe import ProbeSpec
from trainlab.train.callbacks import Moments
from trainlab.train.seeds import seeded
from trainlab.train.setup import Setup
from trainlab.train.step import Forward
from trainlab.workloads.user_code import DATA, mistake_in


@dataclass
class Probeable:
    """One call of a layer, or one parameter."""

    name: str
    """`relu`, `relu/2`, `fc1.weight`: as a selector."""
    kind: Literal["module", "function", "parameter"]
    types: tuple[str, ...]
    shape: tuple[int, ...]
    """Of what it gives, or of the parameter."""
    quantities: list[str] = field(default_factory=list)
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
        reason = f"{type(error).__name__}: {said_by(error)}" if mistake is None else str(mistake)
        raise WorkloadError(f"{setup.workload.name}: cannot run a batch: {reason}") from error
    finally:
        watch.uninstall()
    parameters = [
        Probeable(
            name,
            "parameter",
            ("parameter",),
            tuple(parameter.shape),
            ["weight", "grad", "update"] if parameter.requires_grad else ["weight"],
        )
        for name, parameter in setup.model.named_parameters()
    ]
    return [*calls.layers, *parameters]


def check_selectors(specs: tuple[ProbeSpec, ...], setup: Setup) -> None:
    """Raises a SpecError for the first selector that reaches nothing; the set-up is used up by it."""
    layers = [layer for layer in probeable(setup) if layer.kind != "parameter"]
    for spec in specs:
        selectors = [Selector(text) for text in spec.select]
        if spec.is_of_parameters:
            _, missed = parameters_reached(setup.model, selectors)
            names = [name for name, _ in setup.model.named_parameters()]
            names += [name for name, _ in setup.model.named_modules() if name]
            types = [types_of(module)[0] for module in setup.model.modules()]
        else:
            # A layer that this one pass did not call may yet be called in training.
            called = {layer.name.partition("/")[0] for layer in layers}
            uncalled = [
                (name, types_of(module))
                for name, module in setup.model.named_modules()
                if name and name not in called
            ]
            missed = [
                selector
                for selector in selectors
                if not any(_reaches(selector, layer) for layer in layers)
                and not any(selector.reaches(name, types) for name, types in uncalled)
            ]
            names = [layer.name for layer in layers]
            types = [layer.types[0] for layer in layers]
        if missed:
            what: Literal["layer", "parameter"] = "parameter" if spec.is_of_parameters else "layer"
            raise no_match(str(spec), missed[0], names, types, what, is_listed=True)


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
            given = q.main_tensor(tensors_in(arguments), self._constants)
            has_gradient = given is not None and given.requires_grad
        place = len(self.layers)

        def ends(returned: Any, keywords: Any) -> bool:
            made = list(tensors_in(returned))
            with torch._C.DisableTorchFunction():
                result, source = q.main_tensor(made), given
                if source is None:
                    source = q.main_tensor(tensors_in(keywords), self._constants)
                if result is None:
                    return bool(made)
                quantities = ["activation"]
                if source is not None:
                    quantities.append("pre_activation")
                if result.grad_fn is not None:
                    quantities.append("grad_output")
                    if has_gradient or (
                        given is None and source is not None and source.requires_grad
                    ):
                        quantities.append("grad_input")
                if any(name.lower().rstrip("_") in q.SLOPES for name in call.types):
                    quantities.append("local_grad")
                name = target_name(call.name, call.number)
                layer = Probeable(name, call.kind, call.types, tuple(result.shape), quantities)
            # A container ends after what it calls, and stands before it.
            self.layers.insert(place, layer)
            return True

        return ends
