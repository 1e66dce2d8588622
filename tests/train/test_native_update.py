"""The compiled update against torch's own optimizers, step for step."""

import copy
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import StepLR

from trainlab.spec.settings import OPTIMIZERS
from trainlab.train.engines import tuned
from trainlab.train.engines.tuned import (
    STATES,
    NativeStep,
    NoLibraryError,
    find_compiler,
    library,
    native_class,
)

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler")

SHAPES = ((5, 7), (3,), (2, 3, 2, 2), ())
EPS = torch.finfo(torch.float32).eps


@pytest.fixture(scope="module", autouse=True)
def _compiled(cache_of_tests: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRAINLAB_CACHE", str(cache_of_tests))
        library()
        yield


def ours_of(kind: str) -> type[Optimizer]:
    return native_class(getattr(torch.optim, OPTIMIZERS[kind].torch_class), kind, library())  # type: ignore[index]


def pair_of(kind: str, dtype: torch.dtype = torch.float32, **options: Any) -> list[Optimizer]:
    """torch's optimizer and ours, on equal parameters."""
    draw = torch.Generator().manual_seed(0)
    made = [torch.randn(shape, generator=draw).to(dtype) for shape in SHAPES]
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
    if step == 0:
        _refuse_torch(both[1])


def _refuse_torch(optimizer: Optimizer) -> None:
    """Has any further update by torch's code fail."""

    def refuse(*given: Any, **named: Any) -> None:
        raise AssertionError("torch made this update")

    assert isinstance(optimizer, NativeStep)
    theirs = type("T", (type(optimizer).__mro__[2],), {"step": refuse})
    members = {"library": library(), "kind": optimizer.kind}
    optimizer.__class__ = type("Watched", (NativeStep, theirs), members)


def furthest(both: list[Optimizer]) -> float:
    """The largest difference of two parameters, relative to the largest number of their tensor."""
    return max(
        float((a - b).detach().abs().max() / a.detach().abs().max())
        for a, b in zip(*map(parameters, both), strict=True)
    )


RATES = st.sampled_from([0.0, 1e-3, 0.1])
OPTIONS: Mapping[str, st.SearchStrategy[dict[str, Any]]] = {
    "adadelta": st.fixed_dictionaries(
        {"rho": st.sampled_from([0.0, 0.5, 0.9]), "weight_decay": RATES}
    ),
    "rmsprop": st.fixed_dictionaries(
        {
            "alpha": st.sampled_from([0.3, 0.9, 0.99]),
            "momentum": st.sampled_from([0.0, 0.9]),
            "weight_decay": RATES,
        }
    ),
}


def test_what_torch_has_no_fused_update_for_is_compiled() -> None:
    lacking = {name for name, rules in OPTIMIZERS.items() if "cpu" not in rules.fused_on}
    assert lacking == set(STATES) == set(OPTIONS)


@pytest.mark.parametrize("kind", STATES)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_updates_are_those_of_torch_to_rounding(kind: str, data: st.DataObject) -> None:
    both = pair_of(kind, lr=0.1, **data.draw(OPTIONS[kind]))
    for step in range(30):
        stepped(both, step)
    assert furthest(both) < 100 * EPS


def test_a_centered_rmsprop_with_a_schedule_is_torch_s() -> None:
    both = pair_of("rmsprop", lr=0.01, centered=True, momentum=0.9)
    schedules = [StepLR(one, 10, 0.5) for one in both]
    for step in range(20):
        stepped(both, step)
        for one in schedules:
            one.step()
    assert furthest(both) < 1e-4
    assert both[1].state[parameters(both[1])[0]].keys() == {"step", *STATES["rmsprop"]}


def test_a_parameter_without_a_gradient_is_left_alone() -> None:
    both = pair_of("adadelta")
    stepped(both, 0)
    for step in range(1, 20):
        stepped(both, step, skipped=step % 3)
    assert furthest(both) < 100 * EPS
    assert [int(both[1].state[one]["step"]) for one in parameters(both[1])] == [14, 13, 14, 20]


@pytest.mark.parametrize("kind", STATES)
def test_state_goes_to_torch_and_back(kind: str) -> None:
    both = pair_of(kind)
    for step in range(20):
        stepped(both, step)
        if step % 10 == 9:
            theirs, ours = (copy.deepcopy(one.state_dict()) for one in both)
            both[0].load_state_dict(ours)
            both[1].load_state_dict(theirs)
    assert furthest(both) < 100 * EPS


def test_groups_have_their_own_options() -> None:
    both = pair_of("adadelta")
    for one in both:
        one.param_groups[0]["params"], rest = parameters(one)[:2], parameters(one)[2:]
        one.add_param_group({"params": rest, "lr": 0.1, "weight_decay": 0.1})
    for step in range(10):
        stepped(both, step)
    assert furthest(both) < 100 * EPS


def test_what_the_compiled_update_cannot_do_torch_does() -> None:
    for dtype, options in (
        (torch.bfloat16, {}),
        (torch.float64, {}),
        (torch.float32, {"maximize": True}),
    ):
        both = pair_of("adadelta", dtype, **options)
        for step in (1, 2, 3):
            stepped(both, step)
        assert all(map(torch.equal, parameters(both[0]), parameters(both[1])))
    both = pair_of("adadelta")
    for one in both:  # gradients that do not lie in order, or have no memory
        for _ in range(3):
            for parameter in parameters(one):
                parameter.grad = torch._efficientzerotensor(parameter.shape)
            parameters(one)[0].grad = torch.arange(35.0).view(7, 5).t()
            one.step()
    assert all(map(torch.equal, parameters(both[0]), parameters(both[1])))


def test_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def updated(threads: int) -> Tensor:
        torch.set_num_threads(threads)
        draw = torch.Generator().manual_seed(0)
        sizes = 7, 300_001, 65, 100_000
        every = [nn.Parameter(torch.randn(size, generator=draw)) for size in sizes]
        optimizer = ours_of("adadelta")(every)  # type: ignore[call-arg]
        for _ in range(3):
            for one in every:
                one.grad = torch.randn(len(one), generator=draw)
            optimizer.step()
        return torch.cat(every).detach()

    before = torch.get_num_threads()
    alone = updated(1)
    assert torch.equal(updated(2), alone)
    if sys.platform == "linux" and "OpenMP" in torch.__config__.parallel_info():
        assert tuned._threads_of_torch() is not None
    monkeypatch.setattr(tuned, "_threads_of_torch", lambda: None)
    assert torch.equal(updated(3), alone)
    torch.set_num_threads(before)


def test_a_failing_compiler_none_and_no_cache_are_reasons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    monkeypatch.setenv("TRAINLAB_CACHE", str(in_the_way))
    with pytest.raises(NoLibraryError, match="tuned_not_kept"):
        library()
    monkeypatch.setenv("TRAINLAB_CACHE", str(tmp_path))
    broken = tmp_path / "cxx"
    broken.write_text('#!/bin/sh\n[ "$1" = --version ] || { echo "no such chip" >&2; exit 1; }\n')
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    with pytest.raises(NoLibraryError) as raised:
        library()
    assert (raised.value.code, raised.value.reason) == ("tuned_compiler_failed", "no such chip")
    assert not list((tmp_path / "native").iterdir())
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(NoLibraryError, match="tuned_no_compiler"):
        library()


def test_hooks_are_told_of_a_step_once() -> None:
    for one in pair_of("adadelta"):
        told: list[str] = []
        one.register_step_pre_hook(lambda *_, told=told: told.append("before"))
        one.register_step_post_hook(lambda *_, told=told: told.append("after"))
        for parameter in parameters(one):
            parameter.grad = torch.ones_like(parameter)
        one.step()
        one.step()
        one.step(closure=lambda: 1.0)
        assert told == ["before", "after"] * 3


def test_a_graph_that_an_update_has_made_stale_is_refused() -> None:
    parameter = nn.Parameter(torch.ones(4))
    optimizer = ours_of("adadelta")([parameter])  # type: ignore[call-arg]
    parameter.grad = torch.ones(4)
    optimizer.step()
    loss = (parameter * parameter).sum()
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()  # type: ignore[no-untyped-call]
