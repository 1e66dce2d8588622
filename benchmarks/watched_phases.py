"""Whether the phases of a watched script are those of the same loop as a workload.

    python -m benchmarks.watched_phases [--pairs 3]

The network, the loss, the optimizer and the batch of tests/watch/scripts/shapes/mnist.py, timed as a script
and as a workload in turn, with the allocator and the denormal numbers that a script has. Where batches
come from differs and is left out: a workload has its data in memory. Phases of at least a twentieth of the
step must agree within 5%.
"""

import argparse
import math
import runpy
import statistics
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import torch.nn.functional as F

import trainlab
from trainlab import Dataset, Split, Workload
from trainlab.lab.driving import drive
from trainlab.lab.opened import Run
from trainlab.lab.script_study import script_study
from trainlab.spec import CostSpec

SCRIPT = Path("tests/watch/scripts/shapes/mnist.py")
BOUND_PERCENT = 5.0
COMPARED = ("zero_grad", "forward", "loss", "backward", "optimizer")
LEAST_SHARE = 0.05


def main() -> int:
    """Prints a line per phase."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=3)
    pairs = parser.parse_args().pairs
    cost = CostSpec(processes=3, max_processes=3, turns_s=4.0)
    workload = as_workload()
    ratios: dict[str, list[float]] = {name: [] for name in (*COMPARED, "together")}
    shares: dict[str, list[float]] = {name: [] for name in ratios}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(pairs):
            study = script_study(SCRIPT, ("50",), cost=cost, learn=False)
            watched = phases_ms(drive(study, out=Path(folder) / f"script{number}").run)
            own = phases_ms(
                trainlab.profile(
                    workload,
                    out=Path(folder) / f"workload{number}",
                    batch_size=64,
                    optimizer="adadelta",
                    lr=1.0,
                    engine="eager",
                    allocator="system",
                    denormals="keep",
                    processes=3,
                    max_processes=3,
                    turns_s=4.0,
                )
            )
            for name in ratios:
                ratios[name].append(math.log(watched[name] / own[name]))
                shares[name].append(own[name] / own["together"])
    has_failed = False
    print("| phase | of these | script / workload | lowest and highest | bound |")
    print("| --- | --- | --- | --- | --- |")
    for name, logs in ratios.items():
        share, ratio = statistics.median(shares[name]), math.exp(statistics.median(logs))
        is_bound = share >= LEAST_SHARE
        low, high = (f"{math.exp(end(logs)):.3f}" for end in (min, max))
        bound = f"{BOUND_PERCENT:g}%" if is_bound else ""
        print(f"| {name} | {share:.1%} | {ratio:.3f} | {low} to {high} | {bound} |")
        has_failed |= is_bound and abs(ratio - 1) > BOUND_PERCENT / 100
    return int(has_failed)


def as_workload() -> Workload:
    """The network, loss and images of the script, which does not train when it is only read."""
    script = SimpleNamespace(**runpy.run_path(str(SCRIPT)))

    def split(size: int, seed: int) -> Split:
        digits = script.Digits(size, seed, script.to_normalized)
        images = (digits.images.unsqueeze(1).float() / 255 - 0.5) / 0.35
        return Split(images, digits.targets)

    return Workload(
        name="mnist-script",
        model=script.Net,
        data=lambda choice: Dataset("digits", split(1280, 1), split(1000, 2)),
        loss=F.nll_loss,
    )


def phases_ms(run: Run) -> dict[str, float]:
    """Of a training step, and those compared together."""
    (measured,) = run.evidence().measured
    found = {name: measured.summary.phases_ms.get(name, 0.0) for name in COMPARED}
    return {**found, "together": sum(found.values())}


if __name__ == "__main__":
    sys.exit(main())
