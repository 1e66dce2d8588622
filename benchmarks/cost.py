"""Whether cost is measured right: known times, phases that add up, what marking costs.

    python -m benchmarks.cost [--device cuda]

Bounds: a step that spins for a known time within 2 % of it (CPU); phases add up to the bare step
within 3 %; marking phases costs at most 2 % at batch 64 and 10 % at batch 1 (CPU).
"""

import argparse
import dataclasses
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from trainlab.plan import Trial
from trainlab.record.folder import TrialFolder
from trainlab.record.schema import CostRecord
from trainlab.spec import CostSpec, settings_for
from trainlab.train.bench import set_up
from trainlab.train.cost import measure
from trainlab.workloads.find import find_workload
from trainlab.workloads.workload import Workload

SPIN_MS = 20.0


def spinning(workload: Workload) -> Workload:
    """The workload with a loss that keeps the CPU busy for a known time first."""

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        end = time.perf_counter() + SPIN_MS / 1e3
        while time.perf_counter() < end:
            pass
        return workload.loss(outputs, targets)

    return dataclasses.replace(workload, loss=loss)


def measured(workload: Workload, batch_size: int, device: str, budget_s: float) -> CostRecord:
    """The raw record of one measurement in this process."""
    asked = {"data": "bundled", "device": device, "batch_size": batch_size}
    settings = settings_for(workload.defaults, asked)
    trial = Trial(id="t", kind="cost", workload=workload.name, seed=1, settings=settings)
    with TemporaryDirectory() as folder:
        bench = set_up(trial, workload, TrialFolder(Path(folder)))
        return measure(bench, CostSpec(budget_s=budget_s, tight=1e-9))


def main() -> None:
    """Prints each figure with its bound and exits 1 if one does not hold."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args().device
    held = []
    print(f"torch {torch.__version__}, {device}, {torch.get_num_threads()} threads")
    if device == "cpu":
        mlp = find_workload("fashion-mlp")
        bare = statistics.median(measured(mlp, 32, device, 3).step_ms)
        slow = statistics.median(measured(spinning(mlp), 32, device, 5).step_ms)
        error = slow / (SPIN_MS + bare) - 1
        held.append(abs(error) <= 0.02)
        print(
            f"spins {SPIN_MS:.0f} ms, beside {bare:.3f} ms: measured {slow:.3f} ms, off by {error:+.2%}"
        )
    cases = (("mnist-cnn", 64, 0.02), ("mnist-cnn", 1, 0.10), ("fashion-mlp", 32, 0.03))
    for name, batch_size, most in cases:
        record = measured(find_workload(name), batch_size, device, 12)
        steps = [sum(parts) for parts in zip(*record.phases_ms.values(), strict=True)]
        bare, marked = statistics.median(record.step_ms), statistics.median(steps)
        ratio, bound = marked / bare - 1, most if device == "cpu" else 0.03
        held.append(abs(ratio) <= 0.03 and ratio <= bound)
        print(
            f"{name}, batch {batch_size}: bare {bare:.3f} ms, phases add up to {marked:.3f} ms, "
            f"{ratio:+.2%} (at most {bound:.0%}), {len(steps)} steps each"
        )
    raise SystemExit(0 if all(held) else 1)


if __name__ == "__main__":
    main()
