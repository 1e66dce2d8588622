"""How long the results and findings of a study of 10,000 recorded trials take to load, and in what memory.

    python -m benchmarks.study_load

Bounds: 10 s and 2 GB, each shape of study read in a fresh process. The records are made up here: curves
of 50 points and two epochs for learn trials, cost trials in three processes, trained by nobody.
"""

import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.fabricate import Fabricated, made_study

from trainlab.lab import open_run
from trainlab.plan import Trial, plan, trials_of
from trainlab.spec import CostSpec, Study

MOST_S = 10.0
MOST_GB = 2.0


def levels(count: int) -> tuple[int, ...]:
    """So many batch sizes."""
    return tuple(range(1, count + 1))


def shapes() -> dict[str, Study]:
    """Studies of about 10,000 trials: many cells, many seeds, mostly cost."""
    margins = {"test/accuracy": 0.01, "test/loss": 0.01}
    return {
        "1,000 cells, 10 seeds": made_study(
            vary={"batch_size": levels(100), "hidden": levels(10)}, seeds=10, margins=margins
        ),
        "50 cells, 200 seeds": made_study(
            vary={"batch_size": levels(50)}, seeds=200, margins=margins
        ),
        "2,000 cells, 5 seeds": made_study(
            vary={"batch_size": levels(100), "hidden": levels(20)}, seeds=5, margins=margins
        ),
        "5,000 cells, 2 seeds": made_study(
            vary={"batch_size": levels(100), "hidden": levels(50)}, seeds=2, margins=margins
        ),
        "500 cells, 10 seeds, cost": made_study(
            vary={"batch_size": levels(50), "hidden": levels(10)},
            seeds=10,
            margins=margins,
            cost=CostSpec(mode="both", processes=3),
        ),
    }


def final(trial: Trial) -> dict[str, float]:
    """Something different for every trial."""
    own = hash((trial.cell, trial.seed)) % 1000 / 1e5
    return {"train/loss": 0.3 + own, "test/loss": 0.4 - own, "test/accuracy": 0.9 + own}


def load(path: Path) -> None:
    """Prints the seconds and gigabytes that this fresh process needs for tables and findings."""
    start = time.perf_counter()
    run = open_run(path)
    table, found = run.results(), run.findings()
    seconds = time.perf_counter() - start
    gigabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(seconds, gigabytes, len(table), len(found))


def main() -> None:
    """Prints each figure with its bound and exits 1 if one does not hold."""
    if len(sys.argv) > 1:
        load(Path(sys.argv[1]))
        return
    held = True
    for name, study in shapes().items():
        with TemporaryDirectory() as home:
            made = Fabricated(
                final=final,
                step_points=25,
                step_ms=lambda trial, process: 1 + hash((trial.id, process)) % 100 / 1e4,
            )
            folder = made.write(Path(home) / "run", study)
            words = [sys.executable, "-m", "benchmarks.study_load", str(folder.path)]
            told = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        seconds, gigabytes = (float(word) for word in told.split()[:2])
        good = seconds <= MOST_S and gigabytes <= MOST_GB
        held = held and good
        print(
            f"{name:28} {len(trials_of(plan(study))):6,} trials {seconds:7.2f} s {gigabytes:6.2f} GB   "
            f"at most {MOST_S:.0f} s, {MOST_GB:.0f} GB   {'ok' if good else 'NOT MET'}",
            flush=True,
        )
    raise SystemExit(0 if held else 1)


if __name__ == "__main__":
    main()
