"""That a probe tells what keeping every tensor would tell, costs the training nothing and proves it.

The oracles keep all tensors with torch's own hooks and reduce them in float64. Models: models.py.
"""

import dataclasses
import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import Tensor, nn
from torch.utils.tensorboard import SummaryWriter

from models import ZOO, Raising, is_unwatched, mean_of_logits
from training import HomedSetup, MakeSetup, probed
from trainlab.data.nesting import tensors_in
from trainlab.errors import SpecError
from trainlab.instruments.tensorboard import write_probe
from trainlab.spec.probe import probe_of
from trainlab.train.callbacks import Instrument, Phase, TrialView
from trainlab.words import Words
from trainlab.workloads.workload import Workload


class Convolutions(nn.Module):
    """Images: convolutions, an in-place ReLU as a function, pooling, batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.conv2, self.last = nn.Conv2d(4, 6, 2), nn.Linear(6, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        images = inputs.view(-1, 1, 2, 4)
        hidden = F.relu(self.norm(self.conv1(images)), inplace=True)
        return self.last(F.relu(self.conv2(hidden)).amax((2, 3)))


class Block(nn.Linear):
    """x + f(x): its input has two ways through it."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + torch.tanh(super().forward(inputs)) * inputs


def blocks() -> nn.Module:
    """Containers whose inputs are used several times inside."""
    inner = nn.Sequential(Block(8, 8), Block(8, 8))
    return nn.Sequential(nn.Linear(8, 8), inner, nn.Linear(8, 3))


MODELS = {**ZOO, "Convolutions": Convolutions, "Blocks": blocks}
OF_CALLS = ("activation", "pre_activation", "grad_output", "grad_input")


FAST = ("Shared", "Recurrent", "Attending", "Structured", "Convolutions")
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in MODELS if name not in FAST]
each_model = pytest.mark.parametrize("name", [*FAST, *SLOW])


@pytest.fixture
def zoo_setup(make_setup: MakeSetup, tiny: Workload) -> MakeSetup:
    """A setup of the tiny workload with another model."""

    def make(model: Callable[..., nn.Module], **asked: Any) -> HomedSetup:
        structured = getattr(model, "__name__", "") == "Structured"
        workload = dataclasses.replace(
            tiny, model=model, **({"loss": mean_of_logits, "metrics": {}} if structured else {})
        )
        return make_setup(workload=workload, **asked)

    return make


class Keeper(Instrument):
    """Keeps every tensor of every module's calls in the first epoch: torch's own hooks, float64."""

    def __init__(self, backward: bool) -> None:
        self.kept: dict[tuple[str, str], list[Tensor]] = {}
        self._backward = backward

    def trial_begins(self, view: TrialView) -> None:
        self._handles: list[Any] = []
        for path, module in view.model.named_modules():
            name = path or type(module).__name__
            if self._backward:
                hook = module.register_full_backward_hook(partial(self._backward_hook, name))
            else:
                hook = module.register_forward_hook(
                    partial(self._forward_hook, name), with_kwargs=True
                )
            self._handles.append(hook)

    def step_begins(self, step: int) -> None:
        self._calls: Counter[str] = Counter()
        self._repeats = False

    def phase_ends(self, phase: Phase) -> None:
        # A checkpoint runs its forward pass again in the backward pass.
        self._repeats = phase == "loss"

    def test_begins(self, epoch: int) -> None:
        for handle in self._handles:
            handle.remove()

    def _keep(self, quantity: str, name: str, tensors: Any) -> None:
        found = [t for t in tensors_in(tensors) if t.is_floating_point()]
        if found:
            self.kept.setdefault((quantity, name), []).append(found[0].detach().double().clone())

    def _forward_hook(
        self, name: str, module: nn.Module, args: Any, kwargs: Any, made: Any
    ) -> None:
        if not self._repeats:
            self._calls[name] += 1
            call = name + (f"/{self._calls[name]}" if self._calls[name] > 1 else "")
            self._keep("pre_activation", call, (args, kwargs))
            self._keep("activation", call, made)

    def _backward_hook(self, name: str, module: nn.Module, given: Any, made: Any) -> None:
        self._keep("grad_input", name, given)
        self._keep("grad_output", name, made)


def reduced(tensors: Sequence[Tensor], reducer: str) -> float:
    """All tensors together, in float64."""
    row = torch.cat([tensor.reshape(-1) for tensor in tensors])
    found = {
        "sq_sum": lambda: row.square().sum(),
        "std": lambda: row.std(correction=0),
        "zero_fraction": lambda: (row == 0).double().mean(),
        "positive_count": lambda: (row > 0).sum(),
    }
    return float(found[reducer]() if reducer in found else getattr(row, reducer)())


REDUCERS = ("sum", "sq_sum", "norm", "mean", "std", "min", "max", "zero_fraction", "positive_count")
IN_PLACE = {"Branching", "InPlace", "Convolutions"}
"""torch's own backward hooks refuse in-place layers; a forward hook sees their input changed."""


@each_model
def test_what_probes_read_is_what_keeping_every_tensor_gives(
    name: str, zoo_setup: MakeSetup
) -> None:
    quantities = ["activation"] if name in IN_PLACE else ["activation", "pre_activation"]
    if name not in IN_PLACE | {"Checkpointed", "Careless"}:
        quantities += ["grad_output", "grad_input"]
    probes = [f"*:{quantity}:{reducer}" for quantity in quantities for reducer in ("sq_sum", "max")]
    lines, _ = probed(zoo_setup(MODELS[name], epochs=1), *probes)
    kept: dict[tuple[str, str], list[Tensor]] = {}
    for backward in {"grad" in quantity for quantity in quantities}:
        keeper = Keeper(backward)
        probed(zoo_setup(MODELS[name], epochs=1), beside=[keeper])
        kept |= keeper.kept
    for (quantity, layer), tensors in kept.items():
        if quantity not in quantities:
            continue
        calls = [line for line in lines if line.quantity == quantity]
        # torch's hook does not say which backward call of a shared module it is about.
        mine = [one for one in calls if layer == (one.layer if "grad" in quantity else one.target)]
        sums, largest = (
            [m.value or 0.0 for m in mine if m.reducer == r] for r in ("sq_sum", "max")
        )
        for found, reducer in ((sum(sums), "sq_sum"), (max(largest, default=math.nan), "max")):
            wanted = reduced(tensors, reducer)
            assert found == pytest.approx(wanted, rel=1e-6, abs=1e-12), (quantity, layer)
    assert {quantity for quantity, _ in kept} >= set(quantities) - {"grad_input"}


def test_a_functions_gradients_are_those_of_its_own_call(
    zoo_setup: MakeSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Relus(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            return F.relu(F.relu(F.relu(super().forward(inputs)) - 0.1) - 0.1)

    def setup() -> HomedSetup:
        return zoo_setup(lambda: Relus(8, 3), epochs=1)

    lines, _ = probed(setup(), *(f"relu:{q}:sq_sum" for q in ("grad_input", "local_grad")))
    kept: list[tuple[Tensor, Tensor]] = []
    relu = F.relu

    def keeping(inputs: Tensor) -> Tensor:
        if inputs.requires_grad:
            inputs = inputs.view_as(inputs)
            inputs.retain_grad()
            kept.append((inputs, inputs.detach() > 0))
        return relu(inputs)

    monkeypatch.setattr(F, "relu", keeping)
    probed(setup())
    for index, target in enumerate(["relu", "relu/2", "relu/3"]):
        mine = kept[index::3]
        gradients = reduced(
            [one.grad.double() for one, _ in mine if one.grad is not None], "sq_sum"
        )
        found = {line.quantity: line.value for line in lines if line.target == target}
        assert found["grad_input"] == pytest.approx(gradients, rel=1e-6)
        assert found["local_grad"] == sum(int(above.sum()) for _, above in mine)


class ParameterKeeper(Instrument):
    """Keeps gradients and weights of every step."""

    def trial_begins(self, view: TrialView) -> None:
        self._parameter = view.model.get_parameter("0.weight")
        self.grad: list[Any] = []
        self.weight = [self._parameter.detach().double()]

    def phase_ends(self, phase: Phase) -> None:
        if phase == "backward":
            self.grad.append(self._parameter.grad.double())  # type: ignore[union-attr]
        elif phase == "optimizer":
            self.weight.append(self._parameter.detach().double())


def test_weights_gradients_and_updates_are_those_of_the_optimizer(make_setup: MakeSetup) -> None:
    keeper = ParameterKeeper()
    probes = [f"0.weight:{q}:{r}" for q in ("weight", "grad", "update") for r in REDUCERS]
    lines, _ = probed(make_setup(epochs=1), *probes, beside=[keeper])
    updates = [b - a for a, b in zip(keeper.weight, keeper.weight[1:], strict=False)]
    wanted = {"weight": keeper.weight[-1:], "grad": keeper.grad, "update": updates}
    for line in lines:
        expected = reduced(wanted[line.quantity], line.reducer)
        assert line.value == pytest.approx(expected, rel=1e-6, abs=1e-9), line.quantity
        assert (line.fired, line.num_steps) == (len(wanted[line.quantity]), 11)
    assert len(lines) == 3 * len(REDUCERS)


def test_a_layer_stands_for_its_parameters_and_a_tied_one_counts_once(
    zoo_setup: MakeSetup,
) -> None:
    def tied() -> nn.Module:
        layers = {"one": nn.Linear(8, 8), "two": nn.Linear(8, 8), "last": nn.Linear(8, 3)}
        layers["two"].weight = layers["one"].weight
        return nn.Sequential(OrderedDict(layers))

    lines, _ = probed(zoo_setup(tied, epochs=1), "two,type=Linear:grad:norm", "*.bias:grad:norm")
    found = [line.layer for line in lines if line.probe.startswith("two")]
    assert found == ["one.weight", "one.bias", "two.bias", "last.weight", "last.bias"]
    assert [line.layer for line in lines[5:]] == ["one.bias", "two.bias", "last.bias"]


@each_model
def test_losses_are_the_same_to_the_last_bit_with_probes_and_without(
    name: str, zoo_setup: MakeSetup
) -> None:
    probes = [f"*:{quantity}:sq_sum@step" for quantity in OF_CALLS]
    probes += [f"*:{quantity}:norm" for quantity in ("weight", "grad", "update")]
    if name in ("Checkpointed", "Careless"):
        probes = [probe for probe in probes if "grad_input" not in probe]
    model = MODELS[name]
    _, progress = probed(zoo_setup(model), *probes)
    assert progress.final == probed(zoo_setup(model))[1].final


def test_probes_look_at_training_steps_only(zoo_setup: MakeSetup) -> None:
    setup = zoo_setup(MODELS["Encoding"])
    lines, _ = probed(setup, "encoder:activation:mean", "last:activation:positive_count@step")
    assert [line.fired for line in lines if line.every == "epoch"] == [11, 11]
    assert [line.step for line in lines if line.every == "step"] == list(range(1, 23))
    assert [row.fired for row in setup.folder.probes.read().rows] == [22, 22]
    assert setup.folder.probes.read().rows[0].shapes == [[10, 2, 4], [3, 2, 4]]


def test_a_cadence_of_steps_is_over_all_of_them_and_the_rest_is_told_at_the_end(
    make_setup: MakeSetup,
) -> None:
    lines, _ = probed(make_setup(), "0:activation:sum@5", "0:activation:sum@step")
    each = [line.value or 0 for line in lines if line.every == "step"]
    fives = [line for line in lines if line.every == "5"]
    assert [line.step for line in fives] == [5, 10, 15, 20, 22]
    assert [line.num_steps for line in fives] == [5, 5, 5, 5, 2]
    assert [line.value for line in fives] == pytest.approx(
        [sum(each[start : start + 5]) for start in range(0, 22, 5)], rel=1e-12
    )


def test_a_histogram_counts_every_element_once(make_setup: MakeSetup) -> None:
    keeper = Keeper(backward=False)
    probed(make_setup(epochs=1), beside=[keeper])
    row = torch.cat([t.reshape(-1) for t in keeper.kept["activation", "1"]])
    fixed, log = "histogram(-1,2,7)", "histogram(log,1e-3,1,6)"
    lines, _ = probed(make_setup(epochs=1), f"1:activation:{fixed}", f"1:activation:{log}")
    for line, reducer in zip(lines, (fixed, log), strict=True):
        found, spec = line.histogram, probe_of(f"1:activation:{reducer}").bins
        assert found is not None
        assert spec is not None
        values = row.abs() if spec.log else row
        edges = torch.tensor(spec.edges(), dtype=torch.float64)
        places = torch.bucketize(values, edges, right=True)
        assert [found.below, *found.counts, found.above] == torch.bincount(
            places, minlength=spec.num + 2
        ).tolist()
        assert line.count == len(row)


def test_dead_units_of_a_convolution_are_channels(zoo_setup: MakeSetup) -> None:
    def quarter_dead() -> nn.Module:
        layer = nn.Conv1d(1, 4, 1)
        nn.init.zeros_(layer.weight)
        layer.bias = nn.Parameter(torch.tensor([-1.0, 1.0, 1.0, 1.0]))
        ends = nn.Flatten(), nn.Linear(32, 3)
        return nn.Sequential(nn.Unflatten(1, (1, 8)), layer, nn.ReLU(), *ends)

    setup = zoo_setup(quarter_dead, epochs=1, optimizer="sgd", lr=1e-9)
    lines, _ = probed(setup, "1,type=ReLU:activation:dead_fraction")
    assert [line.value for line in lines] == [0.25, 0.25]


def own_file(folder: Path, body: str) -> str:
    path = folder / "mine.py"
    path.write_text(f"import torch\n\n{body}\n")
    return str(path)


def test_a_function_of_the_users_own_is_averaged_over_a_period(
    make_setup: MakeSetup, tmp_path: Path
) -> None:
    path = own_file(tmp_path, "def biggest(values):\n    return values.abs().max()")
    probes = [f"0:activation:{path}:biggest{every}" for every in ("", "@step")]
    lines, _ = probed(make_setup(epochs=1), *probes)
    steps = [line.value or 0 for line in lines if line.every == "step"]
    (epoch,) = [line.value for line in lines if line.every == "epoch"]
    assert epoch == pytest.approx(sum(steps) / 11, rel=1e-12)


def test_a_function_of_the_users_own_that_fails_is_one_line(
    make_setup: MakeSetup, tmp_path: Path
) -> None:
    for body, told in (
        ("def other(values):\n    return 1", "has no function 'mine'; it has other"),
        ("def mine(values):\n    return values", r"gave shape \(10, 16\), must be a tensor of one"),
        ("def mine(values):\n    return 3.0", "gave 3.0, must be a tensor of one number"),
        ("def mine(values):\n    return 1 / 0", "failed: ZeroDivisionError: division by zero"),
        ("def mine(", "cannot be read: SyntaxError"),
    ):
        with pytest.raises(SpecError, match=told) as error:
            probed(make_setup(), f"0:activation:{own_file(tmp_path, body)}:mine")
        assert len(error.value.problems) == 1


def test_a_probe_that_cannot_fire_says_why_and_what_to_do(zoo_setup: MakeSetup) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.unused, self.aside = (nn.Linear(8, 8) for _ in range(3))
            self.frozen, self.last = nn.Linear(8, 8).requires_grad_(False), nn.Linear(8, 3)
            self.silent, self.changing = nn.Linear(8, 8), nn.ReLU(inplace=True)

        def forward(self, inputs: Tensor) -> Tensor:
            hidden = self.frozen(F.relu(self.first(inputs)))
            self.aside(hidden).argmax()
            with torch.no_grad():
                quiet = self.silent(hidden)
            hidden = (hidden + quiet) * 2
            self.changing(hidden.view(-1, 2, 4)[:, 0])
            return self.last(F.relu(hidden))

    for probe, told in (
        ("rleu:activation:mean", "'rleu' reaches no layer; did you mean relu.*; there are [^;]+$"),
        ("type=Linaer:activation:mean", "did you mean type=Linear"),
        ("frist.weight:grad:norm", "weight' reaches no parameter; did you mean first.weight"),
        ("unused:activation:mean", "'unused' was never called while training"),
        ("first:grad_input:norm", "never fired at first: its input carries no gradient"),
        ("last,first:grad_input:norm", "never fired at first: its input carries no gradient"),
        ("relu/3:activation:mean", "'relu/3' reaches no layer"),
        ("frozen:grad:norm", "never fired: none of these parameters ever got a gradient"),
        ("aside:grad_output:norm", "never fired at aside: no gradient arrived"),
        ("silent:grad_output:norm", "never fired at silent: no gradient is kept for its output"),
        ("first:local_grad:sum", "local_grad of linear is not known; it is for relu, relu6"),
        ("changing:grad_input:norm", "never fired at changing: its input is changed in place"),
        ("argmax:activation:mean", "never fired at argmax: it gives or takes no plain floating"),
    ):
        with pytest.raises(SpecError, match=told) as error:
            probed(zoo_setup(Model), probe)
        (line,) = error.value.problems
        assert line.startswith("probe ")
        assert "\n" not in line


def test_layers_of_a_glob_that_cannot_fire_are_noted(make_setup: MakeSetup) -> None:
    setup = make_setup(epochs=1)
    lines, _ = probed(setup, "type=Linear:grad_input:norm")
    assert [line.layer for line in lines] == ["3"]
    (note,) = setup.notes
    text = Words("en").note(note.code, note.values)
    assert text.startswith("probe type=Linear:grad_input:norm@epoch: 0 never fired: its input")
    assert [(row.fired, row.why_not is None) for row in setup.folder.probes.read().rows] == [
        (0, False),
        (11, True),
    ]


def test_nothing_stays_behind_when_a_layer_fails(zoo_setup: MakeSetup) -> None:
    with pytest.raises(ArithmeticError, match="planted"):
        probed(zoo_setup(lambda: Raising(at=3)), "*:activation:mean", "*:grad_output:norm")
    assert is_unwatched()


def test_tensorboard_gets_scalars_and_histograms(make_setup: MakeSetup, tmp_path: Path) -> None:
    texts = ("0:activation:mean", "0:grad_output:histogram", "0:activation:histogram(-9,9,6)")
    lines, _ = probed(make_setup(epochs=1), *texts)
    with SummaryWriter(str(tmp_path / "board")) as writer:
        for line in lines:
            write_probe(writer, line, samples=103)
    events = EventAccumulator(str(tmp_path / "board")).Reload()
    assert events.Tags()["scalars"] == ["probe/activation:mean@epoch/0"]
    assert set(events.Tags()["histograms"]) == {
        "probe/grad_output:histogram@epoch/0 log10",
        "probe/activation:histogram(-9,9,6)@epoch/0",
    }
    (event,) = events.Histograms("probe/activation:histogram(-9,9,6)@epoch/0")
    assert event.step == 103
    assert event.histogram_value.num == 103 * 16
