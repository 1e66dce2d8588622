"""Torch's calls are seen while a tracer is there, in bursts or all of them: what is told of a loop is what
was; afterwards, and for all others, torch is as before."""

import copy
import io
import math
import pickle
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter
from torch.nn.functional import cross_entropy
from torch.nn.modules import module as modules
from torch.optim import Optimizer
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from own_loop import state_of_torch
from trainlab.watching import tracer as tracing
from trainlab.watching.hooks import COUNTS, LIGHT, WHOLE
from trainlab.watching.timeline import DATA, EVALUATION, FORWARD, LOSS, OTHER, PARTS
from trainlab.watching.tracer import Tracer
from trainlab.watching.watched_run import watched_record


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first burst ends after five steps, and others come soon."""
    for name, value in (("FIRST", 5), ("BURST", 3), ("EVERY", 10)):
        monkeypatch.setattr(tracing, name, value)


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def samples(number: int) -> TensorDataset:
    return TensorDataset(torch.randn(number, 4), torch.randint(0, 2, (number,)))


def sgd(model: nn.Module) -> Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01)


def step(model: nn.Module, optimizer: Optimizer, inputs: Tensor | None = None) -> None:
    optimizer.zero_grad()
    model(torch.randn(3, 4) if inputs is None else inputs).square().mean().backward()
    optimizer.step()


def steps(model: nn.Module, optimizer: Optimizer, number: int) -> None:
    for _ in range(number):
        step(model, optimizer)


def made_anew() -> None:
    """Loaders are, for every pass over the same data, and for every test."""
    model, data = net(), samples(101)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(3):
        for one, _ in DataLoader(data, batch_size=4, shuffle=True):
            step(model, optimizer, one)
        with torch.no_grad():
            for one, _ in DataLoader(data, batch_size=4, shuffle=True):
                model(one)


def accumulating() -> None:
    model, data = net(), samples(120)
    optimizer = sgd(model)
    for number, (one, target) in enumerate(DataLoader(data, batch_size=2), 1):
        (cross_entropy(model(one), target) / 3).backward()
        if number % 3 == 0:
            optimizer.step()
            optimizer.zero_grad()


def adversarial() -> None:
    first, second, data = net(), nn.Linear(2, 1), samples(100)
    both = [sgd(first), sgd(second)]
    for one, _ in DataLoader(data, batch_size=2):
        second.zero_grad()
        second(first(one).detach()).mean().backward()
        both[1].step()
        first.zero_grad()
        second(first(one)).square().mean().backward()
        both[0].step()


def without_loader() -> None:
    model = net()
    steps(model, sgd(model), 60)


def closures() -> None:
    model, (inputs, targets) = net(), samples(16).tensors
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = cross_entropy(model(inputs), targets)
        loss.backward()
        return loss

    for _ in range(30):
        optimizer.step(closure)


def scaled(told: Callable[[float], None] = lambda loss: None) -> None:
    model, data = net(), samples(80)
    optimizer, scaler = sgd(model), torch.amp.GradScaler("cpu", init_scale=1024.0)
    for one, target in DataLoader(data, batch_size=2):
        optimizer.zero_grad()
        loss = cross_entropy(model(one), target)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        told(loss.item())


def several_models() -> None:
    """As of a cross-validation: each has an optimizer of its own, no loader tells."""
    for _ in range(3):
        model = net()
        steps(model, sgd(model), 40)


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Any:
        while True:
            yield torch.randn(4), 1


def with_a_test_between() -> None:
    """From an iterator that was made before."""
    model = net()
    optimizer, tests = sgd(model), iter(DataLoader(Endless(), batch_size=7))
    for number, (one, _) in enumerate(islice(DataLoader(Endless(), batch_size=3), 80)):
        step(model, optimizer, one)
        if number % 16 == 15:
            with torch.no_grad():
                model(next(tests)[0])


class Own(torch.optim.SGD):
    """Its step is torch's and a little more."""

    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        return super().step(closure)


class Around(Optimizer):
    """Does something of its own after the update of another."""

    def __init__(self, inner: Optimizer) -> None:
        super().__init__(inner.param_groups, {})
        self.inner = inner

    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        return self.inner.step(closure)


def within_another() -> None:
    """Torch hooks all three."""
    model = net()
    sgd(nn.Linear(4, 1))
    steps(model, Around(Own(model.parameters(), lr=0.01)), 30)


def checkpointed() -> None:
    """A backward pass within another."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = sgd(model)
    for _ in range(30):
        inputs = torch.ones(2, 4, requires_grad=True)
        hidden = checkpoint(model[:2], inputs, use_reentrant=True)
        optimizer.zero_grad()
        (model[2](hidden) ** 2).mean().backward()
        optimizer.step()


def several_losses() -> None:
    weight = torch.ones(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for number in range(30):
        roots = [(weight * 2).sum(), (weight * 3).sum()] if number % 2 else weight * 1j
        torch.autograd.backward(roots, None if number % 2 else torch.tensor([1 + 0j]))
        optimizer.step()


def beside_a_thread() -> None:
    model, other = net(), net()
    optimizer, another = sgd(model), sgd(other)
    with ThreadPoolExecutor() as threads:
        for _ in range(40):
            threads.submit(step, other, another).result()
            step(model, optimizer)


def read_ahead(loader: DataLoader[Any], depth: int) -> Iterator[Any]:
    """As libraries give batches, to know which is the last."""
    waiting = deque[Any]()
    for batch in loader:
        waiting.append(batch)
        if len(waiting) > depth:
            yield waiting.popleft()
    yield from waiting


def ahead(depth: int = 2) -> None:
    model, data = net(), samples(103)
    optimizer = sgd(model)
    for _ in range(3):
        for one, _ in read_ahead(DataLoader(data, batch_size=2), depth):
            step(model, optimizer, one)
        with torch.no_grad():
            for one, _ in DataLoader(data, batch_size=50):
                model(one)


@cache
def traced(loop: Callable[[], None], *, is_sampled: bool = True) -> Tracer:
    """Once for all that read it."""
    torch.manual_seed(1)
    tracer = Tracer()
    tracer.is_sampled = is_sampled
    try:
        loop()
    finally:
        tracer.close()
    return tracer


LOOPS: list[Callable[[], None]] = [
    *(made_anew, accumulating, adversarial, without_loader, closures, scaled, several_models),
    *(with_a_test_between, within_another, checkpointed, several_losses),
    *(beside_a_thread, ahead),
]


def test_all_but_the_time_is_the_same_as_where_all_is_seen() -> None:
    for loop in LOOPS:
        whole, sampled = traced(loop, is_sampled=False), traced(loop)
        assert 0 < sampled.timeline.num_calls < whole.timeline.num_calls, loop
        assert sampled.timeline.num_marks > 0, loop
        assert sampled.num_steps == whole.num_steps > 0, loop
        np.testing.assert_equal(list(sampled.log.losses.values()), list(whole.log.losses.values()))
        for number in range(whole.num_steps):
            np.testing.assert_equal(sampled.log.losses_of(number), whole.log.losses_of(number))
        assert sampled.log.samples == whole.log.samples, loop
        assert sampled.log.epochs == whole.log.epochs, loop
        assert sampled.num_fetched == whole.num_fetched, loop
        assert sampled.log.batch_size == whole.log.batch_size, loop
        for name in ("loaders", "optimizers"):
            pairs = zip(getattr(sampled.log, name), getattr(whole.log, name), strict=True)
            own = {"data": None}  # each has made its own
            assert all(vars(one) | own == vars(other) | own for one, other in pairs), (loop, name)
        passes = whole.timeline.num_evaluation_passes
        assert sampled.timeline.num_evaluation_passes == passes, loop
        assert all(min(parts) >= 0 for parts in sampled.parts_ns.values()), loop


def test_steps_and_losses_are_those_of_the_loop() -> None:
    numbers = {
        accumulating: (20, 60),
        several_models: (120, 120),
        within_another: (30, 30),
        checkpointed: (30, 30),
        beside_a_thread: (40, 40),
    }
    for loop, expected in numbers.items():
        tracer = traced(loop)
        assert (tracer.num_steps, len(tracer.log.losses)) == expected, loop
        losses = tracer.log.losses_between(0, tracer.num_steps)
        assert list(losses) == ["train/loss"], loop
        assert len(losses["train/loss"]) == expected[0], loop
    # Of several in one backward pass, and of a complex one, there is no value.
    assert all(map(math.isnan, traced(several_losses).log.losses.values()))
    gan = traced(adversarial).log
    values = gan.losses.values()
    for number in (0, 49):  # to the last: each step has the losses of both
        own = {"train/loss": values[2 * number], "train/loss_2": values[2 * number + 1]}
        assert gan.losses_of(number) == own


def test_the_loss_of_a_scaled_backward_pass_is_the_unscaled_one() -> None:
    losses: list[float] = []
    tracer = traced(partial(scaled, losses.append))
    assert list(tracer.log.losses.values()) == losses


class Clock:
    """Stands still but for what is busy."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns

    def busy(self, ms: float) -> None:
        self.now_ns += int(ms * 1e6)


class Fetched(Dataset[Any]):
    """Each sample takes a known time."""

    def __init__(self, clock: Clock, ms: Callable[[int], float], number: int) -> None:
        self._clock, self._ms, self._number = clock, ms, number

    def __len__(self) -> int:
        return self._number

    def __getitem__(self, index: int) -> Tensor:
        self._clock.busy(self._ms(index))
        return torch.ones(4)


def test_time_between_bursts_is_divided_as_in_the_latest_but_for_what_is_unusual() -> None:
    clock, model = Clock(), net()
    model[0].register_forward_hook(lambda *_: clock.busy(2.0))
    tracer, optimizer = Tracer(clock=clock), sgd(model)
    tracer.is_sampled = True
    counted: list[int] = []
    # A loader that stands still now and then, a file that is written once in fifty steps.
    data = Fetched(clock, lambda index: 9.0 if index % 7 == 6 else 1.0, 400)
    for number, one in enumerate(DataLoader(data)):
        if tracer.hooks.level == COUNTS:
            counted.append(number)
        outputs = model(one)
        clock.busy(1.0)
        outputs.sum().backward()
        clock.busy(0.5)
        if number % 50 == 49:
            clock.busy(100.0)
        optimizer.step()
    tracer.close()
    assert 200 < len(counted) < 390
    assert sum(tracer.timeline.total_ns) == clock.now_ns
    for number in counted[1:]:
        parts_ms = [spent / 1e6 for spent in tracer.parts_ns[number + 1]]
        assert parts_ms[DATA] == (9.0 if number % 7 == 6 else 1.0)
        if number % 50 != 49:
            expected = [parts_ms[FORWARD], parts_ms[LOSS], parts_ms[OTHER]]
            assert expected == pytest.approx([2.0, 1.0, 0.5], abs=1e-5), number
        else:  # three times a usual step is one, as far as anybody knows
            assert parts_ms[FORWARD] == pytest.approx(6.0, abs=1e-5)
            assert parts_ms[OTHER] == pytest.approx(103.5 - 9.0, abs=1e-5)


def with_tests(num_steps: int, tests: Callable[[int], bool], *, by_eval: bool) -> Tracer:
    """A training without a loader that after some steps is tested for 5 ms and then sleeps for 50."""
    clock, model = Clock(), net()
    model[0].register_forward_hook(lambda *_: None if torch.is_grad_enabled() else clock.busy(5.0))
    tracer, optimizer = Tracer(clock=clock), sgd(model)
    tracer.is_sampled = True
    for number in range(num_steps):
        model.train()
        step(model, optimizer)
        if tests(number):
            if by_eval:
                model.eval()
            with torch.no_grad():
                model(torch.randn(3, 4))
            clock.busy(50.0)
    tracer.close()
    assert sum(tracer.timeline.total_ns) == clock.now_ns
    return tracer


def test_a_test_begins_a_burst_and_one_that_nothing_tells_of_ends_the_sampling() -> None:
    told = with_tests(60, lambda number: number % 20 == 19, by_eval=True)
    assert told.timeline.num_evaluation_passes == 3
    assert told.timeline.total_ns[EVALUATION] == 15e6
    assert told.timeline.total_ns[OTHER] == 150e6
    assert told.timeline.num_marks > 0
    untold = with_tests(40, lambda number: number in (3, 30), by_eval=False)
    assert untold.timeline.num_evaluation_passes == 2
    assert untold.timeline.total_ns[EVALUATION] == 10e6
    assert untold.timeline.total_ns[OTHER] == 100e6
    assert untold.timeline.num_marks == 0


def test_what_follows_a_test_and_the_start_of_loaders_are_booked_where_they_belong() -> None:
    clock, model = Clock(), net()
    tracer, optimizer = Tracer(clock=clock), sgd(model)
    tracer.is_sampled = True

    class Started(DataLoader[Any]):
        def _get_iterator(self) -> Any:
            clock.busy(20.0)  # as workers are started
            return super()._get_iterator()

    def loader(ms: float, number: int) -> DataLoader[Any]:
        return Started(Fetched(clock, lambda index: ms, number), batch_size=2)

    training, testing = loader(1.0, 40), loader(3.0, 4)
    for _ in range(2):
        for one in training:
            step(model, optimizer, one)
        with torch.no_grad():
            for one in testing:
                model(one)
        clock.busy(50.0)  # a file is written
    tracer.close()
    assert tracer.timeline.num_marks > 0
    total_ms = dict(zip(PARTS, (ns / 1e6 for ns in tracer.timeline.total_ns), strict=True))
    assert total_ms["evaluation"] == 2 * (20 + 4 * 3)
    assert total_ms["data"] + total_ms["startup"] == 2 * (20 + 40 * 1)
    assert total_ms["other"] == 2 * 50


def test_tensors_updated_by_hand_make_a_step_for_each_backward_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gc.get_objects", list)  # no optimizer of another test
    for by_grad in (False, True):

        def loop(by_grad: bool = by_grad) -> None:
            weight = torch.ones(1, requires_grad=True)
            for number in range(7):
                loss = (weight * (1.0 + number)).square().sum()
                change: Any
                if by_grad:
                    (change,) = torch.autograd.grad(loss, [weight])
                else:
                    loss.backward()
                    change = weight.grad
                with torch.no_grad():
                    weight -= 0.001 * change

        tracer = traced(loop)
        assert tracer.num_steps == 7
        assert [list(tracer.log.losses_of(number)) for number in range(7)] == [["train/loss"]] * 7


def folds() -> None:
    """As of a cross-validation."""
    for _ in range(3):
        model, loader = net(), DataLoader(samples(8), batch_size=4)
        optimizer = sgd(model)
        for _ in range(2):
            for one, _ in loader:
                step(model, optimizer, one)


def tasks() -> None:
    """Side by side."""
    model = net()
    optimizer = sgd(model)
    first, second = (DataLoader(samples(8), batch_size=4) for _ in range(2))
    for _ in range(3):
        others = iter(second)
        for one, _ in first:
            step(model, optimizer, one)
            step(model, optimizer, next(others)[0])


def test_loaders_that_follow_one_another_go_on_counting_epochs() -> None:
    assert list(traced(folds).log.epochs) == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]
    assert list(traced(tasks).log.epochs) == [1] * 4 + [2] * 4 + [3] * 4
    assert list(traced(made_anew).log.epochs) == [1] * 26 + [2] * 26 + [3] * 26


def test_batches_that_are_read_ahead_are_counted_when_they_are_trained_on() -> None:
    for depth in (1, 2):
        log = traced(partial(ahead, depth)).log
        assert [log.samples[place] for place in (51, 103, 155)] == [103, 206, 309]
        assert list(log.epochs) == [1] * 52 + [2] * 52 + [3] * 52


def test_an_optimizer_that_takes_over_ends_the_steps_from_then_on() -> None:
    def switching() -> None:
        """Both were made before; the first one lives on."""
        model = net()
        first, second = sgd(model), torch.optim.Adam(model.parameters())
        steps(model, first, 50)
        steps(model, second, 100)

    tracer = traced(switching)
    assert tracer.num_steps == 149  # the second update of the other tells
    assert [one.num_steps for one in tracer.log.optimizers] == [50, 100]


def test_torch_is_as_before_once_the_tracer_is_closed() -> None:
    """Copies and files of a model that are made before hold nothing of ours."""
    before, model = state_of_torch(), net()
    tracer = Tracer()
    assert state_of_torch() != before
    step(model, sgd(model))
    assert all(not one._forward_hooks for one in model.modules())
    copied, stream = copy.deepcopy(model), io.BytesIO()
    torch.save(model, stream)
    tracer.close()
    assert state_of_torch() == before
    assert b"trainlab" not in stream.getvalue()
    assert b"trainlab" not in pickle.dumps(copied)


def test_a_script_that_goes_on_after_its_model_raised_is_seen_on() -> None:
    model, hooks = net(), list[int]()

    def look(*_: object) -> None:
        hooks.append(len(modules._global_forward_pre_hooks))
        if len(hooks) == 4:  # in the first step of the second pass
            raise ValueError("once")

    model[1].register_forward_hook(look)
    optimizer, loader = sgd(model), DataLoader(TensorDataset(torch.ones(3, 4)))
    tracer = Tracer()
    for _ in range(3):
        with suppress(ValueError):
            for (one,) in loader:
                step(model, optimizer, one)
    tracer.close()
    assert tracer.num_steps == 6
    assert not model._forward_hooks
    assert all(parts_ns[FORWARD] for parts_ns in tracer.parts_ns.values())
    assert set(hooks) == {0}


def test_a_model_updated_by_hand_is_one() -> None:
    model, tracer = nn.Linear(4, 4), Tracer()
    tracer.has_optimizer = False  # whatever other tests have left
    try:
        for _ in range(3):
            model.zero_grad()
            model(torch.randn(2, 4)).sum().backward()
            with torch.no_grad():
                for weight in model.parameters():
                    weight -= 0.1 * weight.grad
            assert not any(one._forward_hooks for one in model.modules())
        assert [one.name for one in tracer.log.models] == ["Linear"]
        assert tracer.num_steps == 2
        assert tracer.log.num_parameters == 20
    finally:
        tracer.close()
    assert tracer.num_steps == 3


def test_of_a_long_run_evenly_spaced_steps_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the first: a typical step is as much one of the last as of the first steps."""
    monkeypatch.setattr(tracing, "ALL_UP_TO", 10)
    model, tracer = net(), Tracer()
    optimizer = sgd(model)
    for _ in range(35):
        step(model, optimizer, torch.ones(1, 4))
    tracer.close()
    record = watched_record(tracer)
    assert record.steps == [1, *range(4, 36, 4)]
    assert {len(ms) for ms in record.steps_ms.values()} == {len(record.steps)}


def test_what_torch_compiles_depends_on_nothing_of_ours() -> None:
    """Else it would compile anew each time that more or less is seen."""
    model = net()
    optimizer, compiled = sgd(model), CompileCounter()

    @torch.compile(backend=compiled)
    def update() -> None:
        optimizer.step()
        optimizer.zero_grad()

    tracer = Tracer()
    nums: list[int] = []
    for level in (WHOLE, COUNTS, WHOLE, LIGHT, COUNTS, WHOLE):
        tracer.hooks.see(level)
        for _ in range(2):
            model(torch.ones(2, 4)).mean().backward()
            update()
        nums.append(compiled.frame_count)
    tracer.close()
    assert nums == [nums[0]] * 6
    assert nums[0] > 0
