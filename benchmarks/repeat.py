"""Whether a repeated measurement falls where the first one said it would.

    python -m benchmarks.repeat [--repeats 31] [--device cuda]

Measures the same cell again and again, three fresh processes each time, and counts how often a
measurement's median falls inside the 95 % interval of the one before. Exits 1 where that rate is so
low that a true rate of 95 % would give it in fewer than 1 of 100 runs.
"""

import argparse
import statistics
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from scipy import stats

from trainlab.analyse.cost import CostSummary, summarise
from trainlab.execute.resolve import make_study
from trainlab.execute.run import run_study, start_run
from trainlab.execute.worker import Loader
from trainlab.spec import CostSpec


def measured(folder: Path, device: str, spec: CostSpec) -> CostSummary:
    """One measurement: its timed processes only."""
    asked = {"data": "bundled", "device": device}
    study = make_study(Loader(), "fashion-mlp", asked, (1,), cost=spec, learn=False)
    run = start_run(study, folder)
    timed = [trial.id for trial in run.trials() if trial.watch == "steps"]
    run.write_study(run.study().model_copy(update={"trials": tuple(timed)}))
    run_study(run)
    return summarise([run.trial(trial_id).cost.read() for trial_id in timed])


def main() -> None:
    """Prints every measurement and the rate."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=31)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    spec = CostSpec(processes=3, budget_s=0.5)
    print(f"torch {torch.__version__}, {given.device}, {torch.get_num_threads()} threads")
    found: list[CostSummary] = []
    with TemporaryDirectory() as folder:
        for number in range(given.repeats):
            found.append(measured(Path(folder) / str(number), given.device, spec))
            step = found[-1].step_ms
            print(
                f"{number + 1:3} {step.value:.4f} ms [{step.low:.4f}, {step.high:.4f}]", flush=True
            )
    inside = [a.step_ms.low <= b.step_ms.value <= a.step_ms.high for a, b in pairwise(found)]
    widths = [s.step_ms.high / s.step_ms.low - 1 for s in found]
    count, total = sum(inside), len(inside)
    chance = float(stats.binom.cdf(count, total, 0.95))
    held = chance >= 0.01
    print(
        f"{count} of {total} repeats ({count / total:.0%}) inside the interval before; stated: 95 %; "
        f"median width {statistics.median(widths):.1%}; chance of so few {chance:.2f}: "
        f"{'ok' if held else 'NOT MET'}"
    )
    raise SystemExit(not held)


if __name__ == "__main__":
    main()
