"""What watching costs here and now: a tiny loop with torch's calls seen and not seen, in turns."""

import statistics
from contextlib import suppress
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
"""Of a turn; of one that is passed by EVERY, as on average."""


@dataclass(frozen=True)
class Price:
    """What watching adds to a process, in microseconds, all around a call included."""

    call_us: float = 0.0
    """To see one begin, or end."""
    mark_us: float = 0.0
    """To pass a mark by, where nothing else is seen."""


def price(*, has_optimizer: bool) -> Price:
    """Drawn from no random numbers of the script's, and on the CPU whatever it has set. `has_optimizer`:
    whether it has made one; torch takes seconds for the first, and there are no marks without."""
    # A script may leave torch in a state in which nothing can be trained.
    with suppress(RuntimeError), torch.enable_grad(), torch.device("cpu"):
        return _price(has_optimizer=has_optimizer)
    return Price()


def _price(*, has_optimizer: bool) -> Price:
    model = torch.nn.utils.skip_init(nn.Linear, 4, 4, device="cpu", dtype=torch.float32)
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1) if has_optimizer else None
    num_batches = ROUNDS * (2 * STEPS + EVERY) + STEPS
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

    step_us(STEPS)
    seen_us: list[float] = []
    passed_us: list[float] = []
    bare_us: list[float] = []
    num_calls = timeline.num_calls
    for _ in range(ROUNDS):
        seen_us += step_us(STEPS)
        if optimizer is not None:
            watcher.pass_by(EVERY + 1)
            passed_us += step_us(EVERY)
        watcher.hooks.close()
        bare_us += step_us(STEPS)
        watcher.hooks = Hooks(watcher)
    calls = (timeline.num_calls - num_calls) / (ROUNDS * STEPS)
    marks = timeline.num_marks / (ROUNDS * EVERY)
    watcher.close()
    # The median step, not turn: beside other ranks on few cores most turns are interrupted, and few steps.
    bare = statistics.median(bare_us)
    return Price(
        max(0.0, (statistics.median(seen_us) - bare) / calls),
        max(0.0, (statistics.median(passed_us) - bare) / marks) if marks else 0.0,
    )
