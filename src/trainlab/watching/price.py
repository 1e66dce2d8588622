"""What watching costs here and now: a tiny loop with torch's calls seen and not seen, in turns."""

import statistics
import time
from contextlib import suppress

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from trainlab.watching.seeing.hooks import Hooks
from trainlab.watching.seeing.watcher import Watcher

ROUNDS = 15
STEPS = 6
"""Of a turn."""


def call_us(*, has_optimizer: bool) -> float:
    """What it adds to a process to see a call begin, or end, all around it included. Drawn from no random
    numbers of the script's, and on the CPU whatever it has set. `has_optimizer`: whether it has made one;
    torch takes seconds for the first."""
    # A script may leave torch in a state in which nothing can be trained.
    with suppress(RuntimeError), torch.enable_grad(), torch.device("cpu"):
        return _call_us(has_optimizer=has_optimizer)
    return 0.0


def _call_us(*, has_optimizer: bool) -> float:
    model = torch.nn.utils.skip_init(nn.Linear, 4, 4, device="cpu", dtype=torch.float32)
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1) if has_optimizer else None
    batches = TensorDataset(torch.zeros(STEPS, 4, dtype=torch.float32))
    loader = DataLoader(batches, generator=torch.Generator())

    def turn_us() -> float:
        start_ns = time.perf_counter_ns()
        for (batch,) in loader:
            model.zero_grad()
            model(batch).sum().backward()
            if optimizer is not None:
                optimizer.step()
        return (time.perf_counter_ns() - start_ns) / 1e3

    watcher = Watcher()
    turn_us()
    added_us, num_calls = [], []
    for _ in range(ROUNDS):
        before = watcher.timeline.num_calls
        seen_us = turn_us()
        num_calls.append(watcher.timeline.num_calls - before)
        watcher.hooks.close()
        added_us.append(seen_us - turn_us())
        watcher.hooks = Hooks(watcher)
    watcher.close()
    return max(0.0, statistics.median(added_us) / statistics.median(num_calls))
