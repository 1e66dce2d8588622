"""A study of many tiny trials: what each costs beyond itself, and whether memory and files stay bounded.

    python -m benchmarks.many_trials [--trials 1000]

The trials are of a linear model on 64 samples, as seeds of one setting, by `trainlab run` as a user starts
it, its start and its tables included. Overhead is how much longer that takes by trial than the trials
themselves on so many vCPUs. Bounds: none is lost, 50 ms, at most 1 GB for a process, 20 files per trial.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

OWN = """
import torch, torch.nn.functional as F
from torch import nn
from trainlab import Dataset, Split, Workload

def data(choice):
    inputs = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    split = Split(inputs, (inputs[:, 0] > 0).long())
    return Dataset("made up", split, split)

tiny = Workload(name="tiny", model=lambda: nn.Linear(8, 2), data=data, loss=F.cross_entropy)
"""
MOST_MS = 50
MOST_MB = 1000
MOST_FILES = 20


def main() -> None:
    """Prints the overhead and exits 1 if a bound does not hold."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=1000)
    number = parser.parse_args().trials
    with TemporaryDirectory() as folder:
        own, out = Path(folder) / "own.py", Path(folder) / "run"
        own.write_text(OWN)
        start_s = time.monotonic()
        words = ["run", f"{own}:tiny", "--seeds", str(number), "--yes", "--out", str(out)]
        subprocess.run(
            [
                sys.executable,
                "-P",
                "-m",
                "trainlab",
                *words,
                "--no-tensorboard",
                "-q",
                "--no-report",
            ],
            check=True,
        )
        wall_s = time.monotonic() - start_s
        records = [json.loads(file.read_text()) for file in out.glob("trials/*/trial.json")]
        num_files = sum(1 for path in out.rglob("*") if path.is_file())
    done = [record for record in records if record["state"] == "done"]
    own_s = statistics.median(record["total_s"] for record in done)
    vcpus = len(os.sched_getaffinity(0))
    driver_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1000
    each_ms = 1e3 * (wall_s / number - own_s / vcpus)
    print(f"{len(done)} of {number} trials done in {wall_s:.1f} s on {vcpus} vCPUs")
    print(
        f"a trial trains for {1e3 * own_s:.1f} ms; all else takes {each_ms:.0f} ms (bound {MOST_MS})"
    )
    print(f"the largest process took {driver_mb:.0f} MB (bound {MOST_MB})")
    print(f"{num_files / number:.1f} files per trial (bound {MOST_FILES})")
    is_bounded = driver_mb <= MOST_MB and num_files <= MOST_FILES * number
    sys.exit(not (len(done) == number and is_bounded and each_ms <= MOST_MS))


if __name__ == "__main__":
    main()
