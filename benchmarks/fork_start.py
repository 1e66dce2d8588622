"""Whether a forked process measures what a cold one does, and how soon processes stand ready either way.

    python -m benchmarks.fork_start [--device cuda] [--blocks 8] [--threads 1]

An A/A comparison: in each block processes of one cell take turns in the same rounds, half of them started
cold and half forked from one server, a new one for every block. A process counts as its median over the
rounds, each turn taken relative to its round. Bounds: the 95% interval of the ratio forked to cold, over
blocks, lies within ±1%; five forked processes stand ready at least twice as soon as five cold ones, the
start of their server included.

The spread between processes is printed for both: all children of one server share the layout of their
addresses, which is drawn anew only when an interpreter starts.
"""

import argparse
import math
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from scipy import stats

from trainlab.execute.launch import Launcher, WorkerProcess
from trainlab.execute.planned_run import start_run
from trainlab.machine.host import capture
from trainlab.plan import plan
from trainlab.record.run_folder import RunFolder
from trainlab.resolve import resolve
from trainlab.spec.question import checked_question
from trainlab.workloads.reference import BUILTIN

CELLS = (("mnist-cnn", 1), ("mnist-cnn", 64), ("fashion-mlp", 32))
PAIRS = 4
"""Processes of a block that start one way, and as many the other."""
ROUNDS = 15
BOUND = 0.01
READY = 5
"""Processes of a bench of `mnist-lab`."""
WAYS = ("cold", "forked")


def started(
    folder: Path, cell: tuple[str, int], count: int, given: argparse.Namespace
) -> RunFolder:
    """A run of so many processes that time the same cell."""
    workload, batch_size = cell
    settings = {"data": "bundled", "device": given.device, "batch_size": batch_size}
    values = {
        "workload": workload,
        "settings": settings | ({"threads": given.threads} if given.threads else {}),
        "cost": {"processes": count, "max_processes": count},
        "learn": False,
    }
    return start_run(resolve(checked_question(values), BUILTIN[workload].facts), folder)


@contextmanager
def standing_ready(run: RunFolder, ways: Sequence[str]) -> Iterator[list[WorkerProcess]]:
    """A process for each of these ways to start, past its imports."""
    environment = run.write_environment(capture(Path.cwd()))
    groups = [group for group in plan(run.study().to_study("study.json")) if group.bench]
    with ExitStack() as stack:
        launchers = {way: Launcher(forks=way == "forked") for way in WAYS}
        for launcher in launchers.values():
            stack.callback(launcher.close)
        processes = []
        for way, group in zip(ways, groups, strict=True):
            process = WorkerProcess(run, group, environment, launchers[way])
            stack.callback(process.kill)
            processes.append(process)
        for process in processes:
            process.wait_until_ready()
        yield processes


def block(cell: tuple[str, int], given: argparse.Namespace) -> dict[str, list[float]]:
    """The logarithm of each process's step relative to all of its block, by how it started."""
    ways = WAYS * PAIRS
    with TemporaryDirectory() as folder:
        run = started(Path(folder) / "run", cell, len(ways), given)
        with standing_ready(run, ways) as processes:
            for process in processes:
                process.warm_up()
            relative: list[list[float]] = [[] for _ in processes]
            for number in range(1, ROUNDS + 1):
                order = random.sample(range(len(processes)), len(processes))
                logs = {index: math.log(processes[index].turn(number) or 0.0) for index in order}
                middle = statistics.mean(logs.values())
                for index, log in logs.items():
                    relative[index].append(log - middle)
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    for way, logs_of_one in zip(ways, relative, strict=True):
        found[way].append(statistics.median(logs_of_one))
    return found


def spread(blocks: Sequence[dict[str, list[float]]], way: str) -> float:
    """The standard deviation between processes of one block."""
    return math.sqrt(statistics.mean(statistics.variance(one[way]) for one in blocks))


def compare(cell: tuple[str, int], given: argparse.Namespace) -> bool:
    """Prints the ratio of the two ways for a cell, and whether it keeps the bound or cannot tell."""
    blocks = [block(cell, given) for _ in range(given.blocks)]
    ratios = [statistics.mean(one["forked"]) - statistics.mean(one["cold"]) for one in blocks]
    middle, error = statistics.mean(ratios), statistics.stdev(ratios) / math.sqrt(len(ratios))
    half = float(stats.t.ppf(0.975, len(ratios) - 1)) * error
    low, high = math.expm1(middle - half), math.expm1(middle + half)
    is_met = low >= -BOUND and high <= BOUND
    is_broken = low > BOUND or high < -BOUND
    said = "ok" if is_met else "NOT MET" if is_broken else "cannot tell"
    name = f"{cell[0]} batch {cell[1]}"
    print(f"{name}: forked / cold {math.expm1(middle):+.2%} [{low:+.2%}, {high:+.2%}]: {said}")
    cold, forked = (spread(blocks, way) for way in WAYS)
    freedom = len(blocks) * (PAIRS - 1)
    quantiles = [math.sqrt(float(stats.f.ppf(q, freedom, freedom))) for q in (0.975, 0.025)]
    ratio = forked / cold
    print(
        f"  spread between processes: cold {cold:.2%}, forked {forked:.2%}; ratio {ratio:.2f} "
        f"[{ratio / quantiles[0]:.2f}, {ratio / quantiles[1]:.2f}]",
        flush=True,
    )
    expected = math.sqrt((cold**2 + forked**2) / PAIRS)
    print(f"  spread of blocks {statistics.stdev(ratios):.2%}, expected {expected:.2%}", flush=True)
    return not is_broken


def ready_s(way: str, given: argparse.Namespace) -> tuple[float, float]:
    """Seconds until five processes stand ready, and until five more do."""
    with TemporaryDirectory() as folder:
        run = started(Path(folder) / "run", CELLS[0], 2 * READY, given)
        environment = run.write_environment(capture(Path.cwd()))
        groups = [group for group in plan(run.study().to_study("study.json")) if group.bench]
        found = []
        with closing(Launcher(forks=way == "forked")) as launcher:
            for some in (groups[:READY], groups[READY:]):
                start_s = time.monotonic()
                processes = [WorkerProcess(run, one, environment, launcher) for one in some]
                for process in processes:
                    process.wait_until_ready()
                found.append(time.monotonic() - start_s)
                for process in processes:
                    process.kill()
    return found[0], found[1]


def main() -> None:
    """Prints each figure with its bound and exits 1 if one does not hold."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1, help="0: torch's choice")
    given = parser.parse_args()
    print(f"torch {torch.__version__}, {given.device}, {given.threads or 'default'} threads")
    times = {way: [ready_s(way, given) for _ in range(3)] for way in WAYS}
    (cold_s, _), (forked_s, more_s) = (
        tuple(statistics.median(column) for column in zip(*times[way], strict=True)) for way in WAYS
    )
    is_sooner = 2 * forked_s <= cold_s
    told = "ok" if is_sooner else "NOT MET"
    print(f"{READY} ready after: cold {cold_s:.2f} s, forked {forked_s:.2f} s: {told}")
    print(f"  {READY} more from the same server after {more_s:.3f} s", flush=True)
    held = [compare(cell, given) for cell in CELLS]
    raise SystemExit(0 if is_sooner and all(held) else 1)


if __name__ == "__main__":
    main()
