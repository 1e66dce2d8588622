"""What watching a loop costs: the same loop with torch's calls seen and not seen, in turns in one process.

    python benchmarks/watching.py [--device cuda] [--rounds 60]

A turn is 50 updates; rounds of both kinds, in random order, so that drift hits both alike. The ratio of a
round's two means is one sample; its median over rounds is given with a 95% interval.
"""

import argparse
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from trainlab.stats.median import median_interval
from trainlab.watching.seeing.watcher import Watcher

UPDATES = 50
LOOPS = {"0.5 ms": (0.5, 64, 16), "5 ms": (5.0, 512, 64), "20 ms": (20.0, 1024, 128)}
"""What a step should take, the width it begins with, and the batch."""
BOUNDS_PERCENT = {"cpu": {"0.5 ms": 3.0, "5 ms": 1.0}, "cuda": dict.fromkeys(LOOPS, 2.0)}
"""The most that watching may add."""


def made(wanted_ms: float, width: int, batch: int, device: str) -> Callable[[], list[float]]:
    """A plain loop whose step takes about so long: the times of UPDATES of them."""
    while True:
        loop = _loop(width, batch, device)
        loop()
        took_ms = statistics.median(loop())
        if took_ms >= 0.9 * wanted_ms or device == "cuda":
            return loop
        width = math.ceil(width * min(2.0, math.sqrt(wanted_ms / took_ms) + 0.05))


def _loop(width: int, batch: int, device: str) -> Callable[[], list[float]]:
    torch.manual_seed(0)
    inputs = torch.randn(UPDATES * batch, 64)
    targets = torch.randint(0, 10, (UPDATES * batch,))
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=batch)
    model = nn.Sequential(
        *(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()),
        nn.Linear(width, 10),
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    criterion = nn.CrossEntropyLoss()

    def run() -> list[float]:
        times_ms = []
        for one, target in loader:
            start = time.perf_counter()
            optimizer.zero_grad()
            loss = criterion(model(one.to(device)), target.to(device))
            loss.backward()
            optimizer.step()
            times_ms.append((time.perf_counter() - start) * 1e3)
        if device == "cuda":
            torch.cuda.synchronize()
        return times_ms

    return run


def whole_ms(run: Callable[[], list[float]]) -> float:
    """An update with all that is between two of them."""
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) * 1e3 / UPDATES


def watched_ms(run: Callable[[], list[float]]) -> float:
    """The same, watched."""
    watcher = Watcher()
    try:
        return whole_ms(run)
    finally:
        watcher.close()


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--device", default="cpu")
    asked.add_argument("--rounds", type=int, default=60)
    given = asked.parse_args()
    torch.set_num_threads(1)
    has_failed = False
    for name, (wanted_ms, width, batch) in LOOPS.items():
        run = made(wanted_ms, width, batch, given.device)
        logs, bare = [], []
        for _ in range(given.rounds):
            ways = [("bare", whole_ms), ("watched", watched_ms)]
            random.shuffle(ways)
            took = {way: time_ms(run) for way, time_ms in ways}
            logs.append(math.log(took["watched"] / took["bare"]))
            bare.append(took["bare"])
        most = BOUNDS_PERCENT[given.device].get(name)
        middle, low, high = (100 * (math.exp(one) - 1) for one in median_interval(logs))
        print(
            json.dumps(
                {
                    "step": name,
                    "device": given.device,
                    "bare_ms": round(statistics.median(bare), 3),
                    "added_percent": round(middle, 2),
                    "interval_percent": [round(low, 2), round(high, 2)],
                    "bound_percent": most,
                    "added_us": round(statistics.median(bare) * 10 * middle, 1),
                }
            )
        )
        has_failed |= most is not None and middle > most
    sys.exit(has_failed)


if __name__ == "__main__":
    main()
