"""How much faster an update is with engine tuned than with eager, and than in the sample script's loop.

    python -m benchmarks.cpu_engines [--rounds 15] [--threads 1 2]

Blocks of the same updates take turns in one process (script, eager, tuned, script, …), so that drift and
what else the machine does hit all alike; a ratio is formed within a round, with the 95% interval of its
median. What is faster here is measured and compiled into a cache that only this benchmark sees.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from tempfile import TemporaryDirectory

import torch

from benchmarks.loop import Case, interval, restorer, setup_of, with_loader
from trainlab.machine.cache import CACHE_VARIABLE
from trainlab.train.engines import ENGINES
from trainlab.train.engines.engine import Member
from trainlab.train.loop import _train_epoch
from trainlab.train.moments import Moments, Progress
from trainlab.train.setup import Setup
from trainlab.train.tuned.library import NoLibraryError, library

TARGETS = {("mnist-cnn", 1): 2.5, ("mnist-cnn", 64): 1.3, ("fashion-mlp", 32): 5.0}
"""How many times as fast as the sample script's loop tuned is to be."""
CASES = (
    Case("mnist-cnn", 1, 60, None),
    Case("mnist-cnn", 16, 20, None),
    Case("mnist-cnn", 64, 8, None),
    Case("fashion-mlp", 32, 180, None),
)


@dataclass(frozen=True)
class Way:
    """One way to train a block of updates, on a set-up of its own."""

    setup: Setup
    block: Callable[[], None]
    restore: Callable[[], None]


def by_engine(name: str, case: Case) -> Way:
    """Our loop with an engine, opened once as for a whole trial."""
    setup = setup_of(case, "cpu")
    group = [Member(setup, Moments([]), Progress())]
    session = ENGINES[name].open(group)

    def block() -> None:
        group[0].progress.steps_done = 0
        _train_epoch(session, group, 1, time.perf_counter)

    return Way(setup, block, restorer(setup))


def by_script(case: Case) -> Way:
    """The sample script's loop."""
    setup = setup_of(case, "cpu")
    return Way(setup, with_loader(setup), restorer(setup))


def measure(case: Case, rounds: int) -> bool:
    """Prints the case's row; returns whether its target is met."""
    start = time.perf_counter()
    tuned = by_engine("tuned", case)
    opening_s = time.perf_counter() - start
    ways = {"script": by_script(case), "eager": by_engine("eager", case), "tuned": tuned}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name in list(ways) if number % 2 else list(ways)[::-1]:
            ways[name].restore()
            start = time.perf_counter()
            ways[name].block()
            if number:  # the first is warm-up
                times[name].append(time.perf_counter() - start)
    row = f"{case.workload:12} {case.batch_size:5} {torch.get_num_threads():7}"
    for values in times.values():
        row += f" {1e3 * statistics.median(values) / case.steps:9.3f}"
    ratios = {
        name: [a / b for a, b in zip(times[name], times["tuned"], strict=True)]
        for name in ("eager", "script")
    }
    for values in ratios.values():
        low, high = interval(values)
        row += f"   {statistics.median(values):5.2f} [{low:5.2f}, {high:5.2f}]"
    verdict = judged(TARGETS.get((case.workload, case.batch_size)), ratios["script"])
    print(f"{row}   {opening_s:7.1f}   {verdict}")
    print(f"{'':12} {tuned.setup.engine_facts}", flush=True)
    return verdict in ("ok", "")


def judged(target: float | None, ratios: list[float]) -> str:
    """ok only where the whole interval reaches the target."""
    if target is None:
        return ""
    low, high = interval(ratios)
    met = "ok" if low >= target else "NOT MET" if high < target else "cannot tell"
    return f"{met}" if met == "ok" else f"{met} ({target})"


def main() -> None:
    """Measures every case and exits 1 if a target is not met."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    torch.set_flush_denormal(True)
    print(f"torch {torch.__version__}; ms per update; ratios to tuned [95%]")
    print(
        f"{'workload':12} {'batch':>5} {'threads':>7} {'script':>9} {'eager':>9} {'tuned':>9}"
        "   eager / tuned         script / tuned        opening s"
    )
    with TemporaryDirectory() as folder:
        os.environ[CACHE_VARIABLE] = folder
        try:
            library()  # blocks are too short to pay for it, whole trials are not
        except NoLibraryError as why:
            print(f"no compiled update: {why}")
        met = []
        for threads in options.threads:
            torch.set_num_threads(threads)
            met += [measure(case, options.rounds) for case in CASES]
    raise SystemExit(0 if all(met) else 1)


if __name__ == "__main__":
    main()
