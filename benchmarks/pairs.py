"""Two ways to run a step, in pairs of neighbouring rounds, so that drift hits both alike.

A ratio is the median over the pairs, with its 95% interval: "ok" where the whole interval keeps the
bound, "NOT MET" where the whole interval breaks it, else "cannot tell".
"""

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from trainlab.machine.device import synchronize
from trainlab.measure.steps import Stopwatch, timed_ms
from trainlab.stats.means import median_interval

ROUND_MS = 50.0
MIN_ROUND_STEPS = 3
WARMUP_STEPS = 5

Run = Callable[[Any], None]


def paired_ratios(
    device: torch.device, base: Run, other: Run, batches: Iterator[Any], seconds: float
) -> list[float]:
    """How many times as long `other` takes as `base`, pair by pair, each first every other time."""
    runs, watch, ratios = (base, other), Stopwatch(device), list[float]()
    for run in runs * WARMUP_STEPS:
        run(next(batches))
    step_ms = timed_ms(device, partial(base, next(batches)))
    steps = max(MIN_ROUND_STEPS, int(ROUND_MS / step_ms))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        order = (0, 1) if len(ratios) % 2 else (1, 0)
        medians = {index: _round_ms(device, watch, runs[index], batches, steps) for index in order}
        ratios.append(medians[1] / medians[0])
    return ratios


def _round_ms(
    device: torch.device, watch: Stopwatch, run: Run, batches: Iterator[Any], steps: int
) -> float:
    """The median step of a round, begun on an idle device."""
    synchronize(device)
    watch.mark("start")
    for _ in range(steps):
        run(next(batches))
        watch.mark("step")
    return statistics.median(ms for _, ms in watch.laps_ms())


def verdict(ratios: list[float], low: float, high: float) -> tuple[str, bool]:
    """The figure with its interval, and whether it may stand."""
    middle, least, most = (value - 1 for value in median_interval(ratios))
    if low <= least and most <= high:
        said = "ok"
    else:
        said = "NOT MET" if least > high or most < low else "cannot tell"
    told = f"{middle:+.2%} [{least:+.2%}, {most:+.2%}] of {len(ratios)} pairs: {said}"
    return told, said != "NOT MET"
