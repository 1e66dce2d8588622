"""Times the steps of a script as written and without its fault, in turns in one process.

    python repaired.py SCRIPT ROUNDS STEPS [ARGUMENT ...]

The arguments are those of the repaired script. Prints JSON: per round and way the milliseconds from update
to update, the share of them in the optimizer and in waiting for data, and the growth of memory per step.
"""

import contextlib
import functools
import importlib.util
import io
import json
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import torch
import torch._dynamo  # the first optimizer would load it within a round
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data import dataloader

WARMUP_STEPS = 5


class Clock:
    """Notes each update, and what the optimizer and the loader took of the time."""

    def __init__(self) -> None:
        self.process = psutil.Process()
        self.restart()
        register_optimizer_step_pre_hook(self.before_update)
        register_optimizer_step_post_hook(self.after_update)
        take = dataloader._BaseDataLoaderIter.__next__

        @functools.wraps(take)
        def timed_take(iterator: Any) -> Any:
            start = time.perf_counter()
            try:
                return take(iterator)
            finally:
                self.loader_s += time.perf_counter() - start

        dataloader._BaseDataLoaderIter.__next__ = timed_take

    def restart(self) -> None:
        self.updates: list[float] = []
        self.resident: list[int] = []
        self.optimizer_s = self.loader_s = 0.0

    def before_update(self, *_: Any) -> None:
        self.start = time.perf_counter()

    def after_update(self, *_: Any) -> None:
        now = time.perf_counter()
        self.updates.append(now)
        self.resident.append(self.process.memory_info().rss)
        self.optimizer_s += now - self.start
        if len(self.updates) == WARMUP_STEPS:
            self.optimizer_s = self.loader_s = 0.0

    def reading(self) -> dict[str, float]:
        times, resident = self.updates[WARMUP_STEPS - 1 :], self.resident[WARMUP_STEPS - 1 :]
        span = times[-1] - times[0]
        return {
            "step_ms": 1000 * span / (len(times) - 1),
            "optimizer_share": self.optimizer_s / span,
            "loader_share": self.loader_s / span,
            "growth_mib": (resident[-1] - resident[0]) / 2**20 / (len(resident) - 1),
        }


def load(script: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("script", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def repair(name: str, module: Any) -> None:
    """Takes the fault out, where arguments cannot."""
    if name == "slow_loader":
        ready = torch.zeros(128), 0
        module.Readings.__getitem__ = lambda self, index: ready
    elif name == "item_each_step":
        module.track_metrics = lambda *given: None
    elif name == "logs_to_disk":
        module.keep = lambda *given: None
    elif name == "unfused_optimizer":
        real = torch.optim.AdamW

        def fused(*given: Any, foreach: bool, fused: bool, **named: Any) -> torch.optim.Optimizer:
            return real(*given, fused=True, **named)

        module.torch = ModuleType("torch")
        module.torch.__dict__.update(torch.__dict__)
        module.torch.optim = ModuleType("optim")
        module.torch.optim.AdamW = fused


def main() -> None:
    script, rounds, steps, *arguments = sys.argv[1:]
    clock = Clock()
    readings: dict[str, list[dict[str, float]]] = {"written": [], "repaired": []}
    for _ in range(int(rounds)):
        for way in readings:
            module = load(Path(script))
            sys.argv = [script, "--steps", steps]
            if way == "repaired":
                repair(Path(script).stem, module)
                sys.argv += arguments
            torch.set_num_threads(1)
            clock.restart()
            with contextlib.redirect_stdout(io.StringIO()):
                module.main()
            readings[way].append(clock.reading())
    print(json.dumps(readings))


if __name__ == "__main__":
    main()
