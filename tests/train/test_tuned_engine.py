"""Engine tuned: eager's results to rounding, in other code."""

import copy
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import StepLR

from training import HomedSetup, MakeSetup
from trainlab.data.dataset import Dataset, Split
from trainlab.measure.flops import WorkCounter
from trainlab.record.schema import note
from trainlab.record.trial_record import Progress
from trainlab.spec.optimizers import OPTIMIZERS
from trainlab.train.callbacks import Moments
from trainlab.train.engines import ENGINES, tuned
from trainlab.train.engines.engine import Member
from trainlab.train.engines.tuned import (
    STATES,
    VARIANTS,
    NativeStep,
    calling,
    fastest_variant,
    find_compiler,
    has_variants,
    kept_choice,
    library,
    native_class,
)
from trainlab.workloads.workload import Workload

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler")
OF_CONVOLUTIONS = [*VARIANTS[nn.Conv2d]]
EPS = torch.finfo(torch.float32).eps


@pytest.fixture
def small() -> Workload:
    """Two convolutions, with a bias and padding and without, dropout between them."""

    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(80, 1, 10, 10, generator=draw), torch.randint(3, (80,), generator=draw)
    data = Dataset("small", Split(x[:50], y[:50]), Split(x[50:], y[50:]))

    def model() -> nn.Module:
        return nn.Sequential(
            *(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Dropout(0.2)),
            *(nn.Conv2d(4, 6, (3, 2), bias=False), nn.Flatten(), nn.Linear(6 * 8 * 9, 3)),
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
    monkeypatch.setenv("XDG_STATE_HOME", str(cache / "own"))
    return cache


def choose(monkeypatch: pytest.MonkeyPatch, variant: str, *, compiles: bool = False) -> None:
    """Decides what would be measured."""
    of = {nn.Conv2d: variant, nn.Linear: "torch" if variant == "torch" else "exchanged"}
    monkeypatch.setattr(tuned, "fastest_variant", lambda layer, *_: of[type(layer)])
    monkeypatch.setattr(tuned, "WORTH_COMPILING", 1 if compiles else 1e30)


def losses(setup: HomedSetup, engine: str, num_steps: int) -> list[float]:
    session = ENGINES[engine].open([Member(setup, Moments([]), Progress())])
    found: list[float] = []
    for epoch in range(1, 1 + -(-num_steps // (per_epoch := len(setup.train_batches)))):
        with session.training(epoch):
            steps = min(per_epoch, num_steps - len(found))
            found += [session.advance(1)[0].values["loss"] for _ in range(steps)]
    return [*found, session.test(1)[0].values["loss"]]


@needs_compiler
@pytest.mark.parametrize("variant", OF_CONVOLUTIONS)
def test_losses_equal_those_of_eager(
    variant: str,
    small: Workload,
    make_setup: MakeSetup,
    no_choices: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    choose(monkeypatch, variant, compiles=True)
    setup, again, by_eager = (make_setup(workload=small, optimizer="adadelta") for _ in range(3))
    ours = losses(setup, "tuned", 30)
    assert isinstance(setup.optimizer, NativeStep)
    assert setup.engine_facts == {
        "tuned": {"update": "native", "layers": {"0": variant, "3": variant, "5": "exchanged"}}
    }
    assert ours == pytest.approx(losses(by_eager, "eager", 30), rel=1e-4)
    assert ours == losses(again, "tuned", 30)


def derivatives(output: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    """First and second ones."""
    firsts = torch.autograd.grad(output.sin().sum(), leaves, create_graph=True)
    return [output, *firsts, *torch.autograd.grad(firsts[0].square().sum(), leaves[:2])]


def test_every_variant_gives_torch_s_output_and_gradients_of_first_and_second_order() -> None:
    draw = torch.Generator().manual_seed(0)
    layers = [
        (nn.Conv2d(4, 5, (2, 3), padding=padding, bias=bias), (3, 4, 9, 8))
        for padding in ((0, 0), (1, 2))
        for bias in (True, False)
    ]
    layers += [(nn.Linear(7, 3, bias=bias), (rows, 7)) for rows in (1, 5) for bias in (True, False)]
    for layer, shape in layers:
        x = torch.randn(shape, generator=draw, requires_grad=True)
        leaves = [x, *layer.parameters()]
        theirs = derivatives(layer(x), leaves)
        for name, variant in VARIANTS[type(layer)].items():
            for one, other in zip(derivatives(variant(layer, x), leaves), theirs, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4, msg=f"{layer} {name}")


def test_every_variant_is_counted_with_its_flops() -> None:
    for name, variant in VARIANTS[nn.Conv2d].items():
        layer, x = nn.Conv2d(2, 3, 3), torch.randn(4, 2, 8, 8, requires_grad=True)
        counter = WorkCounter()
        counter.forward_begins()
        variant(layer, x).sum().backward()  # type: ignore[no-untyped-call]
        counter.end()
        once = 2 * 4 * 6 * 6 * layer.weight.numel()
        # The convolution of the gradient also visits the border, where it meets zeros.
        over_the_border = 2 * 4 * 8 * 8 * layer.weight.numel()
        of_input = over_the_border if "input" in name else once
        assert counter.between.flops_by_kind.total() == 2 * once + of_input
        assert not counter.uncounted


def test_a_model_is_changed_only_while_it_runs() -> None:
    layer = nn.Conv2d(1, 2, 3)
    model = nn.Sequential(layer, nn.ReLU())
    seen: list[Any] = []
    layer.register_forward_hook(lambda module, given, output: seen.append(output.grad_fn.name()))
    before = copy.deepcopy(vars(layer))
    call = calling(model, {"0": layer}, lambda *_: "input")
    x = torch.randn(2, 1, 6, 6)
    torch.testing.assert_close(call(x), model(x))
    assert seen == ["ConvolutionBackward", "ConvolutionBackward0"]
    assert vars(layer).keys() == before.keys()
    with pytest.raises(RuntimeError):
        call(torch.randn(2, 7, 6, 6))
    assert "forward" not in vars(layer)


def test_what_was_not_measured_is_torch_s() -> None:
    model = nn.Sequential(nn.Conv2d(3, 2, 3))
    call = calling(model, {"0": model[0]}, lambda *_: "weight")
    assert call(torch.randn(2, 3, 6, 6)).grad_fn.name() == "ConvolutionBackward"
    channels_last = torch.randn(2, 3, 6, 6).to(memory_format=torch.channels_last)
    for x in (torch.randn(2, 3, 7, 7), channels_last):
        assert call(x).grad_fn.name() == "ConvolutionBackward0"
    with torch.autocast("cpu"):
        assert call(torch.randn(2, 3, 6, 6)).grad_fn.name() == "ConvolutionBackward0"


def test_layers_are_measured_without_touching_the_model(
    small: Workload, make_setup: MakeSetup, no_choices: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    monkeypatch.setattr(tuned, "fastest_variant", lambda *call: calls.append(call[1:]) or "torch")
    not_plain = nn.Conv2d(2, 2, 3, groups=2), nn.Conv2d(2, 3, 3, stride=2), nn.LazyConv2d(3, 3)
    assert not any(map(has_variants, not_plain))
    setup = make_setup(workload=small)
    tuned.tuned_model(setup)(setup.train_batches.sample()[0])
    assert calls == [((8, 1, 10, 10), False), ((8, 4, 10, 10), True), ((8, 432), True)]
    assert all(parameter.grad is None for parameter in setup.model.parameters())
    monkeypatch.undo()
    for layer in setup.model:
        if has_variants(layer):
            shape = (layer.in_channels, 8, 8) if type(layer) is nn.Conv2d else (layer.in_features,)
            assert fastest_variant(layer, (2, *shape), True) in {"torch", *VARIANTS[type(layer)]}
    assert all(parameter.grad is None for parameter in setup.model.parameters())


def test_what_is_decided_first_stays(new_cache: Path) -> None:
    assert kept_choice((1, 2), lambda: "first") == "first"
    assert kept_choice((1, 2), lambda: "second") == "first"
    assert kept_choice((1, 3), lambda: "second") == "second"
    # Two processes decide at the same time: the one that is done first decides for both.
    assert kept_choice(4, lambda: kept_choice(4, lambda: "theirs") and "ours") == "theirs"
    torch.set_num_threads(2)
    assert kept_choice((1, 2), lambda: "third") == "third"


def test_a_short_training_does_not_compile(
    small: Workload, make_setup: MakeSetup, new_cache: Path
) -> None:
    for asked in (
        {"optimizer": "adadelta"},
        {"optimizer": "adadelta", "optimizer_code": "loop"},
        {"optimizer": "adam"},
    ):
        setup = make_setup(workload=small, engine="tuned", **asked)
        ENGINES["tuned"].training_step(setup, Moments([]))
        assert setup.engine_facts["tuned"]["update"] == "torch"
        assert not setup.notes
    assert not list(new_cache.rglob("native"))


def test_without_a_cache_torch_s_code_is_used_with_the_reason(
    small: Workload, make_setup: MakeSetup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose(monkeypatch, "input", compiles=True)
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    monkeypatch.setenv("TRAINLAB_CACHE", str(in_the_way))
    monkeypatch.setenv("XDG_STATE_HOME", str(in_the_way))
    setup = make_setup(workload=small)
    assert losses(setup, "tuned", 7) == losses(make_setup(workload=small), "eager", 7)
    assert {one.code for one in setup.notes} <= {"tuned_not_kept", "tuned_no_compiler"}
    assert setup.notes


def test_a_compiler_that_fails_or_is_missing_is_a_reason(
    small: Workload, make_setup: MakeSetup, new_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose(monkeypatch, "torch", compiles=True)
    new_cache.mkdir()
    broken = new_cache / "cxx"
    broken.write_text('#!/bin/sh\n[ "$1" = --version ] || { echo "no such chip" >&2; exit 1; }\n')
    broken.chmod(0o755)
    failed = note("tuned_compiler_failed", error="no such chip")
    for named, why in ((str(broken), failed), ("no-such-compiler", note("tuned_no_compiler"))):
        monkeypatch.setenv("CXX", named)
        setup = make_setup(workload=small, optimizer="adadelta")
        ENGINES["tuned"].training_step(setup, Moments([]))
        assert setup.notes == [why]
        assert setup.engine_facts["tuned"]["update"] == "torch"
    assert not list((new_cache / "own" / "trainlab" / "native").iterdir())


@needs_compiler
def test_compiled_code_that_another_could_have_planted_is_not_loaded(
    small: Workload, make_setup: MakeSetup, new_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither in the cache, which may be shared, nor in a folder or a file that others can open."""
    choose(monkeypatch, "torch", compiles=True)

    def update(setup: HomedSetup) -> object:
        ENGINES["tuned"].training_step(setup, Moments([]))
        return setup.engine_facts["tuned"]["update"]

    assert update(make_setup(workload=small, optimizer="adadelta")) == "native"
    (compiled,) = new_cache.rglob("*.so")
    assert (compiled.parent.stat().st_mode & 0o777, compiled.stat().st_mode & 0o777) == (0o700,) * 2
    assert compiled.parent == new_cache / "own" / "trainlab" / "native"
    for place in (compiled, compiled.parent):
        place.chmod(0o755)
        setup = make_setup(workload=small, optimizer="adadelta")
        assert update(setup) == "torch"
        (told,) = setup.notes
        assert (told.code, str(place) in str(told.values)) == ("tuned_not_kept", True)
        place.chmod(0o700)
    monkeypatch.setattr("os.getuid", lambda: 12345)
    assert update(make_setup(workload=small, optimizer="adadelta")) == "torch"


# The compiled update against torch's own optimizers, step for step.

SHAPES = ((5, 7), (3,), (2, 3, 2, 2), ())


def ours_of(kind: str) -> type[Optimizer]:
    compiler = find_compiler()
    assert compiler is not None
    torchs = getattr(torch.optim, OPTIMIZERS[kind].torch_class)  # type: ignore[index]
    return native_class(torchs, kind, library(compiler))


def pair_of(kind: str, **options: Any) -> list[Optimizer]:
    """torch's optimizer and ours, on equal parameters."""
    draw = torch.Generator().manual_seed(0)
    made = [torch.randn(shape, generator=draw) for shape in SHAPES]
    theirs = getattr(torch.optim, OPTIMIZERS[kind].torch_class)  # type: ignore[index]
    return [
        one([nn.Parameter(tensor.clone()) for tensor in made], foreach=False, **options)
        for one in (theirs, ours_of(kind))
    ]


def parameters(optimizer: Optimizer) -> list[Tensor]:
    return [one for group in optimizer.param_groups for one in group["params"]]


def stepped(both: list[Optimizer], step: int, skipped: int | None = None) -> None:
    draw = torch.Generator().manual_seed(1000 + step)
    for number, same in enumerate(zip(*map(parameters, both), strict=True)):
        gradient = torch.randn(same[0].shape, generator=draw)
        for one in same:
            one.grad = None if number == skipped else gradient.to(one.dtype)
    for optimizer in both:
        optimizer.step()


def furthest(both: list[Optimizer]) -> float:
    """The largest difference of two parameters, relative to the largest number of their tensor."""
    return max(
        float((a - b).detach().abs().max() / a.detach().abs().max())
        for a, b in zip(*map(parameters, both), strict=True)
    )


OPTIONS: Mapping[str, Sequence[dict[str, Any]]] = {
    "adadelta": ({"rho": 0.0}, {"rho": 0.5, "weight_decay": 0.1}, {"weight_decay": 1e-3}),
    "rmsprop": ({"alpha": 0.3}, {"alpha": 0.9, "momentum": 0.9}, {"weight_decay": 0.1}),
}


def test_what_torch_has_no_fused_update_for_is_compiled() -> None:
    lacking = {name for name, rules in OPTIMIZERS.items() if "cpu" not in rules.fused_on}
    assert lacking == set(STATES) == set(OPTIONS)


@needs_compiler
@pytest.mark.parametrize("kind", STATES)
def test_updates_are_those_of_torch_to_rounding_whoever_takes_the_state_over(kind: str) -> None:
    for options in OPTIONS[kind]:
        both = pair_of(kind, lr=0.1, **options)
        for step in range(30):
            stepped(both, step)
            if step % 10 == 9:
                theirs, ours = (copy.deepcopy(one.state_dict()) for one in both)
                both[0].load_state_dict(ours)
                both[1].load_state_dict(theirs)
        assert furthest(both) < 100 * EPS, options


@needs_compiler
def test_a_centered_rmsprop_with_a_schedule_is_torch_s() -> None:
    both = pair_of("rmsprop", lr=0.01, centered=True, momentum=0.9)
    schedules = [StepLR(one, 10, 0.5) for one in both]
    for step in range(20):
        stepped(both, step)
        for one in schedules:
            one.step()
    assert furthest(both) < 1e-4
    assert len(both[1].state[parameters(both[1])[0]]) == 1 + STATES["rmsprop"]


@needs_compiler
def test_gradients_that_lie_otherwise_or_are_none_are_torch_s_affair() -> None:
    both = pair_of("adadelta")
    for step in range(20):
        stepped(both, step, skipped=step % 3 if step else None)
    assert [int(both[1].state[one]["step"]) for one in parameters(both[1])] == [14, 13, 14, 20]
    for one in both:
        for parameter in parameters(one):
            parameter.grad = torch._efficientzerotensor(parameter.shape)
        parameters(one)[0].grad = torch.arange(35.0).view(7, 5).t()
        one.step()
    assert furthest(both) < 100 * EPS


@needs_compiler
def test_threads_change_nothing() -> None:
    def updated(threads: int, *, of_torch: bool = True) -> Tensor:
        torch.set_num_threads(threads)
        draw = torch.Generator().manual_seed(0)
        sizes = 7, 300_001, 65, 100_000
        every = [nn.Parameter(torch.randn(size, generator=draw)) for size in sizes]
        optimizer = ours_of("adadelta")(every)  # type: ignore[call-arg]
        if not of_torch:
            optimizer.library.trainlab_use_threads(None, None, None)  # type: ignore[attr-defined]
        for _ in range(3):
            for one in every:
                one.grad = torch.randn(len(one), generator=draw)
            optimizer.step()
        return torch.cat(every).detach()

    before = torch.get_num_threads()
    alone = updated(1)
    assert torch.equal(updated(2), alone)
    assert torch.equal(updated(3, of_torch=False), alone)
    torch.set_num_threads(before)
