"""How many more learn trials are done in the same time side by side.

    python -m benchmarks.jobs [--trials 8] [--epochs 10] [--repeats 3]

Trials of fashion-mlp on the bundled data, each way once per repeat, in turn: one after the other with
torch's own number of threads and with one thread, and two side by side with one thread each. The start of
the fork server, some 4 s on a slow machine, is part of the time. Bound: side by side at
least 1.6 times as many per second as one after the other with one thread.
"""

import argparse
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from trainlab.lab import run

LEAST = 1.6
WAYS = {
    "one after the other, torch's threads": (1, None),
    "one after the other, 1 thread": (1, 1),
    "2 side by side, 1 thread each": (2, 1),
}


def total_s(jobs: int, threads: int | None, num_trials: int, epochs: int) -> float:
    """Seconds for all trials, from the question to the tables."""
    options = {} if threads is None else {"threads": threads}
    with TemporaryDirectory() as folder:
        start_s = time.monotonic()
        run(
            "fashion-mlp",
            seeds=num_trials,
            jobs=jobs,
            out=Path(folder) / "run",
            device="cpu",
            data="bundled",
            epochs=epochs,
            **options,
        )
        return time.monotonic() - start_s


def main() -> None:
    """Prints trials per second each way and exits 1 if the bound does not hold."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    asked = f"{given.trials} trials of {given.epochs} epochs"
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {asked}")
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    total_s(1, 1, 1, 1)  # what only the first run of a process pays for
    for _ in range(given.repeats):
        for way, (jobs, threads) in WAYS.items():
            times[way].append(total_s(jobs, threads, given.trials, given.epochs))
    for way, found in times.items():
        middle_s = statistics.median(found)
        print(f"{way:40} {middle_s:6.1f} s, {given.trials / middle_s:.2f} trials per s")
    _, single, double = times.values()
    gain = statistics.median(a / b for a, b in zip(single, double, strict=True))
    is_met = gain >= LEAST
    told = "ok" if is_met else "NOT MET"
    print(f"side by side: {gain:.2f} times as many, at least {LEAST}: {told}")
    raise SystemExit(0 if is_met else 1)


if __name__ == "__main__":
    main()
