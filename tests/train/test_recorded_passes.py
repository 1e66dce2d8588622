"""Recorded passes: what Python gives, to the last bit; and whom they are refused to."""

import functools
import itertools
import operator
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import models
from conftest import tiny_data
from training import HomedSetup, MakeSetup
from trainlab.train.engines import ENGINES, programs
from trainlab.train.engines import passes as recorded
from trainlab.train.engines.eager import EagerSession
from trainlab.train.engines.engine import Member
from trainlab.train.engines.passes import RecordedPasses, can_be_recorded
from trainlab.train.moments import Instrument, Moments, Phase, Progress
from trainlab.train.operators import Operators
from trainlab.train.steps.forward import Forward
from trainlab.train.steps.outcome import Outcome
from trainlab.workloads.find import find_workload
from trainlab.workloads.workload import Workload

COUNTS: list[int] = []


class Images(nn.Module):
    """Eight numbers as an image of 2 x 4: convolution, batch norm, pooling, channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, (2, 3), padding=1)
        self.norm, self.last = nn.BatchNorm2d(4), nn.Linear(16, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        images = inputs.view(-1, 1, 2, 4).contiguous(memory_format=torch.channels_last)
        hidden = F.pad(F.gelu(self.norm(self.first(images)), approximate="tanh"), (0, 1, 1, 0))
        hidden = F.dropout2d(F.max_pool2d(hidden, 2, stride=(2, 2)), 0.2, self.training)
        logits: Tensor = self.last(hidden.flatten(1))
        return logits


class Lists(nn.Module):
    """Operators that take and give lists, of tensors, numbers and indices."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.last = nn.Embedding(10, 6), nn.Linear(6, 3)
        self.register_buffer("order", torch.tensor([3, 1, 0]))

    def forward(self, inputs: Tensor) -> Tensor:
        words = inputs.abs().clamp(0, 9).long()
        first, second = self.embedding(words).split([3, 5], dim=1)
        chunks = torch.cat([first, second[:, self.order]], dim=1).unbind(1)
        best, _ = torch.stack(chunks).topk(2, dim=0)
        logits: Tensor = self.last(best.mean(0) + torch.einsum("bij->bj", first))
        return logits


class SameGradient(nn.Module):
    """Two parameters whose gradients are one tensor, and one that is expanded."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 3)
        self.first, self.second = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(3))
        self.shift, self.unused = nn.Parameter(torch.zeros(1, 1)), nn.Parameter(torch.ones(2))

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.layer(inputs) + (self.first + self.second) + self.shift
        return logits


KINDS: dict[str, Callable[[], nn.Module]] = {
    "dropout": lambda: nn.Sequential(
        nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3)
    ),
    "images": Images,
    "lists": Lists,
    "same gradient": SameGradient,
    "shared": models.Shared,
    "residual": models.Residual,
    "layer norm": lambda: nn.Sequential(
        nn.Linear(8, 6), nn.LayerNorm(6), nn.SiLU(), nn.Linear(6, 3)
    ),
    "batch norm": lambda: nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)),
    "tied": lambda: _tied(),
    "frozen": lambda: _frozen(),
}


def _tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Linear(8, 3))
    model[2].weight = model[0].weight
    return model


def _frozen() -> nn.Module:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    model[0].requires_grad_(False)
    return model


def workload_of(
    model: Callable[[], nn.Module], loss: Any = F.cross_entropy, **parts: Any
) -> Workload:
    defaults = {"epochs": 2, "batch_size": 10, "lr": 0.01}
    return Workload(name="some", model=model, data=tiny_data, loss=loss, defaults=defaults, **parts)


def trained(setup: HomedSetup, passes: RecordedPasses | None) -> list[Tensor]:
    """All that two epochs and a test change, with their losses, the last smaller batch among them."""
    session = EagerSession(Member(setup, Moments([]), Progress()), passes=passes)
    losses = []
    for epoch in (1, 2):
        with session.training(epoch):
            for _ in range(len(setup.train_batches)):
                losses += [means.values["loss"] for means in session.advance(1)]
            drawn = torch.get_rng_state()
        losses += [means.values["loss"] for means in session.test(epoch)]
    gradients = [one.grad for one in setup.model.parameters() if one.grad is not None]
    return [torch.tensor(losses), drawn, *gradients, *setup.model.state_dict().values()]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("settings", [{}, {"optimizer": "adam", "clip_grad_norm": 0.5}], ids=str)
def test_training_is_what_it_is_from_python_to_the_last_bit(
    name: str, settings: dict[str, Any], make_setup: MakeSetup
) -> None:
    reference, ours = (make_setup(workload=workload_of(KINDS[name]), **settings) for _ in range(2))
    told: list[str] = []
    passes = RecordedPasses(ours, ours.model, told.append)
    for found, expected in zip(trained(ours, passes), trained(reference, None), strict=True):
        assert torch.equal(found, expected)
    assert told == ["recorded"]


def test_python_is_not_asked_again(make_setup: MakeSetup) -> None:
    setup = make_setup(workload=workload_of(lambda: nn.Linear(8, 3)))
    passes, forward = RecordedPasses(setup, setup.model), Forward(setup, Moments([]))
    whole, part = (setup.split_batches.samples(torch.arange(size)) for size in (10, 3))

    def refuse(batch: Any) -> Outcome:
        raise AssertionError(f"asked for {len(batch[0])}")

    for _ in range(2):
        passes(whole, forward)
    for _ in range(3):
        assert passes(whole, refuse).num_samples == 10
    with pytest.raises(AssertionError, match="asked for 3"):
        passes(part, refuse)


def counting(inputs: Tensor) -> Tensor:
    COUNTS.append(1)
    return inputs


class Counted:
    """Holds a count in its class."""

    num_calls = 0


def called(inputs: Tensor) -> Tensor:
    """Holds it in itself."""
    CALLED.num_calls += 1  # type: ignore[attr-defined]
    return inputs * later(CALLED.num_calls)  # type: ignore[attr-defined]


CALLED = called
other = ModuleType("other")


def later(count: int) -> float:
    """What changes once a trial has gone on for a while, as warm-ups do."""
    return 1.0 if count < 5 else 2.0


class Hidden(nn.Linear):
    """Its output, changed by something else than its inputs and weights."""

    def __init__(self, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__(8, 3)
        self.change = change

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(self.change(inputs))


def of_class(inputs: Tensor) -> Tensor:
    Counted.num_calls += 1
    return inputs * later(Counted.num_calls)


def of_module(inputs: Tensor) -> Tensor:
    other.num_calls += 1  # type: ignore[attr-defined]
    return inputs * later(other.num_calls)  # type: ignore[attr-defined]


def of_list(inputs: Tensor) -> Tensor:
    return counting(inputs) * later(len(COUNTS))


def drawn(inputs: Tensor) -> Tensor:
    return inputs * random.random()


def read(inputs: Tensor) -> Tensor:
    return inputs if inputs.numpy().max() > 3 else -inputs


def read_and_caught(inputs: Tensor) -> Tensor:
    try:
        return inputs if inputs.max().item() > 3 else -inputs
    except Exception:  # noqa: BLE001
        return inputs


def masked(inputs: Tensor) -> Tensor:
    return inputs * later(len(inputs[inputs > 3.5]))


def in_closure() -> nn.Module:
    count = 0

    def change(inputs: Tensor) -> Tensor:
        nonlocal count
        count += 1
        return inputs * later(count)

    return Hidden(change)


def in_iterator() -> nn.Module:
    turns = itertools.count()
    return Hidden(lambda inputs: inputs * later(next(turns)))


def in_default() -> nn.Module:
    def change(inputs: Tensor, turns: list[int] = []) -> Tensor:  # noqa: B006
        turns.append(1)
        return inputs * later(len(turns))

    change.__defaults__ = ([],)
    return Hidden(change)


def in_generator() -> nn.Module:
    draw = torch.Generator().manual_seed(0)
    return Hidden(lambda inputs: inputs * torch.rand((), generator=draw))


def in_hook() -> nn.Module:
    model, turns = nn.Linear(8, 3), [0]

    def hook(module: nn.Module, given: Any, output: Tensor) -> Tensor:
        turns[0] += 1
        return output * later(turns[0])

    model.register_forward_hook(hook)
    return model


def in_another_model() -> nn.Module:
    teacher = nn.BatchNorm1d(8)
    return Hidden(lambda inputs: inputs + teacher(inputs))


def patched() -> nn.Module:
    """A copy of it would still use the first one's weights."""
    model = nn.Sequential(nn.Linear(8, 6), nn.Linear(6, 3))
    plain = model[0].forward
    model[0].forward = lambda inputs: plain(inputs) * 2  # type: ignore[method-assign]
    return model


class Shares(nn.Linear):
    """What its class holds is changed through another name, or by a call that Python does not tell of."""

    turns: ClassVar[list[int]] = []
    places: ClassVar[defaultdict[int, int]] = defaultdict(int)
    centre: ClassVar[Tensor] = torch.zeros(8)
    endless: ClassVar[Iterator[float]] = itertools.cycle([1.0] * 5 + [2.0] * 5)
    append = staticmethod(operator.methodcaller("append", 1))

    def __init__(self, way: str) -> None:
        super().__init__(8, 3)
        self.way, self.seen = way, list[Tensor]()

    def forward(self, inputs: Tensor) -> Tensor:
        found = super().forward(inputs)
        return getattr(self, self.way)(inputs, found)

    def alias(self, inputs: Tensor, found: Tensor) -> Tensor:
        turns = self.turns
        turns += [1]
        return found * later(len(turns))

    def caller(self, inputs: Tensor, found: Tensor) -> Tensor:
        self.append(self.turns)
        return found * later(len(self.turns))

    def default(self, inputs: Tensor, found: Tensor) -> Tensor:
        _ = self.places[len(self.places)]
        return found * later(len(self.places))

    def iterate(self, inputs: Tensor, found: Tensor) -> Tensor:
        for factor in self.endless:
            return found * factor
        return found

    def average(self, inputs: Tensor, found: Tensor) -> Tensor:
        self.centre.mul_(0.9).add_(inputs.mean(0))
        return found - self.centre.sum()

    def hook(self, inputs: Tensor, found: Tensor) -> Tensor:
        if found.requires_grad:
            found.register_hook(self.seen.append)
        return found * later(len(self.seen))


class ChangedByTests(nn.Linear):
    """Is changed by its tests; in training it only reads."""

    best = 0.0

    def forward(self, inputs: Tensor) -> Tensor:
        found = super().forward(inputs)
        return found / (1 + self.best) if self.training else self.tested(found)

    def tested(self, found: Tensor) -> Tensor:
        self.best += 1
        return found


def scheduled_loss() -> Any:
    """Weighed by a schedule that it steps."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

    def loss(outputs: Tensor, targets: Tensor, *, schedule: Any) -> Tensor:
        schedule.step()
        return F.cross_entropy(outputs, targets) * schedule.get_last_lr()[0]

    return functools.partial(loss, schedule=schedule)


class Decides(nn.Linear):
    """By a number that it reads."""

    def forward(self, inputs: Tensor) -> Tensor:
        found = super().forward(inputs)
        return found if inputs.sum().item() > 0 else -found


class Counts(nn.Linear):
    """In an attribute."""

    turn = 0

    def forward(self, inputs: Tensor) -> Tensor:
        self.turn += 1
        return super().forward(inputs) * later(self.turn)


class Thaws(nn.Sequential):
    """Learns with all of its layers only after the first test."""

    def train(self, mode: bool = True) -> "Thaws":
        self[0].requires_grad_(not mode or self[0].weight.requires_grad)
        super().train(mode)
        return self


def thawing() -> nn.Module:
    model = Thaws(nn.Linear(8, 6), nn.Linear(6, 3))
    model[0].requires_grad_(False)
    return model


def counting_loss() -> Any:
    turns = [0]

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        turns[0] += 1
        return F.cross_entropy(outputs, targets) * later(turns[0])

    return loss


def masking_loss() -> Any:
    """Leaves out some samples, another number in each batch."""

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        is_sure = outputs.detach().amax(1) > 0.3
        return F.cross_entropy(outputs[is_sure], targets[is_sure], reduction="sum") / 10

    return loss


def strided(inputs: Tensor, place: int) -> Tensor:
    """By places in its memory, where a batch of a block does not begin."""
    return inputs.as_strided(inputs.shape, inputs.stride(), place).flip(0)


def learned(inputs: Tensor) -> Tensor:
    """Changes its batch in place, by what it learns."""
    inputs += WEIGHT
    return inputs


def grown(inputs: Tensor) -> Tensor:
    """Uses the memory behind its batch."""
    size = inputs.shape
    return inputs.resize_(2 * len(inputs), *size[1:]).fill_(1.0).resize_(size)


WEIGHT = nn.Parameter(torch.zeros(8))

HIDDEN: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any] | None, str]] = {
    "class": (lambda: Hidden(of_class), None, "not_plain"),
    "module": (lambda: Hidden(of_module), None, "not_plain"),
    "function": (lambda: Hidden(CALLED), None, "not_plain"),
    "global list": (lambda: Hidden(of_list), None, "not_plain"),
    "closure": (in_closure, None, "not_plain"),
    "iterator": (in_iterator, None, "not_plain"),
    "default": (in_default, None, "not_plain"),
    "generator": (in_generator, None, "not_plain"),
    "hook": (in_hook, None, "not_plain"),
    "another model": (in_another_model, None, "not_plain"),
    "patched": (patched, None, "not_copied"),
    "attribute": (lambda: Counts(8, 3), None, "not_plain"),
    "random": (lambda: Hidden(drawn), None, "not_plain"),
    "number": (lambda: Decides(8, 3), None, "not_plain"),
    "array": (lambda: Hidden(read), None, "not_plain"),
    "caught": (lambda: Hidden(read_and_caught), None, "not_plain"),
    "mask": (lambda: Hidden(masked), None, "not_recorded"),
    "strided": (
        lambda: Hidden(lambda inputs: strided(inputs, inputs.storage_offset())),
        None,
        "not_recorded",
    ),
    "strided from 0": (lambda: Hidden(lambda inputs: strided(inputs, 0)), None, "not_recorded"),
    "in place": (lambda: Hidden(learned), None, "not_plain"),
    "resized": (lambda: Hidden(grown), None, "not_recorded"),
    "thaws": (thawing, None, "not_plain"),
    "tests": (lambda: ChangedByTests(8, 3), None, "not_the_same"),
    **{
        way: (functools.partial(Shares, way), None, "not_plain")
        for way in ("alias", "caller", "default", "iterate", "average", "hook")
    },
    "schedule": (lambda: nn.Linear(8, 3), scheduled_loss, "not_plain"),
    "loss": (lambda: nn.Linear(8, 3), counting_loss, "not_plain"),
    "mask in loss": (lambda: nn.Linear(8, 3), masking_loss, "not_recorded"),
}
"""Models and losses that would not be the same without Python, and by what they are found."""


class Pairs(nn.Linear):
    """Gives more than one tensor."""

    def forward(self, inputs: Tensor) -> Any:
        found = super().forward(inputs)
        return found, found


def enclosing() -> nn.Module:
    """Its state is in a closure."""
    turns = [0]

    class Encloses(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            turns[0] += 1
            return super().forward(inputs) * turns[0]

    return Encloses(8, 3)


def refused(setup: HomedSetup) -> str | None:
    """Why the passes of a trial are not recorded."""
    passes = RecordedPasses(setup, setup.model)
    trained(setup, passes)
    return passes.why


@pytest.mark.parametrize("kind", list(HIDDEN))
def test_a_model_that_needs_python_each_time_is_refused_and_trains_as_ever(
    kind: str, make_setup: MakeSetup
) -> None:
    model, loss, why = HIDDEN[kind]

    def setup() -> HomedSetup:
        """With whatever it keeps as it was at first."""
        COUNTS.clear()
        Shares.turns.clear()
        Shares.places.clear()
        Shares.centre = torch.zeros(8)
        Shares.endless = itertools.cycle([1.0] * 5 + [2.0] * 5)
        Counted.num_calls, CALLED.num_calls, other.num_calls = 0, 0, 0  # type: ignore[attr-defined]
        random.seed(0)
        return make_setup(workload=workload_of(model, loss() if loss else F.cross_entropy))

    reference = trained(setup(), None)
    ours = setup()
    passes = RecordedPasses(ours, ours.model)
    for found, expected in zip(trained(ours, passes), reference, strict=True):
        assert torch.equal(found, expected)
    assert passes.why == why


def test_more_than_one_output_is_refused(make_setup: MakeSetup) -> None:
    def loss(outputs: Sequence[Tensor], targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs[0] + outputs[1], targets)

    setup = make_setup(workload=workload_of(lambda: Pairs(8, 3), loss, metrics={}))
    assert refused(setup) == "not_one_output"


def test_a_recording_that_gives_other_numbers_is_refused(
    make_setup: MakeSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Off(Operators):
        def __call__(self, *given: Tensor) -> tuple[Tensor, ...]:
            loss, *rest = super().__call__(*given)
            return loss * (1 + 2**-23), *rest

    monkeypatch.setattr(recorded, "Operators", Off)
    assert refused(make_setup()) == "not_the_same"


def test_an_operator_that_fails_later_is_told_by_python(make_setup: MakeSetup) -> None:
    setup = make_setup(workload=workload_of(lambda: nn.Linear(8, 3)))
    session = EagerSession(
        Member(setup, Moments([]), Progress()), passes=RecordedPasses(setup, setup.model)
    )
    setup.split_batches._targets[-20:] = 7
    with (
        pytest.raises(IndexError, match="Target 7 is out of bounds") as raised,
        session.training(1),
    ):
        session.advance(len(setup.train_batches))
    assert "cross_entropy" in [frame.name for frame in raised.traceback]


class Phases(Instrument):
    """Looks inside of steps."""

    def phase_ends(self, phase: Phase) -> None:
        pass


@pytest.mark.parametrize(
    "settings",
    [{"zero_grad": False}, {"accumulate": 2}, {"precision": "bf16"}, {"epochs": 2}],
    ids=str,
)
def test_what_cannot_be_recorded_is_not(settings: dict[str, Any], make_setup: MakeSetup) -> None:
    assert can_be_recorded(make_setup(epochs=50), Moments([]))
    assert not can_be_recorded(make_setup(**{"epochs": 50, **settings}), Moments([]))
    assert not can_be_recorded(make_setup(epochs=50), Moments([Phases()]))


def test_engine_tuned_records_what_it_can_and_says_so(make_setup: MakeSetup) -> None:
    kinds = {
        "recorded": lambda: nn.Linear(8, 3),
        "not_plain: forward: Tensor.item": lambda: Decides(8, 3),
    }
    for told, model in kinds.items():
        setup = make_setup(workload=workload_of(model), epochs=50)
        session = ENGINES["tuned"].open([Member(setup, Moments([]), Progress())])
        with session.training(1):
            ours = session.advance(len(setup.train_batches))[0].values
        assert setup.engine_facts["tuned"]["passes"] == told
        reference = make_setup(workload=workload_of(model), epochs=50)
        session = ENGINES["eager"].open([Member(reference, Moments([]), Progress())])
        with session.training(1):
            assert ours == pytest.approx(session.advance(len(setup.train_batches))[0].values)


@pytest.mark.parametrize(("name", "batch_size"), [("mnist-cnn", 1), ("fashion-mlp", 32)])
def test_both_labs_are_recorded(name: str, batch_size: int, make_setup: MakeSetup) -> None:
    settings = {"data": "bundled", "batch_size": batch_size}
    setup = make_setup(workload=find_workload(name), **settings)
    session = ENGINES["tuned"].open([Member(setup, Moments([]), Progress())])
    with session.training(1):
        session.advance(3)
    assert setup.engine_facts["tuned"]["passes"] == "recorded"


def test_denormal_and_not_finite_numbers_are_the_same(make_setup: MakeSetup) -> None:
    class Overflows(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            return super().forward(inputs * 3e38)

    setup = make_setup(workload=workload_of(lambda: Overflows(8, 3)))
    passes = RecordedPasses(setup, setup.model)
    losses = trained(setup, passes)[0]
    assert not losses.isfinite().any()
    assert passes.why is None


@pytest.mark.parametrize("engine", ["graphed", "lanes"])
@pytest.mark.parametrize("name", ["dropout", "shared", "batch norm", "layer norm", "tied"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_programs_on_a_cpu_are_recorded_and_stay_what_they_are(
    engine: str,
    name: str,
    optimizer: str,
    make_setup: MakeSetup,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(fewest: int) -> tuple[list[float], bool]:
        monkeypatch.setattr(programs, "FEWEST_UPDATES", fewest)
        settings = {"optimizer": optimizer, "zero_grad": optimizer == "adam"}
        seeds = (1, 2, 3) if engine == "lanes" else (1,)
        setups = [make_setup(seed, workload_of(KINDS[name]), **settings) for seed in seeds]
        session = ENGINES[engine].open([Member(one, Moments([]), Progress()) for one in setups])
        losses = []
        for epoch in (1, 2):
            with session.training(epoch):
                for _ in range(len(setups[0].train_batches)):
                    losses += [means.values["loss"] for means in session.advance(1)]
            losses += [means.values["loss"] for means in session.test(epoch)]
        (full,) = [one for one in session._steps if one.rows.shape[2] == 10]  # type: ignore[attr-defined]
        return losses, full.operators is not None

    ours, expected = run(fewest=1), run(fewest=10**9)
    assert ours[0] == expected[0]
    assert (ours[1], expected[1]) == (True, False)
