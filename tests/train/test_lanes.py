"""Many trials as one program: each learns what it learns by itself, whatever runs beside it."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import models
from conftest import tiny_data
from training import HomedSetup, MakeSetup
from trainlab.record.trial_record import Progress
from trainlab.train.callbacks import Moments
from trainlab.train.engines import ENGINES
from trainlab.train.engines.engine import Member, Unsuited
from trainlab.train.engines.lane_updates import update_key
from trainlab.train.loop import train
from trainlab.workloads.find import find_workload
from trainlab.workloads.workload import Workload


def trained(engine: str, setups: Sequence[HomedSetup]) -> list[Progress]:
    members = [Member(setup, Moments([]), Progress()) for setup in setups]
    train(ENGINES[engine].open(members), members)
    return [member.progress for member in members]


def losses(engine: str, setups: Sequence[HomedSetup], num_steps: int) -> Tensor:
    """One row per trial."""
    session = ENGINES[engine].open([Member(one, Moments([]), Progress()) for one in setups])
    found = []
    with session.training(1):
        for _ in range(num_steps):
            found.append([means.values["loss"] for means in session.advance(1)])
    return torch.tensor(found).T


MIXED: tuple[dict[str, Any], ...] = (
    {"seed": 1},
    {"seed": 2, "lr": 0.01},
    {"seed": 3, "zero_grad": False},
    {"seed": 4, "optimizer": "sgd", "momentum": 0.9},
    {"seed": 5, "optimizer": "sgd", "schedule": "step", "lr_gamma": 0.5},
    {"seed": 6, "optimizer": "adadelta", "lr": 1.0},
    {"seed": 7, "optimizer": "rmsprop", "schedule": "cosine"},
    {"seed": 8, "optimizer": "adagrad", "seed_parts": "order"},
    {"seed": 9, "optimizer": "adamw"},
)


def mixed(make_setup: MakeSetup, chosen: Sequence[dict[str, Any]] = MIXED) -> list[HomedSetup]:
    setups = [make_setup(**{"epochs": 3, **given}) for given in chosen]
    return sorted(setups, key=lambda setup: update_key(setup.settings))


def test_every_lane_learns_what_it_learns_by_itself(make_setup: MakeSetup) -> None:
    """Seeds, optimizers, learning rates, schedules and gradient resets differ."""
    together = trained("lanes", mixed(make_setup))
    for progress, setup in zip(together, mixed(make_setup), strict=True):
        (alone,) = trained("eager", [setup])
        assert progress.final == pytest.approx(alone.final, rel=1e-3, abs=1e-6), setup.settings
        assert progress.steps_done == alone.steps_done


def test_a_lane_does_not_depend_on_its_neighbours_to_the_last_bit(make_setup: MakeSetup) -> None:
    together = trained("lanes", mixed(make_setup))
    pairs = mixed(make_setup)
    for first in range(0, len(pairs), 2):
        apart = trained("lanes", pairs[first : first + 2])
        assert [one.final for one in apart] == [one.final for one in together[first : first + 2]]


def test_a_lane_that_diverges_leaves_the_others_alone(make_setup: MakeSetup) -> None:
    chosen = [
        {"seed": 1, "optimizer": "sgd", "lr": 0.05},
        {"seed": 2, "optimizer": "sgd", "lr": 1e38},
        {"seed": 3, "optimizer": "sgd", "lr": 0.05, "zero_grad": False},
    ]
    progress = trained("lanes", mixed(make_setup, chosen))
    assert [one.state for one in progress] == ["done", "diverged", "done"]
    assert progress[1].diverged_at_step in (2, 3)
    alone = trained("lanes", [mixed(make_setup, chosen)[0]])
    assert progress[0].final == alone[0].final


def test_models_with_other_settings_are_refused(make_setup: MakeSetup) -> None:
    setups = [make_setup(seed=1), make_setup(seed=2, model={"dropout": 0.0})]
    with pytest.raises(Unsuited) as refused:
        trained("lanes", setups)
    assert refused.value.why == "not_alike"


class CountingLoss(nn.CrossEntropyLoss):
    """Weighs later updates more."""

    num_calls = 0

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self.num_calls += 1
        return super().forward(outputs, targets) * self.num_calls


@pytest.mark.parametrize("engine", ["graphed", "lanes"])
def test_a_loss_that_keeps_state_is_refused_and_untouched(
    engine: str, make_setup: MakeSetup
) -> None:
    loss = CountingLoss()
    workload = Workload(name="some", model=lambda: nn.Linear(8, 3), data=tiny_data, loss=loss)
    with pytest.raises(Unsuited):
        trained(engine, [make_setup(workload=workload)])
    assert loss.num_calls == 0


@pytest.mark.parametrize("engine", ["graphed", "lanes"])
def test_parameters_show_their_gradients_at_the_points(engine: str, make_setup: MakeSetup) -> None:
    ours, reference = make_setup(), make_setup()
    losses(engine, [ours], 3)
    losses("eager", [reference], 3)
    for a, b in zip(ours.model.parameters(), reference.model.parameters(), strict=True):
        assert a.grad is not None
        assert b.grad is not None
        assert torch.allclose(a.grad, b.grad, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("engine", ["graphed", "lanes"])
@pytest.mark.slow
def test_the_first_losses_of_both_labs_are_those_of_eager(
    engine: str, make_setup: MakeSetup
) -> None:
    # Not with seed 3 of fashion-mlp: a unit of it is at zero to rounding, and eager from weights scaled by
    # 1 + 1e-7 is 5e-4 away from itself.
    for name, num_steps, seed in (("fashion-mlp", 50, 2), ("mnist-cnn", 12, 3)):
        workload = find_workload(name)

        def setup(workload: Workload = workload, seed: int = seed) -> HomedSetup:
            return make_setup(workload=workload, data="bundled", batch_size=16, seed=seed)

        expected = losses("eager", [setup()], num_steps)
        assert torch.allclose(losses(engine, [setup()], num_steps), expected, rtol=1e-4)


class Words(nn.Module):
    """The numbers as words of a small vocabulary."""

    def __init__(self, mixer: Callable[[Tensor], Tensor] | nn.Module) -> None:
        super().__init__()
        self.embedding, self.mixer, self.last = nn.Embedding(10, 6), mixer, nn.Linear(6, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        mixed = self.mixer(self.embedding(inputs.abs().clamp(0, 9).long()))
        mixed = mixed[0] if isinstance(mixed, tuple) else mixed
        return self.last(mixed.mean(dim=1))


class Linear(nn.Linear):
    """From eight numbers to three classes; functions change what goes in and what comes out."""

    def __init__(
        self,
        before: Callable[[Tensor], Tensor] = Tensor.float,
        after: Callable[[Tensor], Any] = Tensor.float,
    ) -> None:
        super().__init__(8, 3)
        self.before, self.after = before, after

    def forward(self, inputs: Tensor) -> Any:
        return self.after(super().forward(self.before(inputs)))


class Counting(Linear):
    """Behaves otherwise from its fifth step on."""

    num_calls = 0

    def forward(self, inputs: Tensor) -> Tensor:
        self.num_calls += 1
        return super().forward(inputs) * (2 if self.num_calls > 5 else 1)


class Remembering(Linear):
    """Replaces a buffer instead of changing it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, inputs: Tensor) -> Tensor:
        self.mean = 0.9 * self.mean + 0.1 * inputs.mean(dim=0)
        return super().forward(inputs - self.mean)


class Half(Linear):
    """Parameters of two kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8).double()

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(self.first(inputs.double()).float())


def hooked() -> nn.Module:
    """A weight that a hook keeps as it is."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))
    model[0].weight.register_hook(lambda gradient: gradient * 0)
    return model


def listening() -> nn.Module:
    """A list grows with each call."""
    model, seen = Linear(), list[Tensor]()
    model.register_forward_hook(lambda module, inputs, output: seen.append(output.detach()))
    return model


class Mirrored(nn.Module):
    """The second weight is a view of the first."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(8, 5), nn.Linear(5, 8), nn.Linear(8, 3)
        self.second.weight.data = self.first.weight.data.t()

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.second(torch.tanh(self.first(inputs))))


def mapped() -> nn.Module:
    """Gives its outputs by name."""
    return Linear(after=lambda logits: {"logits": logits})


SUITED: dict[str, Callable[[], nn.Module]] = {
    "convolution, batch norm": lambda: nn.Sequential(
        *(nn.Unflatten(1, (1, 2, 4)), nn.Conv2d(1, 4, 2, bias=False), nn.BatchNorm2d(4)),
        *(nn.ReLU(inplace=True), nn.Dropout2d(0.3), nn.Flatten(), nn.Linear(12, 3)),
    ),
    "embedding, layer norm": lambda: Words(nn.LayerNorm(6)),
    "attention": lambda: Words(nn.TransformerEncoderLayer(6, 2, 12, dropout=0.0, batch_first=True)),
    "shared": models.Shared,
    "in place": models.InPlace,
    "residual": models.Residual,
    "own parameter": models.OwnParameter,
    "frozen": models.Frozen,
}


UNSUITED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "counting": (Counting, "not_stateless"),
    "remembering": (Remembering, "not_stateless"),
    "drawing by Python": (
        lambda: Linear(lambda x: x.tanh() if random.random() < 0.5 else x),
        "not_drawn_by_torch",
    ),
    "noise": (lambda: Linear(lambda x: x + 0.1 * torch.randn_like(x)), "not_vectorisable"),
    "decisions": (lambda: Linear(after=lambda y: y.tanh() if y.sum() > 0 else y), "not_blind"),
    "two dtypes": (Half, "not_one_dtype"),
    "gradient hook": (hooked, "not_hooked"),
    "forward hook": (listening, "not_hooked"),
    "mirrored weights": (Mirrored, "not_apart"),
    "bf16 parameters": (lambda: Linear(Tensor.bfloat16).bfloat16(), "not_real"),
    "LSTM": (lambda: Words(nn.LSTM(6, 6, batch_first=True)), "not_vectorisable"),
    "outputs by name": (mapped, "not_one_output"),
}


def of_logits(outputs: Any, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs["logits"], targets)


def workload_of(make: Callable[[], nn.Module]) -> Workload:
    by_name: Any = {"loss": of_logits, "metrics": {}}
    own = by_name if make is mapped else {"loss": F.cross_entropy}
    return Workload(name="some", model=make, data=tiny_data, **own)


@pytest.mark.parametrize("name", SUITED)
def test_models_nobody_tuned_for_learn_in_lanes_what_they_learn_alone(
    name: str, make_setup: MakeSetup
) -> None:
    workload = workload_of(SUITED[name])
    setups = [
        [make_setup(workload=workload, seed=s, epochs=3) for s in (1, 2, 3)] for _ in range(2)
    ]
    together = trained("lanes", setups[0])
    for progress, setup in zip(together, setups[1], strict=True):
        (alone,) = trained("eager", [setup])
        assert progress.final == pytest.approx(alone.final, rel=2e-3, abs=1e-5)
    for one, other in zip(setups[0], setups[1], strict=True):
        ours, reference = one.model.state_dict(), other.model.state_dict()
        for key, value in reference.items():
            assert torch.allclose(ours[key], value, rtol=1e-2, atol=1e-3), key


@pytest.mark.parametrize("name", UNSUITED)
def test_what_cannot_be_a_program_is_refused_with_its_reason_and_unchanged(
    name: str, make_setup: MakeSetup
) -> None:
    make, why = UNSUITED[name]
    setups = [make_setup(workload=workload_of(make), seed=seed) for seed in (1, 2)]
    before = [{n: v.clone() for n, v in one.model.state_dict().items()} for one in setups]
    with pytest.raises(Unsuited) as refused:
        trained("lanes", setups)
    assert refused.value.why == why
    for one, kept in zip(setups, before, strict=True):
        assert all(torch.equal(value, kept[n]) for n, value in one.model.state_dict().items())


@pytest.mark.parametrize("name", sorted({*SUITED, "noise", "LSTM"}))
def test_a_program_of_one_trial_learns_what_eager_learns(name: str, make_setup: MakeSetup) -> None:
    make = SUITED[name] if name in SUITED else UNSUITED[name][0]
    ours, reference = (make_setup(workload=workload_of(make), epochs=3) for _ in range(2))
    (program,), (eager,) = trained("graphed", [ours]), trained("eager", [reference])
    assert program.final == pytest.approx(eager.final, rel=2e-3, abs=1e-5)
