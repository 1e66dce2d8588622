"""The compiled update against torch's own optimizers, step for step."""

import copy
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, StepLR

from trainlab.machine.process_state import DENORMAL_BITS
from trainlab.spec.settings import OPTIMIZERS
from trainlab.train.tuned import library as library_module
from trainlab.train.tuned.library import NoLibraryError, find_compiler, library
from trainlab.train.tuned.rules import RULES
from trainlab.train.tuned.update import NativeStep, native_class

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler")

SHAPES = ((5, 7), (3,), (2, 3, 2, 2), ())
NUM_STEPS = 50


@pytest.fixture(scope="module", autouse=True)
def _compiled(cache_of_tests: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRAINLAB_CACHE", str(cache_of_tests))
        library()
        yield


def parameters_of(dtype: torch.dtype, seed: int = 0) -> list[nn.Parameter]:
    draw = torch.Generator().manual_seed(seed)
    made = [torch.randn(shape, generator=draw, dtype=torch.float64) for shape in SHAPES]
    return [nn.Parameter(one.to(dtype)) for one in made]


def pair_of(
    torch_class: type[Optimizer], dtype: torch.dtype, options: Mapping[str, Any]
) -> tuple[Optimizer, Optimizer]:
    """torch's optimizer and ours, on equal parameters."""
    ours = native_class(torch_class, library())
    return (
        torch_class(parameters_of(dtype), foreach=False, **options),  # type: ignore[call-arg]
        ours(parameters_of(dtype), foreach=False, **options),  # type: ignore[call-arg]
    )


def parameters(optimizer: Optimizer) -> list[Tensor]:
    return [one for group in optimizer.param_groups for one in group["params"]]


def give_gradients(
    optimizers: tuple[Optimizer, ...], step: int, skipped: int | None = None
) -> None:
    draw = torch.Generator().manual_seed(1000 + step)
    for number, same in enumerate(zip(*map(parameters, optimizers), strict=True)):
        gradient = torch.randn(same[0].shape, generator=draw, dtype=torch.float64)
        for one in same:
            one.grad = None if number == skipped else gradient.to(one.dtype)


def furthest(first: Optimizer, second: Optimizer) -> float:
    """The largest difference of two parameters, relative to the largest number of their tensor."""
    return max(
        float((a - b).detach().abs().max() / a.detach().abs().max())
        for a, b in zip(parameters(first), parameters(second), strict=True)
    )


def makes_no_torch_update(optimizer: Optimizer) -> None:
    """Has any further update by torch's code fail."""

    def refuse(*given: Any, **named: Any) -> None:
        raise AssertionError("torch made this update")

    torch_class = type(optimizer).__mro__[2]
    optimizer.__class__ = type("Watched", (NativeStep, type("T", (torch_class,), {"step": refuse})), {
        "library": library(), "rule": RULES[torch_class]
    })  # fmt: skip


rates = st.sampled_from([0.0, 1e-3, 0.1])
shares = st.sampled_from([0.0, 0.3, 0.5, 0.9, 0.999])
flags = st.booleans()
small = st.sampled_from([1e-10, 1e-8, 1e-6, 1e-2])
OPTIONS: Mapping[type[Optimizer], st.SearchStrategy[dict[str, Any]]] = {
    torch.optim.Adadelta: st.fixed_dictionaries(
        {"lr": st.just(1.0), "rho": shares, "eps": small, "weight_decay": rates}
    ),
    torch.optim.SGD: st.one_of(
        st.fixed_dictionaries(
            {
                "lr": st.just(0.01),
                "momentum": st.sampled_from([0.0, 0.5, 0.9]),
                "dampening": st.sampled_from([0.0, 0.1, 1.0]),
                "weight_decay": rates,
            }
        ),
        st.fixed_dictionaries(
            {
                "lr": st.just(0.01),
                "momentum": st.sampled_from([0.5, 0.9]),
                "nesterov": st.just(True),
                "weight_decay": rates,
            }
        ),
    ),
    **{
        adam: st.fixed_dictionaries(
            {
                "lr": st.just(0.01),
                "betas": st.tuples(shares, shares),
                "eps": small,
                "amsgrad": flags,
                "weight_decay": rates,
            }
        )
        for adam in (torch.optim.Adam, torch.optim.AdamW)
    },
    torch.optim.RMSprop: st.fixed_dictionaries(
        {
            "lr": st.just(0.01),
            "alpha": shares,
            "eps": small,
            "centered": st.just(False),
            "momentum": st.sampled_from([0.0, 0.9]),
            "weight_decay": rates,
        }
    ),
    torch.optim.Adagrad: st.fixed_dictionaries(
        {
            "lr": st.just(0.01),
            "lr_decay": rates,
            "eps": small,
            "initial_accumulator_value": st.sampled_from([0.0, 0.1]),
            "weight_decay": rates,
        }
    ),
}
every_optimizer = pytest.mark.parametrize("torch_class", RULES, ids=lambda one: one.__name__)


def test_every_optimizer_of_the_settings_has_a_compiled_update() -> None:
    assert {one.__name__ for one in RULES} == {rules.torch_class for rules in OPTIMIZERS.values()}
    assert set(OPTIONS) == set(RULES)


@every_optimizer
@settings(max_examples=25, deadline=None)
@given(data=st.data())
@pytest.mark.slow
def test_fifty_updates_are_those_of_torch(
    torch_class: type[Optimizer], data: st.DataObject
) -> None:
    options = data.draw(OPTIONS[torch_class])
    both = pair_of(torch_class, torch.float64, options)
    for step in range(NUM_STEPS):
        give_gradients(both, step)
        for one in both:
            one.step()
        if step == 0:
            makes_no_torch_update(both[1])
    assert furthest(*both) < 1e-6


@every_optimizer
def test_updates_in_float32_are_those_of_torch_to_rounding(torch_class: type[Optimizer]) -> None:
    both = pair_of(torch_class, torch.float32, {"weight_decay": 0.01})
    for step in range(NUM_STEPS):
        give_gradients(both, step)
        for one in both:
            one.step()
        if step == 0:
            makes_no_torch_update(both[1])
    assert furthest(*both) < 20 * torch.finfo(torch.float32).eps


def test_a_centered_rmsprop_is_torch_s() -> None:
    """With gradients that vary: where they do not, the variance is zero but for rounding, in both."""
    both = pair_of(torch.optim.RMSprop, torch.float64, {"centered": True, "momentum": 0.9})
    for step in range(NUM_STEPS):
        give_gradients(both, step)
        for one in both:
            one.step()
    assert furthest(*both) < 1e-6
    assert both[1].state[parameters(both[1])[0]].keys() == {
        *("step", "square_avg", "grad_avg", "momentum_buffer")
    }


@pytest.mark.parametrize("schedule", [
    lambda optimizer: StepLR(optimizer, 10, 0.5), lambda optimizer: CosineAnnealingLR(optimizer, 50)
])  # fmt: skip
def test_a_schedule_changes_the_rate(schedule: Any) -> None:
    both = pair_of(torch.optim.Adam, torch.float64, {"lr": 0.1})
    schedules = [schedule(one) for one in both]
    for step in range(NUM_STEPS):
        give_gradients(both, step)
        for one, its_schedule in zip(both, schedules, strict=True):
            one.step()
            its_schedule.step()
    assert both[1].param_groups[0]["lr"] == both[0].param_groups[0]["lr"] < 0.01
    assert furthest(*both) < 1e-6


def test_a_parameter_without_a_gradient_is_left_alone() -> None:
    both = pair_of(torch.optim.Adam, torch.float64, {})
    for step in range(20):
        give_gradients(both, step, skipped=step % 3)
        for one in both:
            one.step()
    assert furthest(*both) < 1e-6
    assert [int(both[1].state[one]["step"]) for one in parameters(both[1])] == [13, 13, 14, 20]


@every_optimizer
def test_state_goes_to_torch_and_back(torch_class: type[Optimizer]) -> None:
    both = pair_of(torch_class, torch.float64, {})
    for step in range(30):
        give_gradients(both, step)
        for one in both:
            one.step()
        if step % 10 == 9:
            theirs, ours = (copy.deepcopy(one.state_dict()) for one in both)
            both[0].load_state_dict(ours)
            both[1].load_state_dict(theirs)
    assert furthest(*both) < 1e-6
    restored = pickle.loads(pickle.dumps(both[0].state_dict()))  # noqa: S301
    both[1].load_state_dict(restored)


def test_groups_have_their_own_options() -> None:
    def grouped(made: list[nn.Parameter]) -> list[dict[str, Any]]:
        return [{"params": made[:2], "lr": 0.1}, {"params": made[2:], "weight_decay": 0.1}]

    ours = native_class(torch.optim.AdamW, library())
    both = (
        torch.optim.AdamW(grouped(parameters_of(torch.float64))),
        ours(grouped(parameters_of(torch.float64))),  # type: ignore[call-arg]
    )
    for step in range(20):
        give_gradients(both, step)
        for one in both:
            one.step()
    assert furthest(*both) < 1e-6


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.complex64])
def test_what_the_compiled_update_cannot_do_torch_does(dtype: torch.dtype) -> None:
    both = pair_of(torch.optim.Adam, dtype, {})
    for step in range(3):
        give_gradients(both, step)
        for one in both:
            one.step()
    assert all(map(torch.equal, parameters(both[0]), parameters(both[1])))


def test_gradients_that_do_not_lie_in_order_are_torch_s_to_apply() -> None:
    both = pair_of(torch.optim.SGD, torch.float32, {"lr": 0.1})
    for one in both:
        for parameter in parameters(one):
            parameter.grad = torch.ones_like(parameter)
        matrix = parameters(one)[0]
        matrix.grad = torch.arange(35.0).view(7, 5).t()
        one.step()
    assert all(map(torch.equal, parameters(both[0]), parameters(both[1])))


def test_a_model_that_changes_its_type_between_updates_is_seen() -> None:
    both = pair_of(torch.optim.SGD, torch.float32, {"lr": 0.1, "momentum": 0.9})
    give_gradients(both, 0)
    for one in both:
        one.step()
        one.step()
        for parameter in parameters(one):
            parameter.data = parameter.data.double()
            parameter.grad = torch.ones_like(parameter)
            one.state[parameter]["momentum_buffer"] = torch.ones_like(parameter)
        one.step()
    assert furthest(*both) < 1e-6


@pytest.fixture(params=["torchs", "own"])
def _threads_of(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose threads update: own ones where torch's are not known."""
    if request.param == "own":
        monkeypatch.setattr(library_module, "_threads_of_torch", lambda: None)


def test_torchs_own_threads_are_found_where_it_has_openmp() -> None:
    if sys.platform != "linux" or "OpenMP" not in torch.__config__.parallel_info():
        pytest.skip("no OpenMP, or not where it is looked for")
    assert library_module._threads_of_torch() is not None


@pytest.mark.usefixtures("_threads_of")
@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_threads_change_nothing(num_threads: int) -> None:
    def updated(threads: int) -> Tensor:
        torch.set_num_threads(threads)
        draw = torch.Generator().manual_seed(0)
        sizes = 7, 300_001, 65, 100_000
        every = [nn.Parameter(torch.randn(size, generator=draw)) for size in sizes]
        optimizer = native_class(torch.optim.Adadelta, library())(every)  # type: ignore[call-arg]
        for _ in range(3):
            for one in every:
                one.grad = torch.randn(len(one), generator=draw)
            optimizer.step()
        return torch.cat(every).detach()

    assert torch.equal(updated(num_threads), updated(1))


@pytest.mark.usefixtures("_threads_of")
@pytest.mark.parametrize("flushes", [True, False])
@pytest.mark.parametrize("num_threads", [1, 2])
def test_denormal_numbers_are_flushed_where_torch_flushes_them(
    flushes: bool, num_threads: int
) -> None:
    torch.set_num_threads(num_threads)
    torch.set_flush_denormal(flushes)
    large = nn.Parameter(torch.zeros(300_000))
    optimizer = native_class(torch.optim.SGD, library())([large], lr=1.0, momentum=0.5)  # type: ignore[call-arg]
    for _ in range(2):  # the first is torch's
        large.grad = torch.zeros_like(large)
        optimizer.step()
        buffer = optimizer.state[large]["momentum_buffer"]
        buffer.view(torch.int32).fill_(DENORMAL_BITS)
    optimizer.step()
    left = int(buffer.view(torch.int32).count_nonzero())
    assert left == (0 if flushes else 300_000)


def lose_state(optimizer: Optimizer, place: int) -> None:
    optimizer.state.pop(parameters(optimizer)[place], None)


def lose_all_state(optimizer: Optimizer, place: int) -> None:
    optimizer.state.clear()


def move_weights(optimizer: Optimizer, place: int) -> None:
    one = parameters(optimizer)[place]
    one.data = one.data.clone()


def exchange_state(optimizer: Optimizer, place: int) -> None:
    state = optimizer.state[parameters(optimizer)[place]]
    if "exp_avg" in state:
        state["exp_avg"] = state["exp_avg"] * 2


def move_state(optimizer: Optimizer, place: int) -> None:
    state = optimizer.state[parameters(optimizer)[place]]
    if "exp_avg" in state:
        state["exp_avg"].data = state["exp_avg"].data + 1


def lose_gradient(optimizer: Optimizer, place: int) -> None:
    parameters(optimizer)[place].grad = None


def change_rate(optimizer: Optimizer, place: int) -> None:
    optimizer.param_groups[0]["lr"] *= 0.5


def toggle_maximum(optimizer: Optimizer, place: int) -> None:
    optimizer.param_groups[0]["maximize"] ^= True


def save_and_load(optimizer: Optimizer, place: int) -> None:
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))


def split_group(optimizer: Optimizer, place: int) -> None:
    moved = optimizer.param_groups[0]["params"]
    if len(moved) > 1:
        optimizer.add_param_group({"params": [moved.pop()]} | {"lr": 0.02})


def change_options_in_place(optimizer: Optimizer, place: int) -> None:
    group = optimizer.param_groups[0]
    group["betas"] = [*group["betas"]] if isinstance(group["betas"], tuple) else group["betas"]
    group["betas"][0] *= 0.9


def take_a_tensor(optimizer: Optimizer, place: int) -> None:
    group = optimizer.param_groups[0]
    group["weight_decay"] = torch.tensor(0.1 + float(group["weight_decay"]))


def decouple(optimizer: Optimizer, place: int) -> None:
    optimizer.param_groups[0]["decoupled_weight_decay"] ^= True


def exchange_names(optimizer: Optimizer, place: int) -> None:
    state = optimizer.state[parameters(optimizer)[place]]
    if "exp_avg" in state:
        step, first, second = (state.pop(name) for name in ("step", "exp_avg", "exp_avg_sq"))
        state |= {"step": step, "exp_avg_sq": first.abs(), "exp_avg": second}


def keep_something(optimizer: Optimizer, place: int) -> None:
    optimizer.state["count"] = 3  # type: ignore[index]


def turn_state(optimizer: Optimizer, place: int) -> None:
    state = optimizer.state[parameters(optimizer)[0]]
    if "exp_avg" in state:
        turned = state["exp_avg"].t().contiguous().t()
        state["exp_avg"].set_(turned.untyped_storage(), 0, turned.shape, turned.stride())


def use_weights_as_gradient(optimizer: Optimizer, place: int) -> None:
    one = parameters(optimizer)[place]
    one.grad = one.data


def nothing(optimizer: Optimizer, place: int) -> None:
    pass


DISTURBED = (
    *(lose_state, lose_all_state, move_weights, exchange_state, move_state, lose_gradient),
    *(change_rate, toggle_maximum, save_and_load, split_group, nothing, nothing),
    *(change_options_in_place, take_a_tensor, decouple, exchange_names, keep_something),
    *(turn_state, use_weights_as_gradient),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(DISTURBED), st.integers(0, 3)), max_size=12))
def test_whatever_is_done_to_an_optimizer_between_updates_is_done_to_it(
    disturbances: list[tuple[Callable[[Optimizer, int], None], int]],
) -> None:
    both = pair_of(torch.optim.Adam, torch.float64, {"lr": 0.01})
    for step, (disturb, place) in enumerate(disturbances):
        give_gradients(both, step)
        for one in both:
            disturb(one, place)
            one.step()
        assert furthest(*both) < 1e-12


@pytest.mark.parametrize("kind", ["adam", "sgd"])
def test_weights_that_share_memory_are_left_to_torch(kind: str) -> None:
    torch.set_num_threads(2)
    torch_class = torch.optim.Adam if kind == "adam" else torch.optim.SGD
    options = {} if kind == "adam" else {"momentum": 0.9, "weight_decay": 0.1}

    def updated(made_by: Any) -> Tensor:
        draw = torch.Generator().manual_seed(0)
        first, second = (nn.Parameter(torch.zeros(200_000)) for _ in range(2))
        second.data = first.data
        optimizer = made_by([first, second], lr=0.1, foreach=False, **options)
        for _ in range(5):
            for one in (first, second):
                one.grad = torch.randn(len(one), generator=draw)
            optimizer.step()
        return first.detach()

    assert torch.equal(updated(native_class(torch_class, library())), updated(torch_class))


def test_a_parameter_that_stands_in_a_group_twice_is_left_to_torch() -> None:
    with pytest.warns(UserWarning, match="duplicate"):
        pairs = [
            (one, made([one, one], lr=0.1, foreach=False))
            for made in (torch.optim.Adam, native_class(torch.optim.Adam, library()))
            for one in (nn.Parameter(torch.ones(5)),)
        ]
    for step in range(4):
        for one, optimizer in pairs:
            one.grad = torch.full((5,), 1.0 + step)
            optimizer.step()
    assert torch.equal(pairs[0][0], pairs[1][0])


def test_a_copied_optimizer_goes_on() -> None:
    both = pair_of(torch.optim.Adam, torch.float64, {"lr": 0.01})
    for step in range(2):
        give_gradients(both, step)
        for one in both:
            one.step()
    copies = copy.deepcopy(both)
    for step in range(2, 4):
        give_gradients(copies, step)
        for one in copies:
            one.step()
    assert furthest(*copies) < 1e-12
    assert furthest(both[1], copies[1]) > 1e-6


@pytest.mark.parametrize("options", [{"amsgrad": None}, {"amsgrad": np.True_}])
def test_flags_are_what_python_takes_for_true(options: Mapping[str, Any]) -> None:
    both = pair_of(torch.optim.Adam, torch.float64, {"lr": 0.01, **options})
    for step in range(3):
        give_gradients(both, step)
        for one in both:
            one.step()
    assert furthest(*both) < 1e-12


def test_a_gradient_without_memory_is_left_to_torch() -> None:
    one = nn.Parameter(torch.ones(6))
    optimizer = native_class(torch.optim.SGD, library())([one], lr=0.1, momentum=0.5)  # type: ignore[call-arg]
    for gradient in (torch.ones(6), torch.ones(6), torch._efficientzerotensor(6)):
        one.grad = gradient
        optimizer.step()
    assert torch.allclose(one, torch.full((6,), 1 - 0.1 - 0.15 - 0.075))


def test_a_failing_compiler_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINLAB_CACHE", str(tmp_path))
    broken = tmp_path / "cxx"
    broken.write_text(
        '#!/bin/sh\n[ "$1" = --version ] || { echo "update.cpp: no such chip" >&2; exit 1; }\n'
    )
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    with pytest.raises(NoLibraryError) as raised:
        library()
    assert (raised.value.code, raised.value.reason) == (
        "tuned_compiler_failed",
        "update.cpp: no such chip",
    )
    assert not list((tmp_path / "native").iterdir())


def test_no_compiler_and_no_cache_are_reasons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    monkeypatch.setenv("TRAINLAB_CACHE", str(in_the_way))
    with pytest.raises(NoLibraryError, match="tuned_not_kept"):
        library()
    monkeypatch.setenv("TRAINLAB_CACHE", str(tmp_path))
    with pytest.raises(NoLibraryError, match="tuned_too_short"):
        library(may_compile=False)
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(NoLibraryError, match="tuned_no_compiler"):
        library()


def test_the_source_lies_beside_the_code() -> None:
    assert library_module.SOURCE.is_file()


def test_hooks_get_what_torch_gives_them_and_a_step_is_told_once() -> None:
    parameter = nn.Parameter(torch.ones(4))
    given: dict[str, list[Any]] = {}
    for name, made in (
        ("torch", torch.optim.SGD([parameter], lr=0.1)),
        ("ours", native_class(torch.optim.SGD, library())([parameter], lr=0.1)),  # type: ignore[call-arg]
    ):
        parameter.grad = torch.ones(4)
        told = given.setdefault(name, [])
        made.step()
        made.register_step_pre_hook(
            lambda _, args, kwargs, told=told: told.append((len(args), {*kwargs}))
        )
        made.register_step_post_hook(lambda *_, told=told: told.append("after"))
        for _ in range(2):
            made.step()
        made.step(closure=lambda: 1.0)
    assert given["ours"] == given["torch"]
    assert len(given["ours"]) == 6


def test_a_graph_that_an_update_has_made_stale_is_refused() -> None:
    parameter = nn.Parameter(torch.ones(4))
    optimizer = native_class(torch.optim.SGD, library())([parameter], lr=0.1)  # type: ignore[call-arg]
    parameter.grad = torch.ones(4)
    optimizer.step()
    loss = (parameter * parameter).sum()
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()  # type: ignore[no-untyped-call]


def test_a_parameter_that_has_grown_is_left_to_torch() -> None:
    parameter = nn.Parameter(torch.ones(4))
    optimizer = native_class(torch.optim.Adam, library())([parameter])  # type: ignore[call-arg]
    for _ in range(2):
        parameter.grad = torch.ones(4)
        optimizer.step()
    parameter.data, parameter.grad = torch.ones(4000), None
    parameter.grad = torch.ones(4000)
    with pytest.raises(RuntimeError, match="size"):
        optimizer.step()
