"""Of most steps of a long training only marks are seen: what is told of them is what was."""

import copy
import errno
import gc
import math
import random
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from trainlab.watching.seeing import looks, timeline
from trainlab.watching.seeing.calls.hooks import ALL, MARKS
from trainlab.watching.seeing.course import Course
from trainlab.watching.seeing.looks import Looks
from trainlab.watching.seeing.passed import (
    BACKWARD_BEGINS,
    DATA_BEGINS,
    DATA_ENDS,
    NUM_MARKS,
    UPDATE_ENDS,
    Passed,
)
from trainlab.watching.seeing.seen import Seen, SeenOptimizer
from trainlab.watching.seeing.stretches import Stretches
from trainlab.watching.seeing.timeline import EVALUATION, FORWARD, OTHER, PARTS
from trainlab.watching.seeing.watcher import Watcher


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are passed by from the sixth on."""
    monkeypatch.setattr(looks, "FIRST", 5)
    monkeypatch.setattr(looks, "AFTER", 2)
    monkeypatch.setattr(looks, "EVERY", 4)
    monkeypatch.setattr(timeline, "WARM_UP_STEPS", 1)


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def samples(number: int) -> TensorDataset:
    return TensorDataset(torch.randn(number, 4), torch.randint(0, 2, (number,)))


def plain() -> None:
    model, data = net(), samples(101)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(3):
        for one, target in DataLoader(data, batch_size=4, shuffle=True):
            optimizer.zero_grad()
            cross_entropy(model(one), target).backward()
            optimizer.step()
        with torch.no_grad():
            for one, _ in DataLoader(data, batch_size=32):
                model(one)


def accumulating() -> None:
    model, data = net(), samples(120)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for number, (one, target) in enumerate(DataLoader(data, batch_size=2), 1):
        (cross_entropy(model(one), target) / 3).backward()
        if number % 3 == 0:
            optimizer.step()
            optimizer.zero_grad()


def adversarial() -> None:
    first, second, data = net(), nn.Linear(2, 1), samples(100)
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.01) for one in (first, second)]
    for one, _ in DataLoader(data, batch_size=2):
        second.zero_grad()
        second(first(one).detach()).mean().backward()
        optimizers[1].step()
        first.zero_grad()
        second(first(one)).square().mean().backward()
        optimizers[0].step()


def without_loader() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        cross_entropy(model(torch.randn(8, 4)), torch.randint(0, 2, (8,))).backward()
        optimizer.step()


def closure_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[], Any]:
    inputs, targets = samples(16).tensors

    def closure() -> Any:
        optimizer.zero_grad()
        loss = cross_entropy(model(inputs), targets)
        loss.backward()
        return loss

    return closure


def closures() -> None:
    model = net()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    closure = closure_of(model, optimizer)
    for _ in range(30):
        optimizer.step(closure)


def scaled() -> None:
    model, data = net(), samples(80)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu")
    for one, target in DataLoader(data, batch_size=2):
        optimizer.zero_grad()
        scaler.scale(cross_entropy(model(one), target)).backward()
        scaler.step(optimizer)
        scaler.update()


def several_models() -> None:
    """As of a cross-validation: each has an optimizer of its own, no loader tells."""
    for _ in range(3):
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(40):
            optimizer.zero_grad()
            model(torch.randn(3, 4)).square().mean().backward()
            optimizer.step()


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Any:
        while True:
            yield torch.randn(4), 1


def with_a_test_between() -> None:
    """From an iterator that was made before."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    tests = iter(DataLoader(Endless(), batch_size=7))
    for number, (one, target) in enumerate(islice(DataLoader(Endless(), batch_size=3), 80)):
        optimizer.zero_grad()
        cross_entropy(model(one), target).backward()
        optimizer.step()
        if number % 16 == 15:
            with torch.no_grad():
                model(next(tests)[0])


def of_words() -> None:
    """Batches that hold no tensor."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(2):
        for words in DataLoader([str(number) for number in range(60)], batch_size=2):
            optimizer.zero_grad()
            model(torch.ones(len(words), 4)).mean().backward()
            optimizer.step()


def of_odd_losses() -> None:
    """Losses of one number in a list, given their gradient, scaled and then not, integers made real, and
    such that torch refuses."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for number in range(90):
        optimizer.zero_grad()
        outputs = model(torch.randn(3, 4))
        loss = outputs.square().mean()
        if number % 6 == 0:
            loss.reshape(1).backward()
        elif number % 6 == 1:
            loss.backward(torch.tensor(2.0))
        elif number % 6 == 2:
            scaler.scale(loss)
            loss.backward()
            later = scaler.scale(model(torch.randn(3, 4)).sum())
            model(torch.randn(3, 4)).mean().backward()
            later.backward()
        elif number == 45:  # scaled while a backward pass is under way
            others, scale = [model(torch.randn(3, 4)).sum()], torch.enable_grad()(scaler.scale)
            loss.register_hook(
                lambda _, others=others, scale=scale: others.append(scale(others[0]))
            )
            loss.backward()
            others[1].backward()
        elif number % 6 == 3:
            torch.autograd.backward([loss, outputs.sum()])
        elif number % 6 == 4:
            with pytest.raises(
                RuntimeError, match="grad can be implicitly created only for scalar"
            ):
                outputs.backward()
            loss.backward()
        else:
            outputs.backward(torch.ones_like(outputs))
        optimizer.step()


def closures_at_last() -> None:
    """By an optimizer that was there from the start."""
    model = net()
    first = torch.optim.Adam(model.parameters(), lr=0.01)
    last = torch.optim.LBFGS(model.parameters(), max_iter=3)
    closure, before = closure_of(model, last), closure_of(model, first)
    for _ in range(30):
        before()
        first.step()
    for number in range(40):
        last.step(closure) if number % 2 else last.step(closure=closure)


class Own(torch.optim.SGD):
    """Its step is torch's and a little more: torch hooks both."""

    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        return super().step(closure)


def within_its_own() -> None:
    model, other = net(), nn.Linear(4, 1)
    torch.optim.SGD(other.parameters(), lr=0.1)
    optimizer = Own(model.parameters(), lr=0.01)
    for _ in range(30):
        optimizer.zero_grad()
        model(torch.randn(3, 4)).square().mean().backward()
        optimizer.step()


def in_the_backward_pass() -> None:
    """Each weight is updated as soon as its gradient is there."""
    model = net()
    optimizers = {one: torch.optim.SGD([one], lr=0.01) for one in model.parameters()}
    for weight, optimizer in optimizers.items():

        def update(_: Any, optimizer: torch.optim.Optimizer = optimizer) -> None:
            optimizer.step()
            optimizer.zero_grad()

        weight.register_post_accumulate_grad_hook(update)
    for _ in range(30):
        model(torch.randn(3, 4)).square().mean().backward()


def copied() -> None:
    """As a roll-back or a population does: nobody makes the optimizers that go on."""
    first = net()
    pair: tuple[nn.Module, torch.optim.Optimizer] = first, torch.optim.Adam(first.parameters())
    del first
    for number in range(60):
        if number % 13 == 12:
            pair = copy.deepcopy(pair)
        model, optimizer = pair
        optimizer.zero_grad()
        model(torch.randn(3, 4)).square().mean().backward()
        optimizer.step()


class Around(torch.optim.Optimizer):
    """Does something of its own after the update of another."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        super().__init__(inner.param_groups, {})
        self.inner = inner

    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        return self.inner.step(closure)


def around_another() -> None:
    model = net()
    optimizer = Around(torch.optim.SGD(model.parameters(), lr=0.01))
    for _ in range(30):
        optimizer.zero_grad()
        model(torch.randn(3, 4)).square().mean().backward()
        optimizer.step()


SEEN_WHOLE: list[Callable[[], None]] = [
    *(closures, within_its_own, in_the_backward_pass, around_another),
]
"""Nothing but all calls tells which of its losses a closure's update follows, which of two ends is that of
an update, and that one was made amid a backward pass or the update of another."""
LOOPS: list[Callable[[], None]] = [
    *(plain, accumulating, adversarial, without_loader, scaled, several_models, closures_at_last),
    *(with_a_test_between, of_words, of_odd_losses, copied, *SEEN_WHOLE),
]


def watched(loop: Callable[[], None], *, passes: bool) -> Watcher:
    torch.manual_seed(1)
    watcher = Watcher()
    watcher.looks = Looks() if passes else None
    try:
        loop()
    finally:
        watcher.close()
    return watcher


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__name__)
def test_all_but_the_time_is_the_same_as_where_all_is_seen(loop: Callable[[], None]) -> None:
    whole, passed = watched(loop, passes=False), watched(loop, passes=True)
    assert (passed.timeline.num_marks > 0) == (loop not in SEEN_WHOLE)
    assert (passed.timeline.num_calls < whole.timeline.num_calls) == (loop not in SEEN_WHOLE)
    assert passed.num_steps == whole.num_steps == len(passed.steps_ns)
    np.testing.assert_equal(passed.course.losses.values(), whole.course.losses.values())
    by_step = ([one.course.losses_of(i) for i in range(one.num_steps)] for one in (passed, whole))
    np.testing.assert_equal(*by_step)
    for name in ("samples", "epochs", "num_backward"):
        assert getattr(passed.course, name) == getattr(whole.course, name), name
    assert passed.num_fetched == whole.num_fetched
    assert passed.seen.loaders == whole.seen.loaders or [
        vars(one) for one in passed.seen.loaders
    ] == [vars(one) for one in whole.seen.loaders]
    assert [vars(one) for one in passed.seen.optimizers] == [
        vars(one) for one in whole.seen.optimizers
    ]
    assert passed.seen.batch_size == whole.seen.batch_size
    assert passed.timeline.num_evaluation_passes == whole.timeline.num_evaluation_passes


def test_an_update_within_its_own_is_one() -> None:
    watcher = watched(within_its_own, passes=True)
    assert watcher.num_steps == 30
    assert [one.num_steps for one in watcher.seen.optimizers] == [30]
    assert all(list(watcher.course.losses_of(step)) == ["train/loss"] for step in range(30))


def test_one_within_that_raises_takes_none_away() -> None:
    numbers = []

    class Inner(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:  # type: ignore[override]
            numbers.append(1)
            if len(numbers) == 7:
                raise ValueError("not now")
            return super().step(closure)

    class Tries(Inner):
        def step(self, closure: Any = None) -> Any:  # type: ignore[override]
            with suppress(ValueError):
                return super().step(closure)

    def loop() -> None:
        model, other = net(), nn.Linear(4, 1)
        Inner(other.parameters(), lr=0.1)  # torch hooks the step of its class, too
        optimizer = Tries(model.parameters(), lr=0.01)
        for _ in range(20):
            model(torch.randn(3, 4)).square().mean().backward()
            optimizer.step()

    assert watched(loop, passes=True).num_steps == 20


@pytest.mark.parametrize("has_looks", [True, False])
def test_an_update_that_raises_takes_no_time_from_the_steps_after_it(has_looks: bool) -> None:
    clock, model, numbers = Clock(), net(), []

    class Full(torch.optim.Optimizer):
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            numbers.append(1)
            if len(numbers) == 4:
                raise MemoryError
            clock.busy(0.5)

    optimizer = Full(model.parameters(), {})
    watcher = Watcher(clock=clock)
    watcher.looks = Looks() if has_looks else None
    for _ in range(60):
        optimizer.zero_grad()
        model(torch.randn(3, 4)).mean().backward()
        with suppress(MemoryError):
            optimizer.step()
        clock.busy(2.0)
    watcher.close()
    assert watcher.timeline.num_marks > 0 or not has_looks
    spent_ms = dict(zip(PARTS, np.array(watcher.timeline.total_ns) / 1e6, strict=True))
    assert spent_ms["optimizer"] == pytest.approx(59 * 0.5 + 2.0, abs=2.01), (
        "2 ms until it is known"
    )
    assert spent_ms["other"] == pytest.approx(59 * 2.0, abs=2.01)


def test_no_optimizer_is_held_on_to() -> None:
    gone = []

    def loop() -> None:
        model = net()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(8):
            model(torch.randn(3, 4)).square().mean().backward()
            optimizer.step()
        gone.append(weakref.ref(optimizer))
        del model, optimizer
        gc.collect()
        gone.append(gone[0]())

    watcher = watched(loop, passes=True)
    assert watcher.timeline.num_marks > 0
    assert gone[1] is None


def test_what_a_script_puts_before_a_backward_pass_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted = []

    def loop() -> None:
        original = torch.autograd.backward

        def counting(*arguments: Any, **options: Any) -> Any:
            counted.append(1)
            return original(*arguments, **options)

        with monkeypatch.context() as patched:
            patched.setattr(torch.autograd, "backward", counting)
            without_loader()

    watcher = watched(loop, passes=True)
    assert watcher.timeline.num_marks > 0
    assert len(counted) == watcher.num_steps == 60


def test_an_interrupt_between_a_mark_and_what_comes_with_it_loses_that_mark_alone() -> None:
    passed = Passed()
    first, second = SeenOptimizer("SGD", 0.1, "auto"), SeenOptimizer("Adam", 0.1, "auto")
    passed.lead = first
    passed.at_ns[UPDATE_ENDS].extend([30, 60])
    passed.others.extend([(1, second), (2, second)])
    passed.at_ns[DATA_ENDS].append(10)
    passed.shapes.extend([(4,), (4,)])
    marks, at_ns = passed.decoded()
    assert marks.tolist() == [DATA_ENDS, UPDATE_ENDS, UPDATE_ENDS]
    assert at_ns.tolist() == [10, 30, 60]
    assert passed.sizes() == [4]
    assert passed.optimizers() == [first, second]


def test_an_update_that_raised_is_not_within_the_next() -> None:
    model, steps = net(), 0

    class Raises(Own):
        def step(self, closure: Any = None) -> Any:  # type: ignore[override]
            if steps % 3 == 2:
                raise ValueError("not now")
            return super().step(closure)

    def loop() -> None:
        nonlocal steps
        optimizer = Raises(model.parameters(), lr=0.01)
        for _ in range(30):
            model(torch.randn(3, 4)).square().mean().backward()
            with suppress(ValueError):
                optimizer.step()
            steps += 1

    assert watched(loop, passes=True).num_steps == 20


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__name__)
def test_the_parts_add_up_to_the_time_that_passed(loop: Callable[[], None]) -> None:
    start_ns = time.perf_counter_ns()
    watcher = watched(loop, passes=True)
    took_ns = time.perf_counter_ns() - start_ns
    total_ns = sum(watcher.timeline.total_ns) + watcher.timeline.paused_ns
    # To make and to close the watcher takes its time, too.
    assert total_ns <= took_ns
    assert total_ns > 0.5 * took_ns
    assert all(min(step) >= 0 for step in watcher.steps_ns)


class Clock:
    """Stands still but for what is busy."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns

    def busy(self, ms: float) -> None:
        self.now_ns += int(ms * 1e6)


class Slow(nn.Module):
    """Takes a known time, one of two."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self._clock = clock

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self._clock.busy(random.choice([1.0, 3.0]))
        return inputs * self.weight


def test_the_time_between_two_marks_is_divided_as_in_the_steps_seen_whole() -> None:
    random.seed(0)
    clock = Clock()
    model = Slow(clock)
    watcher = Watcher(clock=clock)
    watcher.looks = Looks()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    for (one,) in DataLoader(TensorDataset(torch.ones(400, 1))):
        outputs = model(one)
        clock.busy(1.0)  # the loss
        outputs.sum().backward()
        clock.busy(0.5)
        optimizer.step()
    watcher.close()
    assert watcher.timeline.num_marks > 1000
    parts = dict(zip(PARTS, np.sum(watcher.steps_ns, axis=0) / 1e6 / 400, strict=True))
    assert math.isclose(parts["forward"], 2.0, rel_tol=0.05), parts
    assert math.isclose(parts["loss"], 1.0, rel_tol=0.05), parts
    assert math.isclose(parts["other"], 0.5, rel_tol=1e-4)
    assert math.isclose(sum(watcher.timeline.total_ns), clock.now_ns)


def test_what_torch_makes_in_the_first_steps_teaches_nothing_of_later_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timeline, "WARM_UP_STEPS", 3)
    clock, model = Clock(), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model[0].register_forward_hook(lambda *_: clock.busy(1.0 if watcher.num_steps > 1 else 500.0))
    watcher = Watcher(clock=clock)
    watcher.looks = Looks()
    for _ in range(100):
        outputs = model(torch.randn(3, 4))
        clock.busy(1.0)  # the loss
        outputs.mean().backward()
        optimizer.step()
    watcher.close()
    assert watcher.timeline.num_marks > 100
    for step in watcher.steps_ns[2:]:
        assert step[FORWARD] == pytest.approx(1e6, abs=2)
        assert step[PARTS.index("loss")] == pytest.approx(1e6, abs=2)


@pytest.mark.parametrize("logging_ms", [0.3, 2.0, 15.0])
def test_what_is_done_every_fifty_steps_counts_in_these(
    logging_ms: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a loader no mark lies between it and the forward pass that follows."""
    for name, value in (("FIRST", 100), ("AFTER", 5), ("EVERY", 400)):
        monkeypatch.setattr(looks, name, value)
    chance = random.Random(5)
    clock, model = Clock(), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model[0].register_forward_hook(lambda *_: clock.busy(0.6 * chance.uniform(0.95, 1.05)))
    watcher = Watcher(clock=clock)
    watcher.looks = Looks()
    for step in range(1, 6001):
        optimizer.zero_grad()
        loss = model(torch.randn(3, 4)).mean()
        loss.register_hook(lambda _: clock.busy(1.0))
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            clock.busy(logging_ms)
    watcher.close()
    assert watcher.timeline.num_marks > 10_000
    parts = np.array(watcher.steps_ns[200:]) / 1e6
    is_after = np.arange(201, 6001) % 50 == 1
    for steps, other in ((parts[is_after], logging_ms), (parts[~is_after], 0.0)):
        assert steps[:, FORWARD].mean() == pytest.approx(0.6, rel=0.1)
        assert steps[:, OTHER].mean() == pytest.approx(other, rel=0.05, abs=0.06)


def test_a_backward_pass_that_becomes_shorter_is_soon_told_as_such() -> None:
    clock, model = Clock(), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    backward_ms = 3.0
    watcher = Watcher(clock=clock)
    watcher.looks = Looks()
    model[0].register_forward_hook(lambda *_: clock.busy(1.0))
    for step in range(4000):
        if step == 1000:  # layers are frozen, say
            backward_ms = 0.5
        loss = model(torch.randn(3, 4)).mean()
        loss.register_hook(lambda _, ms=backward_ms: clock.busy(ms))
        loss.backward()
        optimizer.step()
    watcher.close()
    assert watcher.timeline.num_marks > 6000
    parts = np.array(watcher.steps_ns[:]) / 1e6
    for steps, backward in ((parts[:1000], 3.0), (parts[2000:], 0.5)):
        assert steps[:, PARTS.index("backward")].mean() == pytest.approx(backward, rel=0.05)
        assert steps[:, FORWARD].mean() == pytest.approx(1.0, rel=0.05)


class Calls(TorchFunctionMode):
    """Counts what a mode of the script is told of."""

    def __init__(self) -> None:
        super().__init__()
        self.num_backward = 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        self.num_backward += func is torch.Tensor.backward
        return func(*args, **(kwargs or {}))


def test_a_mode_of_the_script_is_told_of_every_backward_pass() -> None:
    with Calls() as calls:
        watcher = watched(without_loader, passes=True)
    assert watcher.timeline.num_marks > 0
    assert calls.num_backward == watcher.num_steps == len(watcher.course.losses) == 60


def test_a_script_that_has_no_file_left_to_open_trains_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(process: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("psutil.Process.memory_info", refuses)
    watcher = watched(without_loader, passes=True)
    assert watcher.num_steps == 60
    assert watcher.memory_bytes == []


def with_tests(num_steps: int, tests: Callable[[int], bool], *, by_eval: bool) -> Watcher:
    """A training without a loader that is tested after some steps, for 5 ms each."""
    clock, model = Clock(), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    watcher = Watcher(clock=clock)
    watcher.looks = Looks()
    for number in range(num_steps):
        model.train()
        optimizer.zero_grad()
        model(torch.randn(3, 4)).mean().backward()
        optimizer.step()
        if tests(number):
            if by_eval:
                model.eval()
            with torch.no_grad():
                model(torch.randn(3, 4))
            clock.busy(5.0)
    watcher.close()
    return watcher


def test_a_test_without_a_loader_ends_the_passing_by() -> None:
    """Nothing but its forward pass tells of it."""
    watcher = with_tests(40, lambda number: number in (3, 30), by_eval=False)
    assert watcher.timeline.num_evaluation_passes == 2
    assert watcher.timeline.total_ns[EVALUATION] == 10e6
    assert watcher.timeline.num_marks == 0


def test_a_test_that_begins_with_eval_is_seen_though_it_has_no_loader() -> None:
    watcher = with_tests(60, lambda number: number % 20 == 19, by_eval=True)
    assert watcher.timeline.num_evaluation_passes == 3
    assert watcher.timeline.total_ns[EVALUATION] == 15e6
    assert watcher.timeline.num_marks > 0


def test_the_updates_of_every_optimizer_count_where_one_follows_another() -> None:
    assert watched(several_models, passes=False).num_steps == 120


def test_what_takes_unusually_long_is_other_and_has_the_next_steps_seen_whole() -> None:
    clock, model = Clock(), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    watcher = Watcher(clock=clock)
    watcher.looks = Looks()
    levels, slow_number = [], 30
    for number in range(60):
        if number == slow_number and watcher.hooks.level == ALL:
            slow_number += 1
        optimizer.zero_grad()
        clock.busy(1.0)
        outputs = model(torch.randn(3, 4))
        clock.busy(1.0)
        if number == slow_number:
            clock.busy(40.0)
        outputs.mean().backward()
        optimizer.step()
        levels.append(watcher.hooks.level)
    watcher.close()
    assert max(watcher.steps_ns, key=sum)[OTHER] == 41e6
    assert MARKS in levels[5:30]
    first = next(place for place in range(slow_number, 60) if levels[place] == ALL)
    assert all(level == ALL for level in levels[first : first + 2])


def test_the_last_step_that_is_asked_for_is_seen_whole() -> None:
    steps = []
    watcher = Watcher(clock=Clock())
    watcher.looks = Looks(num_steps=50)
    watcher.on_step = steps.append
    without_loader()
    watcher.close()
    assert 50 in steps
    assert len(steps) < 40


stretch = st.tuples(
    st.integers(0, NUM_MARKS - 1),
    st.integers(0, NUM_MARKS - 1),
    st.lists(st.integers(0, 10**10), min_size=len(PARTS), max_size=len(PARTS)),
)


@given(
    learned=st.lists(stretch, max_size=20),
    marks=st.lists(st.integers(0, NUM_MARKS - 1), min_size=2, max_size=20),
    data=st.data(),
)
def test_whatever_was_learned_nothing_is_lost_or_made_up(
    learned: list[tuple[int, int, list[int]]], marks: list[int], data: st.DataObject
) -> None:
    spent = data.draw(
        st.lists(st.integers(0, 10**11), min_size=len(marks) - 1, max_size=len(marks) - 1)
    )
    stretches = Stretches(len(PARTS), OTHER)
    for first, last, parts in learned:
        stretches.learn(first, last, parts)
    divided, _ = stretches.divide(np.array(marks), np.array(spent), np.arange(len(spent)))
    assert divided.sum(axis=1).tolist() == spent
    assert (divided >= 0).all()


ONE = np.array([0])
"""A single row."""


def test_a_batch_that_takes_long_is_waited_for_and_not_unusual() -> None:
    stretches = Stretches(len(PARTS), OTHER)
    of_data, of_training = [0] * len(PARTS), [0] * len(PARTS)
    of_data[PARTS.index("data")] = 1000
    of_training[FORWARD] = of_training[PARTS.index("loss")] = 1000
    stretches.learn(DATA_BEGINS, DATA_ENDS, of_data)
    stretches.learn(DATA_ENDS, BACKWARD_BEGINS, of_training)
    divided, is_usual = stretches.divide(np.array([DATA_BEGINS, DATA_ENDS]), np.array([10**9]), ONE)
    assert is_usual
    assert divided[0, PARTS.index("data")] == 10**9
    divided, is_usual = stretches.divide(
        np.array([DATA_ENDS, BACKWARD_BEGINS]), np.array([10**9]), ONE
    )
    assert not is_usual
    assert divided[0, FORWARD] == 1000
    assert divided[0, OTHER] == 10**9 - 2000
    # Once it was met, one as long is not unusual any more; what it holds is as little known.
    divided, is_usual = stretches.divide(
        np.array([DATA_ENDS, BACKWARD_BEGINS]), np.array([10**9]), ONE
    )
    assert is_usual
    assert divided[0, OTHER] == 10**9 - 2000


def test_what_was_never_seen_is_other() -> None:
    stretches = Stretches(len(PARTS), OTHER)
    divided, is_usual = stretches.divide(np.array([UPDATE_ENDS, DATA_BEGINS]), np.array([700]), ONE)
    assert divided[0, OTHER] == 700
    assert not is_usual


def by_hand(gradients: Callable[[Any, Any], Any]) -> Callable[[], None]:
    def loop() -> None:
        weight = torch.ones(1, requires_grad=True)
        for number in range(7):
            loss = (weight * (1.0 + number)).square().sum()
            change = gradients(loss, weight)
            with torch.no_grad():
                weight -= 0.001 * change

    return loop


def by_backward(loss: Any, weight: Any) -> Any:
    loss.backward()
    return weight.grad


def by_grad(loss: Any, weight: Any) -> Any:
    return torch.autograd.grad(loss, [weight])[0]


@pytest.mark.parametrize("gradients", [by_backward, by_grad])
def test_tensors_updated_by_hand_make_a_step_for_each_backward_pass(
    gradients: Callable[[Any, Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gc.get_objects", list)  # no optimizer of another test
    watcher = watched(by_hand(gradients), passes=True)
    assert watcher.num_steps == 7
    assert [list(watcher.course.losses_of(i)) for i in range(7)] == [["train/loss"]] * 7
    assert len(set(watcher.course.losses.values())) == 7


def test_loaders_that_follow_one_another_go_on_counting_epochs() -> None:
    """As of a cross-validation; those of two tasks side by side count as one."""

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, one: Any) -> None:
        optimizer.zero_grad()
        model(one[0]).mean().backward()
        optimizer.step()

    def folds() -> None:
        for _ in range(3):
            model, loader = net(), DataLoader(samples(8), batch_size=4)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
            for _ in range(2):
                for one in loader:
                    step(model, optimizer, one)

    def tasks() -> None:
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        first, second = (DataLoader(samples(8), batch_size=4) for _ in range(2))
        for _ in range(3):
            others = iter(second)
            for one in first:
                step(model, optimizer, one)
                step(model, optimizer, next(others))

    watcher = watched(folds, passes=True)
    assert watcher.course.epochs == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]
    assert all(list(one) == ["train/loss"] for one in watcher.course.followed)
    assert watched(tasks, passes=True).course.epochs == [1] * 4 + [2] * 4 + [3] * 4


def told_epochs(loop: Callable[[], None]) -> list[int]:
    return sorted(set(watched(loop, passes=True).course.epochs))


def test_loaders_made_anew_for_every_pass_and_tests_on_training_data_make_no_other_epochs() -> None:
    data, model = samples(12), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def train(loader: DataLoader[Any]) -> None:
        for one, target in loader:
            optimizer.zero_grad()
            cross_entropy(model(one), target).backward()
            optimizer.step()

    def test(loader: DataLoader[Any]) -> None:
        with torch.no_grad():
            for one, _ in loader:
                model(one)

    def anew() -> None:
        for _ in range(3):
            train(DataLoader(data, batch_size=4, shuffle=True))

    def on_training_data() -> None:
        loader = DataLoader(data, batch_size=4)
        for _ in range(3):
            train(loader)
            test(loader)

    assert told_epochs(anew) == [1, 2, 3]
    assert told_epochs(on_training_data) == [1, 2, 3]


def read_ahead(loader: DataLoader[Any], depth: int) -> Iterator[Any]:
    """As libraries give batches, to know which is the last."""
    waiting = deque[Any]()
    for batch in loader:
        waiting.append(batch)
        if len(waiting) > depth:
            yield waiting.popleft()
    yield from waiting


@pytest.mark.parametrize("passes", [False, True])
@pytest.mark.parametrize("depth", [1, 2])
def test_batches_that_are_read_ahead_are_counted_when_they_are_trained_on(
    depth: int, passes: bool
) -> None:
    model, data = net(), samples(103)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def loop() -> None:
        for _ in range(3):
            for one, target in read_ahead(DataLoader(data, batch_size=2), depth):
                optimizer.zero_grad()
                cross_entropy(model(one), target).backward()
                optimizer.step()
            with torch.no_grad():
                for one, _ in DataLoader(data, batch_size=50):
                    model(one)

    course = watched(loop, passes=passes).course
    assert [course.samples[place] for place in (51, 103, 155)] == [103, 206, 309]
    assert course.epochs == [1] * 52 + [2] * 52 + [3] * 52


def test_of_those_the_last_count_also_where_the_steps_that_pass_by_begin_with_them() -> None:
    seen, marks = Seen(), [BACKWARD_BEGINS, UPDATE_ENDS]
    loader, course, passed = (
        seen.loader(DataLoader(samples(6), batch_size=2)),
        Course(seen),
        Passed(),
    )
    optimizer = torch.optim.SGD(net().parameters(), lr=0.1)
    passed.lead = seen.optimizer(optimizer)
    loader.begin_pass()
    for _ in range(3):
        course.fetched(loader, 2)
    course.trains()
    loader.has_run_out = True
    for at_ns, mark in enumerate(marks * 2):
        passed.at_ns[mark].append(at_ns)
    course.catch_up(marks * 2, passed)
    assert course.samples == [4, 6]


class Broken(torch.utils.data.Dataset[Any]):
    """Cannot read its last sample."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 39:
            raise OSError("cannot be read")
        return torch.ones(4)


@pytest.mark.parametrize("passes", [False, True])
def test_a_loader_that_raises_has_not_run_out(passes: bool) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def loop() -> None:
        with suppress(OSError):
            for one in DataLoader(Broken()):
                optimizer.zero_grad()
                model(one).mean().backward()
                optimizer.step()

    watcher = watched(loop, passes=passes)
    assert (watcher.num_steps, watcher.seen.loaders[0].has_run_out) == (39, False)


class Fetched(torch.utils.data.Dataset[Any]):
    """Each sample takes a known time."""

    def __init__(self, clock: Clock, ms: float) -> None:
        self._clock, self._ms = clock, ms

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        self._clock.busy(self._ms)
        return torch.ones(4)


def test_what_follows_a_test_and_the_start_of_loaders_are_booked_where_they_belong() -> None:
    clock, model = Clock(), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    watcher = Watcher(clock=clock)
    watcher.looks = Looks()

    class Started(DataLoader[Any]):
        def _get_iterator(self) -> Any:
            clock.busy(20.0)  # as workers are started
            return super()._get_iterator()

    training, testing = (Started(Fetched(clock, ms), batch_size=2) for ms in (1.0, 3.0))
    for _ in range(2):
        for one in training:
            optimizer.zero_grad()
            model(one).mean().backward()
            optimizer.step()
        with torch.no_grad():
            for one in testing:
                model(one)
        clock.busy(50.0)  # a file is written
    watcher.close()
    total_ms = dict(zip(PARTS, (ns / 1e6 for ns in watcher.timeline.total_ns), strict=True))
    assert total_ms["evaluation"] == 2 * (20 + 4 * 3)
    assert total_ms["data"] + total_ms["startup"] == 2 * (20 + 4 * 1)
    assert total_ms["other"] == 2 * 50


def test_an_optimizer_that_takes_over_ends_the_steps_from_then_on() -> None:
    """Both were made before; the first one lives on."""

    def switching() -> None:
        model = nn.Linear(4, 1)
        first, second = torch.optim.SGD(model.parameters()), torch.optim.Adam(model.parameters())
        for step in range(600):
            one = first if step < 200 else second
            one.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            one.step()

    for passes in (True, False):
        watcher = watched(switching, passes=passes)
        assert watcher.num_steps == 580  # some pass until it is known
        assert [one.num_steps for one in watcher.seen.optimizers] == [200, 400]


def test_updates_by_another_now_and_then_take_nothing_over() -> None:
    """Between them the first one makes its own, many of which are passed by."""

    def in_turns() -> None:
        model = nn.Linear(4, 1)
        first, second = torch.optim.SGD(model.parameters()), torch.optim.Adam(model.parameters())
        for one, number in ((first, 150), (second, 15), (first, 700), (second, 15), (first, 50)):
            for _ in range(number):
                one.zero_grad()
                model(torch.ones(2, 4)).sum().backward()
                one.step()

    for passes in (True, False):
        assert watched(in_turns, passes=passes).num_steps == 900


def test_the_loss_is_of_the_optimizer_within_one_that_is_wrapped_around_it() -> None:
    class Wrapper(torch.optim.Optimizer):
        def __init__(self, inner: torch.optim.Optimizer) -> None:
            self.inner = inner
            super().__init__(inner.param_groups, {})

        def step(self, closure: Any = None) -> None:
            self.inner.step()

    def wrapped() -> None:
        model = nn.Linear(4, 1)
        optimizer = Wrapper(torch.optim.SGD(model.parameters(), lr=0.01))
        for _ in range(300):
            optimizer.zero_grad()
            (model(torch.ones(2, 4)) ** 2).sum().backward()
            optimizer.step()

    for passes in (True, False):
        course = watched(wrapped, passes=passes).course
        assert list(course.losses_between(0, 300)) == ["train/loss"]
        assert course.losses_between(0, 300)["train/loss"] == course.losses.values()[:300]


def test_a_backward_pass_within_another_is_part_of_it() -> None:
    def checkpointed() -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(300):
            inputs = torch.ones(2, 4, requires_grad=True)
            hidden = checkpoint(model[:2], inputs, use_reentrant=True)
            optimizer.zero_grad()
            (model[2](hidden) ** 2).mean().backward()
            optimizer.step()

    for passes in (True, False):
        course = watched(checkpointed, passes=passes).course
        losses = course.losses_between(0, 300)["train/loss"]
        assert len(losses) == len(course.losses) == 300
        assert all(map(math.isfinite, losses))


def test_what_another_thread_trains_is_none_of_ours() -> None:
    def beside() -> None:
        model, other = nn.Linear(4, 1), nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        another = torch.optim.SGD(other.parameters(), lr=0.01)

        def train_other() -> None:
            for _ in range(50):
                other(torch.ones(2, 4)).sum().backward()
                another.step()

        for step in range(400):
            if step in (50, 250):
                thread = threading.Thread(target=train_other)
                thread.start()
                thread.join()
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()

    for passes in (True, False):
        course = watched(beside, passes=passes).course
        assert len(course.losses_between(0, 400)["train/loss"]) == len(course.losses) == 400


def test_several_losses_of_one_backward_pass_add_up_and_a_complex_one_is_none() -> None:
    def several() -> None:
        weight = torch.ones(1, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.0)
        for _ in range(300):
            torch.autograd.backward([(weight * 2).sum(), (weight * 3).sum()])
            optimizer.step()

    def of_complex() -> None:
        weight = torch.ones(2, dtype=torch.complex64, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.0)
        for _ in range(300):
            (weight * weight).sum().backward(torch.tensor(1 + 0j))
            optimizer.step()

    for passes in (True, False):
        assert set(watched(several, passes=passes).course.losses.values()) == {5.0}
        assert all(map(math.isnan, watched(of_complex, passes=passes).course.losses.values()))
