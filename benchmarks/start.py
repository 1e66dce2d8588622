"""What a user waits for before anything happens: help, data, a watched script, and the size of the package.

    python -m benchmarks.start

Bounds: `trainlab --help` at most 0.3 s; the plan of a study (`--dry-run`) at most 1 s; 60,000 images from
cached gzip under 1 s; a script of some 5 s under `trainlab watch`, answer included, at most 2 s more than
alone (the median of ten pairs, one after the other); the installed package at most 12 MB. The images are
MNIST's if they are cached, else ones made here as large.
"""

import statistics
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from trainlab.data.fetch import load_images
from trainlab.data.image_sets import MNIST, cached, file_in, holds, read_idx

REPEATS = 9
PAIRS = 10
SCRIPT = """
import torch
from torch import nn
torch.manual_seed(1)
images, labels = torch.randn(6400, 1, 28, 28), torch.randint(0, 10, (6400,))
layers = nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 13 * 13, 10)
model = nn.Sequential(*layers)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(images, labels)
for epoch in range(6):
    for x, y in torch.utils.data.DataLoader(data, batch_size=64, shuffle=True):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    print("epoch", epoch, "loss", loss.item())
"""


def seconds(action: Callable[[], object]) -> float:
    """The median of a few repeats."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def show_help() -> None:
    """The command as a user calls it."""
    command = Path(sys.executable).with_name("trainlab")
    subprocess.run([str(command), "--help"], check=True, capture_output=True)


def show_plan() -> None:
    """What `mnist-lab` would run."""
    command = Path(sys.executable).with_name("trainlab")
    subprocess.run([str(command), "run", "mnist-lab", "--dry-run"], check=True, capture_output=True)


def watched_s() -> float:
    """What `trainlab watch` adds to the time of a script, start and end together."""
    added = list[float]()
    with TemporaryDirectory() as folder:
        (Path(folder) / "train.py").write_text(SCRIPT)

        def took_s(*command: str) -> float:
            start = time.perf_counter()
            subprocess.run([*command, "train.py"], check=True, capture_output=True, cwd=folder)
            return time.perf_counter() - start

        for number in range(PAIRS + 1):  # the first fills the file cache
            alone_s = took_s(sys.executable)
            watched_s = took_s(str(Path(sys.executable).with_name("trainlab")), "watch")
            added += [watched_s - alone_s] if number else []
            print(f"a script alone {alone_s:.2f} s, watched {watched_s:.2f} s", flush=True)
    return statistics.median(added)


def read_images() -> None:
    """The training images of MNIST, verified; the bundled tenth, ten times, where there is no cache."""
    if holds(cached(MNIST), MNIST.full):
        file = MNIST.full.train_images
        read_idx(file_in(cached(MNIST), file), file.shape, file.sha256)
    else:
        for _ in range(10):
            load_images("mnist", "bundled")


def package_mb() -> float:
    """Size of the unpacked wheel."""
    with TemporaryDirectory() as folder:
        words = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, "."]
        subprocess.run([sys.executable, *words], check=True, capture_output=True)
        (wheel,) = Path(folder).glob("trainlab-*.whl")
        return sum(member.file_size for member in zipfile.ZipFile(wheel).infolist()) / 1e6


def main() -> None:
    """Prints each figure with its bound and exits 1 if one does not hold."""
    figures = {
        "trainlab --help (s)": (seconds(show_help), 0.3),
        "trainlab run --dry-run (s)": (seconds(show_plan), 1.0),
        "a watched script, added (s)": (watched_s(), 2.0),
        "60,000 images from gzip (s)": (seconds(read_images), 1.0),
        "installed package (MB)": (package_mb(), 12.0),
    }
    for name, (value, most) in figures.items():
        print(
            f"{name:30} {value:8.3f}   at most {most:5.1f}   {'ok' if value <= most else 'NOT MET'}"
        )
    raise SystemExit(0 if all(value <= most for value, most in figures.values()) else 1)


if __name__ == "__main__":
    main()
