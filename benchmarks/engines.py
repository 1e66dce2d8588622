"""How fast the engines train, beside the sample script's loop and Lightning, in one run.

    python -m benchmarks.engines [--device cuda] [--threads 1] [--rounds 12] [--data FOLDER] [--json FILE]

Blocks of updates are run in turn, in one process, so that drift hits all alike; a ratio is formed within a
round, and shown with the 95% interval of its median over rounds. The time of an update of lanes is divided
by their number: what one trial costs. Memory is the most that was allocated on the GPU while a way was
set up and warm, above what was there before.
"""

import argparse
import json
import logging
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from benchmarks.loop import interval
from benchmarks.script import lightning, script
from trainlab.data.dataset import Dataset
from trainlab.machine.device import device_name, synchronize
from trainlab.machine.host import CACHE_VARIABLE
from trainlab.plan import Trial
from trainlab.record.trial_record import Progress
from trainlab.spec import settings_for
from trainlab.train.callbacks import Moments
from trainlab.train.engines import ENGINES
from trainlab.train.engines.engine import Engine, Member
from trainlab.train.setup import Setup, set_up
from trainlab.workloads.find import find_workload

LIGHTNING_SKIPS = 20
"""Updates of a Lightning run that pass before its clock starts."""


@dataclass(frozen=True)
class Way:
    """An engine with so many trials."""

    engine: str
    num_trials: int = 1
    least: float | None = None
    """The ratio to the sample script that it must reach, per trial."""

    def __str__(self) -> str:
        return self.engine if self.num_trials == 1 else f"{self.engine} {self.num_trials}"


@dataclass(frozen=True)
class Case:
    """A workload at a batch size; `steps` of the script make a block."""

    workload: str
    batch_size: int
    steps: int
    ways: tuple[Way, ...]


ON_GPU = (
    Case("mnist-cnn", 1, 200, (Way("eager"), Way("graphed", 1, 10), Way("lanes", 32, 50))),
    Case("mnist-cnn", 16, 200, (Way("eager"), Way("graphed", 1, 8), Way("lanes", 32, 25))),
    Case("mnist-cnn", 64, 120, (Way("eager"), Way("graphed", 1, 11), Way("lanes", 32, 18))),
    Case("fashion-mlp", 32, 200, (Way("eager"), Way("graphed", 1, 15), Way("lanes", 64, 300))),
)
ON_CPU = (
    Case("mnist-cnn", 1, 60, (Way("eager"), Way("tuned", 1, 1.5))),
    Case("mnist-cnn", 16, 12, (Way("eager"), Way("tuned"))),
    Case("mnist-cnn", 64, 5, (Way("eager"), Way("tuned", 1, 1.3))),
    Case("fashion-mlp", 32, 100, (Way("eager"), Way("tuned", 1, 4), Way("lanes", 8))),
)


def setup_of(case: Case, device: str, data: str, seed: int) -> Setup:
    """A trial of the case, ready."""
    workload = find_workload(case.workload)
    settings = settings_for(workload.defaults, {"batch_size": case.batch_size, "device": device})
    trial = Trial(id="bench", workload=case.workload, seed=seed, settings=settings)
    return set_up(trial, workload, _data(case.workload, data))


_LOADED: dict[tuple[str, str], Dataset] = {}


def _data(workload: str, choice: str) -> Dataset:
    if (workload, choice) not in _LOADED:
        folder = {"mnist-cnn": "mnist", "fashion-mlp": "fashion-mnist"}[workload]
        place = choice if choice in ("bundled", "full", "auto") else str(Path(choice) / folder)
        _LOADED[workload, choice] = find_workload(workload).dataset(place)
    return _LOADED[workload, choice]


def ours(case: Case, way: Way, device: str, data: str) -> Callable[[int], None]:
    """Blocks through an engine."""
    setups = [setup_of(case, device, data, seed) for seed in range(1, way.num_trials + 1)]
    return blocks_of(ENGINES[way.engine], setups)


def blocks_of(engine: Engine, setups: Sequence[Setup]) -> Callable[[int], None]:
    """Blocks through an engine's session, points of the curve included, epoch after epoch."""
    session = engine.open([Member(one, Moments([]), Progress()) for one in setups])
    per_epoch, every = len(setups[0].train_batches), setups[0].log_every_steps
    epoch, left = 0, 0
    training: Any = None

    def block(num_steps: int) -> None:
        nonlocal epoch, left, training
        while num_steps:
            if not left:
                if training is not None:
                    training.__exit__(None, None, None)
                epoch, left = epoch + 1, per_epoch
                training = session.training(epoch)
                training.__enter__()
            count = min(num_steps, every, left)
            session.advance(count)
            num_steps, left = num_steps - count, left - count

    return block


def timed(device: torch.device, block: Callable[[int], object], num_steps: int) -> float:
    """Milliseconds per update."""
    synchronize(device)
    start = time.perf_counter()
    block(num_steps)
    synchronize(device)
    return 1e3 * (time.perf_counter() - start) / num_steps


def measure(case: Case, device: str, data: str, rounds: int) -> dict[str, Any]:
    """All ways of a case in turn; prints its rows."""
    setup = setup_of(case, device, data, 1)
    where = setup.device
    blocks: dict[str, tuple[Callable[[int], object], int, int]] = {
        "script": (script(setup), case.steps, 1)
    }
    memory: dict[str, float] = {}
    for way in case.ways:
        if way.engine not in ENGINES:
            continue
        before = _allocated(where)
        block = ours(case, way, device, data)
        # So many updates that a block takes about as long as one of the script.
        timed(where, block, 5)
        num_steps = max(5, min(20 * case.steps, int(case.steps * 4 / way.num_trials**0.5)))
        timed(where, block, num_steps)
        memory[str(way)] = _peak(where) - before
        blocks[str(way)] = (block, num_steps, way.num_trials)
    beside = lightning(setup_of(case, device, data, 1), LIGHTNING_SKIPS)
    times: dict[str, list[float]] = {name: [] for name in blocks}
    timed(where, blocks["script"][0], case.steps)
    for number in range(rounds):
        order = list(blocks) if number % 2 else list(blocks)[::-1]
        for name in order:
            run, num_steps, num_trials = blocks[name]
            times[name].append(timed(where, run, num_steps) / num_trials)
        if beside is not None and number % 3 == 0:
            seconds = beside(case.steps)
            times.setdefault("Lightning", []).append(1e3 * seconds / case.steps)
    return _told(case, times, memory)


def _told(case: Case, times: dict[str, list[float]], memory: dict[str, float]) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    least = {str(way): way.least for way in case.ways}
    for name, values in times.items():
        script_ms = times["script"]
        if name == "Lightning":  # runs every third round
            script_ms = script_ms[::3]
        ratios = [base / value for base, value in zip(script_ms, values, strict=False)]
        low, high = interval(ratios)
        ratio, wanted = statistics.median(ratios), least.get(name)
        verdict = "" if wanted is None else "ok" if low >= wanted else "NOT MET"
        if wanted is not None and low < wanted <= high:
            verdict = "cannot tell"
        rows[name] = {
            "ms": statistics.median(values),
            "ratio": ratio,
            "interval": (low, high),
            "memory_mb": memory.get(name),
            "least": wanted,
            "verdict": verdict,
        }
        bound = "" if wanted is None else f"at least {wanted:g}x  {verdict}"
        used = "" if not memory.get(name) else f"{memory[name]:8.0f} MB"
        print(
            f"{case.workload:12} {case.batch_size:5} {name:12} {statistics.median(values):9.4f} ms"
            f"  {ratio:7.2f}x [{low:.2f}, {high:.2f}]  {used:11}  {bound}",
            flush=True,
        )
    return {"workload": case.workload, "batch_size": case.batch_size, "ways": rows}


def _allocated(device: torch.device) -> float:
    if device.type != "cuda":
        return 0.0
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device) / 1e6


def _peak(device: torch.device) -> float:
    return torch.cuda.max_memory_allocated(device) / 1e6 if device.type == "cuda" else 0.0


def main() -> None:
    """Measures every case and exits 1 if a bound does not hold."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--data", default="auto", help="auto, bundled, or a folder with both sets")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for name in ("lightning", "lightning.pytorch"):
        logging.getLogger(name).setLevel(logging.ERROR)
    torch.set_flush_denormal(True)
    where = torch.device(options.device)
    head = f"torch {torch.__version__}, {device_name(where)}, {torch.get_num_threads()} threads"
    print(f"{head}; ms per update and trial, times as fast as the sample script [95%]", flush=True)
    cases = ON_GPU if where.type == "cuda" else ON_CPU
    with TemporaryDirectory() as cache:
        # What engine tuned finds to be faster here is no business of the user's own cache.
        for case in cases:
            _data(case.workload, options.data)
        os.environ[CACHE_VARIABLE] = cache
        told = [measure(case, options.device, options.data, options.rounds) for case in cases]
    if options.json is not None:
        options.json.write_text(json.dumps({"machine": head, "cases": told}, indent=1))
    rows = [row for case in told for row in case["ways"].values()]
    raise SystemExit(0 if all(row["verdict"] in ("", "ok") for row in rows) else 1)


if __name__ == "__main__":
    main()
