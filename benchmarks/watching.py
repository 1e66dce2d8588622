"""What watching a loop costs: the same loop with torch's calls seen and not seen, in turns in one process.

    python -m benchmarks.watching [--device cuda] [--rounds 30] [--only NAME] [--briefly]

A turn is a pass of 1,000 updates, about one over MNIST (100 of the MNIST script); rounds of all ways, in
random order, so that drift hits all alike. The ratio of a round's two means is one sample; its median over
rounds has a 95% interval. `trained` is a long training as `trainlab watch` sees it, its curve written,
after the first hundred steps; `whole` is what those cost, of which all is seen (left out with --briefly);
`bare again` is the same loop without us once more: what it differs by is chance.
"""

import argparse
import json
import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.engines import Case, setup_of
from benchmarks.script import LOG_EVERY, loader_of
from trainlab.machine.device import synchronize
from trainlab.record.files import LineWriter
from trainlab.stats.means import median_interval
from trainlab.watching.hooks import WHOLE, Hooks
from trainlab.watching.tracer import Tracer
from trainlab.watching.watched_run import ScriptCurve

UPDATES = 1000
MNIST, MNIST_UPDATES = "MNIST script, batch 64", 100
LOOPS = {
    "one layer, no loader": (0.0, 0, 4, False),
    "one layer": (0.0, 0, 4, True),
    "0.5 ms, no loader": (0.5, 8, 4, False),
    "0.5 ms": (0.5, 8, 4, True),
    "5 ms": (5.0, 512, 64, True),
}
"""What a step should take on a CPU, the width it begins with (0: the model is one layer, the shortest step
there is), the batch, and whether a loader gives it."""
BOUNDS_PERCENT = {
    "cpu": dict.fromkeys(LOOPS, 3.0) | {"5 ms": 1.0, MNIST: 1.0},
    "cuda": dict.fromkeys((*LOOPS, MNIST), 2.0),
}
"""The most that watching a training may add."""

Run = Callable[[], None]


def made(name: str, device: str) -> tuple[Run, int]:
    """A loop of this name, and the updates of a turn. A step of a plain one takes about so long, if it can
    be so short."""
    if name == MNIST:
        return mnist_script(device), MNIST_UPDATES
    wanted_ms, width, batch, has_loader = LOOPS[name]
    while True:
        run = _loop(width, batch, device, has_loader=has_loader)
        run()
        took_ms = turn_ms(run) / UPDATES
        if took_ms >= 0.9 * wanted_ms or not width or device == "cuda":
            return run, UPDATES
        width = math.ceil(width * min(2.0, math.sqrt(wanted_ms / took_ms) + 0.05))


def _loop(width: int, batch: int, device: str, *, has_loader: bool) -> Run:
    torch.manual_seed(0)
    inputs = torch.randn(UPDATES * batch, 64)
    targets = torch.randint(0, 10, (UPDATES * batch,))
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=batch)
    pairs = list(zip(inputs.split(batch), targets.split(batch), strict=True))
    hidden: list[nn.Module] = []
    if width:
        hidden = [nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
    model = nn.Sequential(*hidden, nn.Linear(width or 64, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    criterion = nn.CrossEntropyLoss()

    def run() -> None:
        for one, target in loader if has_loader else pairs:
            optimizer.zero_grad()
            loss = criterion(model(one.to(device)), target.to(device))
            loss.backward()
            optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()

    return run


def mnist_script(device: str) -> Run:
    """The sample script's loop: per-image Python, on a GPU in another process, a loss printed at times."""
    setup = setup_of(Case("mnist-cnn", 64, MNIST_UPDATES, ()), device, "bundled", 1)
    loader, where = loader_of(setup), setup.device
    model, optimizer, loss_of = setup.model.train(), setup.optimizer, setup.workload.loss

    def run() -> None:
        for number, (inputs, targets) in enumerate(islice(loader, MNIST_UPDATES)):
            optimizer.zero_grad()
            loss = loss_of(model(inputs.to(where)), targets.to(where))
            loss.backward()
            optimizer.step()
            if number % LOG_EVERY == 0:
                loss.item()
        synchronize(where)

    return run


def turn_ms(run: Run) -> float:
    """A turn, with all that is between its updates."""
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) * 1e3


class Watched:
    """A training that is watched now and then."""

    def __init__(self, run: Run, folder: Path, *, passes: bool) -> None:
        self._run, self.num_written = run, 0
        self._tracer = Tracer()
        self._tracer.is_sampled = passes
        curve = ScriptCurve(self._tracer, LineWriter(folder / f"{passes}.jsonl"))
        self._tracer.on_step = lambda step: self._told(curve.step_ended())
        run()
        self._stop()

    def _told(self, has_written: bool) -> None:
        self.num_written += has_written

    def _stop(self) -> None:
        self._tracer.see(WHOLE, is_amid_step=True)
        self._tracer.hooks.close()

    def ms(self) -> float:
        """Of a turn."""
        self._tracer.hooks = Hooks(self._tracer, self._tracer.timeline)
        self._tracer.timeline.restart()  # what ran unwatched meanwhile is no long step
        took_ms = turn_ms(self._run)
        self._stop()
        return took_ms


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--device", default="cpu")
    asked.add_argument("--rounds", type=int, default=30)
    asked.add_argument("--only", choices=(*LOOPS, MNIST))
    asked.add_argument("--briefly", action="store_true")
    given = asked.parse_args()
    torch.set_num_threads(1)
    has_failed = False
    # On a CPU its steps are so long that all are seen whole, and take minutes.
    names = [*LOOPS, MNIST] if given.device == "cuda" else [*LOOPS]
    for name in names if given.only is None else [given.only]:
        run, updates = made(name, given.device)
        with tempfile.TemporaryDirectory() as folder:
            trained = Watched(run, Path(folder), passes=True)
            bare = partial(turn_ms, run)
            ways: dict[str, Callable[[], float]] = {
                "bare": bare,
                "bare again": bare,
                "trained": trained.ms,
            }
            if not given.briefly:
                ways["whole"] = Watched(run, Path(folder), passes=False).ms
            took: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(given.rounds):
                for way in random.sample(list(ways), len(ways)):
                    took[way].append(ways[way]() / updates)
        most = BOUNDS_PERCENT[given.device][name]
        for way in list(ways)[1:]:
            bound = most if way == "trained" else None
            row = compared(took["bare"], took[way])
            about = {"step": name, "device": given.device, "way": way}
            print(json.dumps({**about, **row, "bound_percent": bound}), flush=True)
            has_failed |= bound is not None and row["added_percent"] > bound
    sys.exit(has_failed)


def compared(bare: list[float], watched: list[float]) -> dict[str, float]:
    """What watching adds, round by round."""
    logs = [math.log(one / other) for one, other in zip(watched, bare, strict=True)]
    middle, low, high = (100 * (math.exp(one) - 1) for one in median_interval(logs))
    return {
        "bare_ms": round(statistics.median(bare), 3),
        "added_percent": round(middle, 2),
        "low_percent": round(low, 2),
        "high_percent": round(high, 2),
        "added_us": round(statistics.median(bare) * 10 * middle, 1),
    }


if __name__ == "__main__":
    main()
