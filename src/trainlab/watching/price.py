"""What watching costs here and now: a tiny loop with torch's calls seen and not seen, in turns."""

import statistics
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from itertools import islice, pairwise
from time import perf_counter_ns

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from trainlab.watching.seeing.calls.hooks import Hooks
from trainlab.watching.seeing.looks import EVERY
from trainlab.watching.seeing.watcher import Watcher

ROUNDS = 15
STEPS = 6
"""Of a turn."""
ROUNDS_PASSED = 2
"""Of longer turns, in which steps are passed by: EVERY of them, as on average."""


@dataclass(frozen=True)
class Price:
    """What watching adds to a process, in microseconds, all around a call included."""

    call_us: float = 0.0
    """To see one begin, or end."""
    mark_us: float = 0.0
    """To pass a mark by, where nothing else is seen."""


def price(*, has_optimizer: bool, has_marks: bool) -> Price:
    """Drawn from no random numbers of the script's, and on the CPU whatever it has set. `has_optimizer`:
    whether it has made one; torch takes seconds for the first. `has_marks`: whether steps were passed by;
    else their price is 0."""
    # Only where another is set: with a device that is set, every call of torch takes longer.
    is_on_cpu = torch.get_default_device().type == "cpu"
    on_cpu = nullcontext() if is_on_cpu else torch.device("cpu")
    # A script may leave torch in a state in which nothing can be trained.
    with suppress(RuntimeError), torch.enable_grad(), on_cpu:
        return _price(has_optimizer=has_optimizer, has_marks=has_marks)
    return Price()


def _price(*, has_optimizer: bool, has_marks: bool) -> Price:
    model = torch.nn.utils.skip_init(nn.Linear, 4, 4, device="cpu", dtype=torch.float32)
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1) if has_optimizer else None
    num_batches = 2 * (ROUNDS * STEPS + ROUNDS_PASSED * EVERY) + STEPS
    dataset = TensorDataset(torch.zeros(num_batches, 4, dtype=torch.float32))
    loader = DataLoader(dataset, generator=torch.Generator())
    watcher = Watcher()
    timeline, batches = watcher.timeline, iter(loader)

    def step_us(num_steps: int) -> list[float]:
        """Of each step; what seeing does once a turn is shared by its steps."""
        times_ns = [perf_counter_ns()]
        for (batch,) in islice(batches, num_steps):
            model.zero_grad()
            model(batch).sum().backward()
            if optimizer is not None:
                optimizer.step()
            times_ns.append(perf_counter_ns())
        watcher.see_all()
        shared_us = (perf_counter_ns() - times_ns[-1]) / 1e3 / num_steps
        return [(end - start) / 1e3 + shared_us for start, end in pairwise(times_ns)]

    def pairs_us(
        num_rounds: int, num_steps: int, *, are_passed: bool
    ) -> tuple[list[float], list[float]]:
        """Of steps that are seen, or passed by, and of as many that are not watched. Turns are as long: the
        first steps of each are slower."""
        watched_us: list[float] = []
        bare_us: list[float] = []
        for _ in range(num_rounds):
            if are_passed:
                watcher.pass_by(num_steps + 1)
            watched_us += step_us(num_steps)
            watcher.hooks.close()
            bare_us += step_us(num_steps)
            watcher.hooks = Hooks(watcher)
        return watched_us, bare_us

    step_us(STEPS)
    num_calls = timeline.num_calls
    seen = pairs_us(ROUNDS, STEPS, are_passed=False)
    call_us = _added_us(*seen, (timeline.num_calls - num_calls) / ROUNDS / STEPS)
    mark_us = 0.0
    if has_marks:
        passed = pairs_us(ROUNDS_PASSED, EVERY, are_passed=True)
        mark_us = _added_us(*passed, timeline.num_marks / ROUNDS_PASSED / EVERY)
    watcher.close()
    return Price(call_us, mark_us)


def _added_us(watched_us: list[float], bare_us: list[float], number: float) -> float:
    """To each of so many events of a step. By the median step, not turn: beside other ranks on few cores
    most turns are interrupted, and few steps."""
    added = statistics.median(watched_us) - statistics.median(bare_us)
    return max(0.0, added / number) if number else 0.0
