"""Engine tuned: eager's results to rounding, in other code."""

import copy
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training import HomedSetup, MakeSetup
from trainlab.analysis.evidence import trial_confounds
from trainlab.data.dataset import Dataset, Split
from trainlab.measure.flops import WorkCounter
from trainlab.record.schema import note
from trainlab.record.trial_record import TrialRecord
from trainlab.train.callbacks import Moments, Progress
from trainlab.train.engines import ENGINES, kernel_variants, tuned
from trainlab.train.engines.engine import Member
from trainlab.train.engines.kernel_variants import (
    ALL_TORCH,
    CONVOLUTION,
    KINDS,
    LINEAR,
    Choice,
    TunedLayer,
    TunedModel,
    cached_choice,
    faster,
    fastest_variants,
    kind_of,
    sample_calls,
)
from trainlab.train.engines.tuned import NativeStep, find_compiler
from trainlab.workloads.workload import Workload

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler")
OURS = [
    Choice("columns", "convolution", "product"),
    Choice("torch", "columns", "columns"),
    Choice("columns", "torch", "torch"),
]


@pytest.fixture
def small() -> Workload:
    """Two convolutions, with a bias and padding and without, dropout between them."""

    def data(choice: str = "auto") -> Dataset:
        draw = torch.Generator().manual_seed(0)

        def split(count: int) -> Split:
            labels = torch.randint(3, (count,), generator=draw)
            return Split(torch.randn(count, 1, 10, 10, generator=draw), labels)

        return Dataset("small", split(50), split(30))

    def model() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Conv2d(4, 6, (3, 2), bias=False),
            nn.Flatten(),
            nn.Linear(6 * 8 * 9, 3),
        )

    defaults = {"epochs": 2, "batch_size": 8, "lr": 0.01}
    return Workload(name="small", model=model, data=data, loss=F.cross_entropy, defaults=defaults)


@pytest.fixture
def no_choices(cache_of_tests: Path) -> None:
    """Nothing is decided yet; what is compiled stays."""
    shutil.rmtree(cache_of_tests / "choices", ignore_errors=True)


@pytest.fixture
def new_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    cache = tmp_path / "cache"
    monkeypatch.setenv("TRAINLAB_CACHE", str(cache))
    return cache


def choose(monkeypatch: pytest.MonkeyPatch, choice: Choice, *, compiles: bool = False) -> None:
    """Decides what would be measured."""
    linear = Choice(forward="exchanged" if choice.forward == "columns" else "torch")
    by_kind = {"convolution": choice, "linear": linear}
    monkeypatch.setattr(
        kernel_variants, "fastest_variants", lambda kind, *given: by_kind[kind.name]._asdict()
    )
    monkeypatch.setattr(tuned, "WORTH_COMPILING", 1 if compiles else 1e30)


def losses(setup: HomedSetup, engine: str, num_steps: int) -> list[float]:
    session = ENGINES[engine].open([Member(setup, Moments([]), Progress())])
    found: list[float] = []
    epoch = 0
    while len(found) < num_steps:
        epoch += 1
        with session.training(epoch):
            steps = min(len(setup.train_batches), num_steps - len(found))
            found += [session.advance(1)[0].values["loss"] for _ in range(steps)]
    return [*found, session.test(1)[0].values["loss"]]


@needs_compiler
@pytest.mark.parametrize("ways", OURS, ids=str)
def test_losses_equal_those_of_eager(
    ways: Choice,
    small: Workload,
    make_setup: MakeSetup,
    no_choices: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    choose(monkeypatch, ways, compiles=True)
    setup = make_setup(workload=small, optimizer="adadelta")
    ours = losses(setup, "tuned", 50)
    assert isinstance(setup.optimizer, NativeStep)
    assert ours == pytest.approx(
        losses(make_setup(workload=small, optimizer="adadelta"), "eager", 50), rel=1e-4
    )
    assert ours == losses(make_setup(workload=small, optimizer="adadelta"), "tuned", 50)


@pytest.mark.parametrize("ways", OURS, ids=str)
@pytest.mark.parametrize("padding", [(0, 0), (1, 2)])
@pytest.mark.parametrize("has_bias", [True, False])
def test_every_way_gives_torch_s_output_and_gradients(
    ways: Choice, padding: tuple[int, int], has_bias: bool
) -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(3, 4, 9, 8, generator=draw)
    weight = torch.randn(5, 4, 2, 3, generator=draw)
    bias = torch.randn(5, generator=draw) if has_bias else None

    def results(convolve: Callable[..., Tensor]) -> list[Tensor]:
        leaves = [
            None if one is None else one.clone().requires_grad_() for one in (x, weight, bias)
        ]
        output = convolve(*leaves)
        output.sin().sum().backward()  # type: ignore[no-untyped-call]
        return [output, *(one.grad for one in leaves if one is not None and one.grad is not None)]

    ours = results(lambda *given: TunedLayer.apply(*given, (padding,), CONVOLUTION, ways))  # type: ignore[no-untyped-call]
    theirs = results(lambda *given: F.conv2d(*given, padding=padding))
    assert len(ours) == len(theirs) == 3 + has_bias
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("ways", OURS, ids=str)
def test_every_way_is_counted_with_its_flops(ways: Choice) -> None:
    layer, x = nn.Conv2d(2, 3, 3), torch.randn(4, 2, 8, 8, requires_grad=True)
    counter = WorkCounter()
    counter.begin()
    TunedLayer.apply(x, layer.weight, layer.bias, ((0, 0),), CONVOLUTION, ways).sum().backward()  # type: ignore[no-untyped-call]
    counter.end()
    once = 2 * 4 * 6 * 6 * layer.weight.numel()
    # The convolution of the gradient also visits the border, where it meets zeros.
    over_the_border = 2 * 4 * 8 * 8 * layer.weight.numel()
    grad_input = over_the_border if ways.grad_input == "convolution" else once
    assert counter.between.flops == 2 * once + grad_input
    assert not counter.uncounted


@pytest.mark.parametrize("way", ["torch", "exchanged", "copied"])
@pytest.mark.parametrize("of_weight", ["torch", "of_one"])
@pytest.mark.parametrize("num_samples", [1, 5])
@pytest.mark.parametrize("has_bias", [True, False])
def test_every_way_of_a_linear_layer_gives_torch_s_output_and_gradients(
    way: str, of_weight: str, num_samples: int, has_bias: bool
) -> None:
    draw = torch.Generator().manual_seed(0)
    ways = Choice(forward=way, grad_weight=of_weight)
    shapes = [(num_samples, 7), (3, 7), (3,)][: 2 + has_bias]
    leaves = [torch.randn(shape, generator=draw, requires_grad=True) for shape in shapes]

    def results(output: Tensor) -> list[Tensor]:
        firsts = torch.autograd.grad(output.sin().sum(), leaves, create_graph=True)
        second = torch.autograd.grad(firsts[0].square().sum(), leaves[:2])
        return [output, *firsts, *second]

    given = (*leaves, None)[:3]
    ours = results(TunedLayer.apply(*given, (), LINEAR, ways))  # type: ignore[no-untyped-call]
    for one, other in zip(ours, results(F.linear(*given)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_a_second_derivative_is_torch_s() -> None:
    x = torch.randn(2, 3, 6, 6, requires_grad=True)
    weight = torch.randn(4, 3, 3, 3, requires_grad=True)

    def second(output: Tensor) -> tuple[Tensor, ...]:
        (first,) = torch.autograd.grad(output.square().sum(), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), (x, weight))

    ours = second(TunedLayer.apply(x, weight, None, ((0, 0),), CONVOLUTION, OURS[0]))  # type: ignore[no-untyped-call]
    for one, other in zip(ours, second(F.conv2d(x, weight)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (nn.Conv2d(2, 3, 3), True),
        (nn.Conv2d(2, 3, 3, stride=2), False),
        (nn.Conv2d(2, 3, 3, dilation=2), False),
        (nn.Conv2d(2, 2, 3, groups=2), False),
        (nn.Conv2d(2, 3, 3, padding="same"), False),
        (nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"), False),
        (nn.Conv2d(2, 3, 3, padding=3), False),
        (nn.Conv2d(2, 3, 3).double(), False),
        (nn.LazyConv2d(3, 3), False),
    ],
    ids=str,
)
def test_only_plain_convolutions_are_tuned(layer: nn.Module, expected: bool) -> None:
    assert (kind_of(layer) is not None) is expected


def test_a_model_is_changed_only_while_it_runs() -> None:
    layer = nn.Conv2d(1, 2, 3)
    model = nn.Sequential(layer, nn.ReLU())
    seen: list[Any] = []
    layer.register_forward_hook(lambda module, given, output: seen.append(output.grad_fn.name()))
    before = copy.deepcopy(vars(layer))
    model_of = TunedModel(model, {"0": ((1, 6, 6), {1: OURS[0]})})
    x = torch.randn(2, 1, 6, 6)
    torch.testing.assert_close(model_of(x), model(x))
    assert seen == ["TunedLayerBackward", "ConvolutionBackward0"]
    assert vars(layer).keys() == before.keys()
    with pytest.raises(RuntimeError):
        model_of(torch.randn(2, 7, 6, 6))
    assert "forward" not in vars(layer)


@pytest.mark.parametrize(
    "x",
    [torch.randn(2, 3, 7, 7), torch.randn(2, 3, 6, 6).to(memory_format=torch.channels_last)],
    ids=["size", "order"],
)
def test_other_inputs_than_those_measured_are_torch_s(x: Tensor) -> None:
    model_of = TunedModel(nn.Sequential(nn.Conv2d(3, 2, 3)), {"0": ((3, 6, 6), {1: OURS[0]})})
    assert model_of(x).grad_fn.name() == "ConvolutionBackward0"
    assert model_of(torch.randn(2, 3, 6, 6)).grad_fn.name() == "TunedLayerBackward"


def test_the_largest_batch_measured_that_is_not_above_counts() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3))
    model_of = TunedModel(model, {"0": ((1, 6, 6), {4: ALL_TORCH, 16: OURS[0]})})
    names = [model_of(torch.randn(n, 1, 6, 6)).grad_fn.name() for n in (1, 4, 15, 16, 100)]
    torchs, ours = "ConvolutionBackward0", "TunedLayerBackward"
    assert names == [torchs, torchs, torchs, ours, ours]


def test_calls_are_seen_without_touching_the_model(small: Workload) -> None:
    model = small.build({})
    model.train()
    calls = sample_calls(model, torch.randn(2, 1, 10, 10))
    assert {name: tuple(call) for name, call in calls.items()} == {
        "0": ((1, 10, 10), False),
        "3": ((4, 10, 10), True),
        "5": ((432,), True),
    }
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_what_is_decided_first_stays(new_cache: Path) -> None:
    assert cached_choice("x", (1, 2), lambda: {"way": "first"}) == {"way": "first"}
    assert cached_choice("x", (1, 2), lambda: {"way": "second"}) == {"way": "first"}
    assert cached_choice("x", (1, 3), lambda: {"way": "second"}) == {"way": "second"}
    torch.set_num_threads(2)
    assert cached_choice("x", (1, 2), lambda: {"way": "third"}) == {"way": "third"}


def test_the_faster_way_is_taken_and_torch_s_in_doubt() -> None:
    calls: list[str] = []

    def spin(name: str, turns: int) -> Callable[[], object]:
        return lambda: (calls.append(name), sum(range(turns)))

    assert faster({"torch": spin("t", 200_000), "x": spin("x", 1_000)})[0] == "x"
    assert faster({"torch": spin("t", 1_000), "x": spin("x", 200_000)})[0] == "torch"
    calls.clear()
    faster({"torch": spin("t", 1_000), "x": spin("x", 2_000_000)})
    assert calls.count("x") == 2, "a way that is far slower is not measured on"


def test_a_way_that_computes_something_else_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {"torch": CONVOLUTION["forward"]["torch"], "wrong": lambda *given: torch.zeros(())}
    missing = {"missing": lambda *given: torch.ops.aten.no_such_operator(*given)}
    monkeypatch.setitem(CONVOLUTION, "forward", wrong | missing)
    found = fastest_variants(KINDS[nn.Conv2d], nn.Conv2d(4, 4, 3), (2, 4, 8, 8), True)
    assert found["forward"] == "torch"


def test_the_record_says_what_was_chosen(
    small: Workload, make_setup: MakeSetup, no_choices: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose(monkeypatch, OURS[1])
    setup = make_setup(workload=small)
    ENGINES["tuned"].open([Member(setup, Moments([]), Progress())])
    by_size = {"8": OURS[1]._asdict(), "30": OURS[1]._asdict()}
    chosen = {"threads": torch.get_num_threads(), "update": "torch"}
    assert setup.engine_facts == {"tuned": {**chosen, "layers": {"0": by_size, "3": by_size}}}


@pytest.fixture
def _two_threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("new_cache", "_two_threads")
def test_the_number_of_threads_that_is_faster_trains_a_small_model_and_stays(
    small: Workload, make_setup: MakeSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuned, "LONGEST_S", 10.0)
    measured: list[list[str]] = []

    def one(ways: dict[str, Callable[[], object]]) -> tuple[str, dict[str, float]]:
        for work in ways.values():
            work()
        measured.append(list(ways))
        return tuned.ONE, {}

    monkeypatch.setattr(tuned, "faster", one)

    def opened(**settings: Any) -> int:
        torch.set_num_threads(2)
        setup = make_setup(workload=small, batch_size=10, device="cpu", **settings)
        before = {name: one.clone() for name, one in setup.model.state_dict().items()}
        ENGINES["tuned"].open([Member(setup, Moments([]), Progress())])
        assert all(torch.equal(one, before[n]) for n, one in setup.model.state_dict().items())
        assert setup.engine_facts["tuned"]["threads"] == torch.get_num_threads()
        return torch.get_num_threads()

    assert opened(epochs=2) == 2  # too short to pay for it
    assert opened(epochs=60) == 1
    assert opened(epochs=60) == 1
    assert measured == [["torch", "one"]]
    assert opened(epochs=60, threads=2) == 2  # as asked


def test_a_difference_in_what_was_chosen_is_named_unless_a_factor_explains_it() -> None:
    def record(update: str) -> TrialRecord:
        resolved = {"tuned": {"update": update}}
        return TrialRecord(
            id="t", kind="learn", workload="w", seed=1, settings={}, resolved=resolved
        )

    first, second = record("native"), record("torch")
    (confound,) = trial_confounds(first, second, frozenset({"lr"}))
    assert str(confound) == "tuned: {'update': 'native'} against {'update': 'torch'}"
    for factor in ("batch_size", "engine", "threads", "optimizer", "model.hidden"):
        assert not trial_confounds(first, second, frozenset({factor}))


def test_a_short_training_does_not_compile(
    small: Workload, make_setup: MakeSetup, new_cache: Path
) -> None:
    for optimizer, notes in (("adadelta", [note("tuned_too_short")]), ("adam", [])):
        setup = make_setup(workload=small, engine="tuned", optimizer=optimizer)
        ENGINES["tuned"].training_step(setup, Moments([]))
        assert setup.engine_facts["tuned"]["update"] == "torch"
        assert setup.notes == notes
    assert not (new_cache / "native").exists()


def test_an_implementation_of_torch_that_was_asked_for_is_used(
    small: Workload, make_setup: MakeSetup, no_choices: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose(monkeypatch, ALL_TORCH, compiles=True)
    setup = make_setup(workload=small, optimizer="adadelta", optimizer_code="loop")
    ENGINES["tuned"].training_step(setup, Moments([]))
    assert setup.engine_facts["tuned"]["update"] == "torch"
    assert type(setup.optimizer) is torch.optim.Adadelta


def test_without_a_cache_torch_s_code_is_used_with_the_reason(
    small: Workload, make_setup: MakeSetup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose(monkeypatch, OURS[0], compiles=True)
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    monkeypatch.setenv("TRAINLAB_CACHE", str(in_the_way))
    setup = make_setup(workload=small)
    assert losses(setup, "tuned", 7) == losses(make_setup(workload=small), "eager", 7)
    assert {one.code for one in setup.notes} <= {"tuned_not_kept", "tuned_no_compiler"}
    assert setup.notes


@needs_compiler
def test_an_optimizer_that_has_begun_hands_its_state_on(
    small: Workload, make_setup: MakeSetup, no_choices: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose(monkeypatch, ALL_TORCH, compiles=True)
    setup = make_setup(workload=small, optimizer="rmsprop")
    ENGINES["eager"].training_step(setup, Moments([]))(torch.arange(8))
    first = ENGINES["tuned"].training_step(setup, Moments([]))
    optimizer = setup.optimizer
    assert isinstance(optimizer, NativeStep)
    first(torch.arange(8))
    ENGINES["tuned"].training_step(setup, Moments([]))(torch.arange(8))
    assert setup.optimizer is optimizer
    assert {int(state["step"]) for state in optimizer.state.values()} == {3}
