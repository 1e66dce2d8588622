"""What our loop costs beside the same steps written by hand, and beside the sample script's loop.

    python -m benchmarks.loop [--device cuda] [--rounds 30]

Blocks of the same updates are run in turn (ours, by hand, with a loader, ours, …) in one process,
so that drift hits all alike; the ratio is over the block times of a round, with the 95% interval
of its median (a binomial order-statistic interval: no assumption about the noise).

On a noisy machine that interval is wider than the few microseconds in question. So what the loop
adds to an update is also measured by itself (`adds`): our loop around a step that does nothing but
return a finished batch. That figure is steady; its share of the step by hand must keep the bound.
"""

import argparse
import copy
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from trainlab.data.dataset import Dataset, Split
from trainlab.instruments.curve_writer import CurveWriter
from trainlab.instruments.tensorboard import TensorBoard
from trainlab.machine.device import synchronize
from trainlab.plan import Trial
from trainlab.record.run_folder import TrialFolder
from trainlab.record.trial_record import Progress
from trainlab.spec import settings_for
from trainlab.train.callbacks import Instrument, Moments
from trainlab.train.checkpoints import Place
from trainlab.train.engines import ENGINES
from trainlab.train.engines.engine import Member
from trainlab.train.loop import LoopClock, _train_epoch
from trainlab.train.setup import MIN_STEPS_PER_POINT, POINTS_PER_EPOCH, Setup, set_up
from trainlab.workloads.find import find_workload


@dataclass(frozen=True)
class Case:
    """A workload at a batch size, and how many updates make a block."""

    workload: str
    batch_size: int
    steps: int
    most: float | None
    """The ratio ours / by hand must not exceed."""


CASES = (
    Case("mnist-cnn", 1, 60, 1.05),
    Case("mnist-cnn", 16, 20, None),
    Case("mnist-cnn", 64, 8, 1.02),
    Case("fashion-mlp", 1, 300, 1.05),
    Case("fashion-mlp", 32, 180, None),
    Case("fashion-mlp", 64, 90, 1.02),
)


class Images(TorchDataset[tuple[Tensor, int]]):
    """Per-image Python as the sample script has it: a picture, `ToTensor`, `Normalize`.

    The same operations as torchvision's transforms, which the script composes, on one image.
    """

    def __init__(self, split: Split, mean: float, std: float) -> None:
        self.images = split.inputs[:, 0].numpy()
        self.labels = split.targets.tolist()
        self.mean, self.std = (mean,), (std,)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        picture = Image.fromarray(self.images[index])
        pixels = torch.from_numpy(np.array(picture, np.uint8, copy=True))
        pixels = pixels.view(picture.size[1], picture.size[0], 1).permute(2, 0, 1).contiguous()
        scaled = pixels.to(torch.float32).div(255).clone()
        mean = torch.as_tensor(self.mean, dtype=torch.float32).view(-1, 1, 1)
        std = torch.as_tensor(self.std, dtype=torch.float32).view(-1, 1, 1)
        return scaled.sub_(mean).div_(std), self.labels[index]


def setup_of(case: Case, device: str) -> Setup:
    """A set-up whose training set is one block."""
    if device != "cpu":  # updates are short there, and a block has its fixed cost as an epoch has
        case = replace(case, steps=min(5 * case.steps, 6000 // case.batch_size))
    workload = find_workload(case.workload)
    bundled = workload.data("bundled")
    count = case.steps * case.batch_size
    block = Split(bundled.train.inputs[:count], bundled.train.targets[:count])
    # As often as an epoch of the full set would log.
    every = max(MIN_STEPS_PER_POINT, 60_000 // case.batch_size // POINTS_PER_EPOCH)
    given = {"batch_size": case.batch_size, "device": device, "log_every_steps": every}
    settings = settings_for(workload.defaults, given)
    trial = Trial(id="bench", workload=case.workload, seed=1, settings=settings)
    return set_up(trial, workload, Dataset(bundled.name, block, bundled.test))


def ours(setup: Setup, instruments: list[Instrument], folder: Path) -> Callable[[], None]:
    """A block through our loop and engine, opened once as for a whole trial."""
    folder.mkdir(parents=True)
    moments = Moments(instruments)
    group = [Member(setup, moments, Progress())]
    session = ENGINES["eager"].open(group)
    moments.trial_begins(setup.view(TrialFolder(folder)))

    def block() -> None:
        group[0].progress.steps_done = 0
        _train_epoch(session, group, Place(), LoopClock(time.perf_counter, 1.0), None, None)

    return block


def added_us(setup: Setup, repeats: int = 15) -> float:
    """Microseconds our loop adds to an update: moments, means, points; the lowest of a few epochs."""
    rows = setup.train_batches.epoch(1, 1)[0]
    done = ENGINES["eager"].training_step(setup, Moments([]))(rows)
    group = [Member(setup, Moments([]), Progress())]
    session = ENGINES["eager"].open(group)
    session._step = lambda rows: done  # type: ignore[attr-defined]
    times = []
    for _ in range(repeats):
        group[0].progress.steps_done = 0
        synchronize(setup.device)
        start = time.perf_counter()
        _train_epoch(session, group, Place(), LoopClock(time.perf_counter, 1.0), None, None)
        synchronize(setup.device)
        times.append(time.perf_counter() - start)
    return 1e6 * min(times) / len(setup.train_batches)


def by_hand(setup: Setup) -> Callable[[], None]:
    """The same updates as one would write them for data that lies on the device."""
    device, size = setup.device, setup.settings.batch_size
    images, labels = setup.dataset.train.inputs.to(device), setup.dataset.train.targets.to(device)
    scale, loss_of = setup.workload.prepare, setup.workload.loss
    model, optimizer = setup.model, setup.optimizer

    def block() -> None:
        model.train()
        order = torch.randperm(len(images)).to(device)
        for start in range(0, len(images), size):
            rows = order[start : start + size]
            inputs, targets = scale(images[rows]), labels[rows]
            optimizer.zero_grad()
            loss = loss_of(model(inputs), targets)
            loss.backward()
            optimizer.step()

    return block


def with_loader(setup: Setup) -> Callable[[], None]:
    """The sample script's loop: a loader, per-image Python, a copy to the device."""
    scale = setup.workload.prepare
    images = Images(setup.dataset.train, scale.mean, scale.std)  # type: ignore[attr-defined]
    workers = {"num_workers": 1, "pin_memory": True} if setup.device.type == "cuda" else {}
    loader = DataLoader(images, batch_size=setup.settings.batch_size, shuffle=True, **workers)
    model, optimizer, loss_of = setup.model, setup.optimizer, setup.workload.loss

    def block() -> None:
        model.train()
        for inputs, targets in loader:
            moved, wanted = inputs.to(setup.device), targets.to(setup.device)
            optimizer.zero_grad()
            loss = loss_of(model(moved), wanted)
            loss.backward()
            optimizer.step()

    return block


def interval(values: list[float]) -> tuple[float, float]:
    """95% interval of the median from order statistics."""
    ordered, n = sorted(values), len(values)
    outside = max(0, int(n / 2 - 0.98 * n**0.5))
    return ordered[outside], ordered[n - 1 - outside]


def restorer(setup: Setup) -> Callable[[], None]:
    """Puts model and optimizer back to the start, so that every block trains from the same place."""
    step = ENGINES["eager"].training_step(setup, Moments([]))
    for rows in setup.train_batches.epoch(1, 1)[:3]:
        step(rows)
    model = copy.deepcopy(setup.model.state_dict())
    optimizer = copy.deepcopy(setup.optimizer.state_dict())

    def restore() -> None:
        setup.model.load_state_dict(model)
        setup.optimizer.load_state_dict(optimizer)

    return restore


def timed_blocks(
    setup: Setup, ways: dict[str, Callable[[], None]], rounds: int
) -> dict[str, list[float]]:
    """Seconds of each block, round by round; every other round runs them in reverse order."""
    restore = restorer(setup)
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 2):
        names = list(ways) if number % 2 else list(ways)[::-1]
        for name in names:
            restore()
            synchronize(setup.device)
            start = time.perf_counter()
            ways[name]()
            synchronize(setup.device)
            if number >= 2:
                times[name].append(time.perf_counter() - start)
    return times


def measure(case: Case, device: str, rounds: int, folder: Path) -> bool:
    """Prints the case's row; returns whether its bounds hold."""
    setup = setup_of(case, device)
    ways = {
        "ours": ours(setup, [], folder / "bare"),
        "hand": by_hand(setup),
        "recorded": ours(setup, [CurveWriter(), TensorBoard()], folder / "recorded"),
        "loader": with_loader(setup),
    }
    times = timed_blocks(setup, ways, rounds)
    ms = {
        name: 1e3 * statistics.median(values) / len(setup.train_batches)
        for name, values in times.items()
    }
    told = f"{case.workload:12} {case.batch_size:5} " + " ".join(f"{v:9.3f}" for v in ms.values())
    ratios = {
        name: [a / b for a, b in zip(times[name], times[base], strict=True)]
        for name, base in (("ours", "hand"), ("recorded", "hand"), ("loader", "ours"))
    }
    medians = {name: statistics.median(values) for name, values in ratios.items()}
    for name, values in ratios.items():
        low, high = interval(values)
        told += f"   {medians[name]:.3f} [{low:.3f}, {high:.3f}]"
    share = added_us(setup) / 1e3 / ms["hand"]
    verdict = judged(case, ratios, share)
    print(f"{told}   {share:6.2%}   {verdict}", flush=True)
    return verdict == "ok"


def judged(case: Case, ratios: dict[str, list[float]], share: float) -> str:
    """ok only where whole intervals keep the bounds; an interval that straddles one cannot tell."""
    loader_low, loader_high = interval(ratios["loader"])
    low, high = interval(ratios["ours"])
    most = case.most if case.most is not None else float("inf")
    if 1 + share > most or low > most or loader_high < 1:
        return "NOT MET"
    return "ok" if high <= most and loader_low > 1 else "cannot tell"


def main() -> None:
    """Measures every case and exits 1 if a bound does not hold."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    # Few samples, repeated, train down to gradients so small that the CPU would compute with
    # denormal numbers, three times slower: an artefact of the repetition, not of a loop.
    torch.set_flush_denormal(True)
    print(f"torch {torch.__version__}, {options.device}, {torch.get_num_threads()} threads")
    print("ms per update; recorded: with curves and TensorBoard; ratios to by hand [95%]")
    print(
        f"{'workload':12} {'batch':>5} {'ours':>9} {'by hand':>9} {'recorded':>9} {'loader':>9}"
        "   ours / by hand         recorded / by hand     loader / ours            adds"
    )
    with TemporaryDirectory() as folder:
        held = [
            measure(case, options.device, options.rounds, Path(folder) / str(number))
            for number, case in enumerate(CASES)
        ]
    raise SystemExit(0 if all(held) else 1)


if __name__ == "__main__":
    main()
