"""What can be probed in a model: its layers in the order of their calls, and its parameters."""

from dataclasses import dataclass

from trainlab.errors import TrainlabError, WorkloadError, said_by
from trainlab.instruments.calls import types_of
from trainlab.instruments.probe_channels import Channels, Kind, slope_name
from trainlab.instruments.probe_hooks import ProbedCalls, Selector, no_match, parameters_reached
from trainlab.spec.probe import ProbeSpec, probe_of
from trainlab.train.callbacks import Moments
from trainlab.train.seeds import seeded
from trainlab.train.setup import Setup
from trainlab.train.step import Forward
from trainlab.workloads.user_code import DATA, mistake_in

OF_CALLS = ("activation", "pre_activation", "grad_output", "grad_input")


@dataclass
class Probeable:
    """One call of a layer, or one parameter."""

    name: str
    """`relu`, `relu/2`, `fc1.weight`: as a selector."""
    kind: Kind
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
    """Layers in the order of their calls, then parameters; runs one forward pass in training mode, with
    probes of all that can be watched at calls."""
    specs = [probe_of(f"*:{quantity}:sum") for quantity in OF_CALLS]
    channels = Channels(specs, setup.device)
    calls = ProbedCalls(setup.model, specs, channels)
    forward = Forward(setup, Moments([]))
    setup.model.train()
    try:
        with seeded(setup.trial.seed_of("dropout"), "dropout", 1, setup.device):
            with DATA:
                sample = setup.train_batches.sample()
            batch = forward.prepare(sample)
            with calls.watching():
                forward.run(batch)
    except TrainlabError:
        raise
    except (Exception, SystemExit) as error:
        mistake = mistake_in(error, setup.workload.place)
        told = f"{type(error).__name__}: {said_by(error)}" if mistake is None else mistake.mistake
        raise WorkloadError(f"{setup.workload.name}: cannot run a batch: {told}") from error
    found: dict[str, Probeable] = {}
    for channel in channels.of(specs[0]):
        if channel.fired:
            (shape,) = channel.shapes
            found[channel.name] = Probeable(channel.name, channel.kind, channel.types, shape, [])
    for channel in channels.all():
        if channel.name in found and channel.why_not is None:
            found[channel.name].quantities.append(channel.spec.quantity)
    for layer in found.values():
        layer.quantities += ["local_grad"] if slope_name(layer.types) is not None else []
    for name, parameter in setup.model.named_parameters():
        watched = ["weight", "grad", "update"] if parameter.requires_grad else ["weight"]
        shape = tuple(parameter.shape)
        found[f"parameter {name}"] = Probeable(name, "parameter", ("parameter",), shape, watched)
    return list(found.values())


def check_selectors(specs: tuple[ProbeSpec, ...], setup: Setup) -> None:
    """Raises a SpecError for the first selector that reaches nothing; the set-up is used up by it."""
    layers = [layer for layer in probeable(setup) if layer.kind != "parameter"]
    reachable: list[tuple[str, tuple[str, ...], int | None]] = []
    for layer in layers:
        name, _, number = layer.name.partition("/")
        reachable.append((name, layer.types, int(number or 1)))
    # A layer that this one pass did not call may yet be called in training.
    called = {name for name, _, _ in reachable}
    modules = dict(setup.model.named_modules())
    uncalled = modules.keys() - called - {""}
    reachable += [(name, types_of(modules[name]), None) for name in uncalled]
    for spec in specs:
        if spec.is_of_parameters:
            parameters_reached(setup.model, spec, is_listed=True)
            continue
        for selector in map(Selector, spec.select):
            if not any(selector.reaches(*one) for one in reachable):
                names, types = [one.name for one in layers], [one.types[0] for one in layers]
                raise no_match(str(spec), selector, names, types, "layer", is_listed=True)
