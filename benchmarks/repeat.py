"""Whether a repeated measurement falls where the first one said it would.

    python -m benchmarks.repeat [--repeats 31] [--device cuda]

Measures the same cell again and again, three fresh processes each time, and counts how often a
measurement's median falls inside the 95 % interval of the one before. Exits 1 where that rate is so
low that a true rate of 95 % would give it in fewer than 1 of 100 runs.
"""

import argparse
import random
import statistics
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from scipy import stats
from trainlab.execute.resolve import make_study

from trainlab.analyse.cost.summary import repeat_interval
from trainlab.execute.run import run_study, start_run
from trainlab.execute.worker import Loader
from trainlab.spec import CostSpec


def measured(folder: Path, device: str, spec: CostSpec) -> list[float]:
    """One measurement: the median step of each of its timed processes, in milliseconds."""
    asked = {"data": "bundled", "device": device}
    study = make_study(Loader(), "fashion-mlp", asked, (1,), cost=spec, learn=False)
    run = start_run(study, folder)
    timed = [trial.id for trial in run.trials() if trial.watch == "steps"]
    run.write_study(run.study().model_copy(update={"trials": tuple(timed)}))
    run_study(run)
    return [statistics.median(run.trial(trial_id).cost.read().step_ms) for trial_id in timed]


def main() -> None:
    """Prints every measurement and the rate."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=31)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    spec = CostSpec(processes=3, budget_s=0.5)
    print(f"torch {torch.__version__}, {given.device}, {torch.get_num_threads()} threads")
    samples: list[list[float]] = []
    with TemporaryDirectory() as folder:
        for number in range(given.repeats):
            samples.append(measured(Path(folder) / str(number), given.device, spec))
            step = repeat_interval(samples[-1])
            print(
                f"{number + 1:3} {step.value:.4f} ms [{step.low:.4f}, {step.high:.4f}]", flush=True
            )
    inside = [_falls(a, b) for a, b in pairwise(samples)]
    count, total = sum(inside), len(inside)
    chance = float(stats.binom.cdf(count, total, 0.95))
    held = chance >= 0.01
    widths = [repeat_interval(sample) for sample in samples]
    width = statistics.median(found.high / found.low - 1 for found in widths)
    print(
        f"{count} of {total} repeats ({count / total:.0%}) inside the interval before; stated: 95 %; "
        f"median width {width:.1%}; chance of so few {chance:.2f}: {'ok' if held else 'NOT MET'}"
    )
    print(f"dealt out anew 10,000 times: {_dealt_anew(samples):.1%} inside")
    raise SystemExit(not held)


def _falls(first: Sequence[float], second: Sequence[float]) -> bool:
    found = repeat_interval(first)
    return found.low <= repeat_interval(second).value <= found.high


def _dealt_anew(samples: Sequence[Sequence[float]]) -> float:
    """The same processes dealt into measurements at random: uses them all, but hides drift."""
    draw, pool = random.Random(1), [median for sample in samples for median in sample]  # noqa: S311
    size = len(samples[0])
    hits = 0
    for _ in range(10_000):
        chosen = draw.sample(pool, 2 * size)
        hits += _falls(chosen[:size], chosen[size:])
    return hits / 10_000


if __name__ == "__main__":
    main()
