"""Whether cost is measured right: known times, phases that add up, what marking costs.

    python -m benchmarks.cost [--device cuda] [--seconds 12]

Bounds: a step that spins or sleeps for a known time is reported within 2% of it (CPU); phases add up
to the bare step within 3%, marking them costs at most 2% at batch 64 and 10% at batch 1 on the
CPU; the bare step takes at most 2% longer than the same step written by hand.

Ratios and what is said of them: `benchmarks.pairs`.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.pairs import paired_ratios, verdict
from trainlab.analysis.method import round_ratios
from trainlab.data.dataset import Dataset, Split
from trainlab.machine.process_state import prepare_process
from trainlab.measure.steps import stepping
from trainlab.measure.timing import measure
from trainlab.plan import Trial
from trainlab.spec import CostSpec, settings_for
from trainlab.train.setup import Setup, set_up
from trainlab.workloads.find import find_workload
from trainlab.workloads.workload import Workload

KNOWN_MS = 200.0


def tiny(wait: Callable[[float], None], taken_ms: list[float]) -> Workload:
    """Next to no work of its own, and a loss that takes a known time.

    What a wait really took is written down: a virtual machine may be stopped in the middle of it.
    """

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        start = time.perf_counter()
        wait(start + KNOWN_MS / 1e3)
        taken_ms.append((time.perf_counter() - start) * 1e3)
        return nn.functional.cross_entropy(outputs, targets)

    split = Split(torch.randn(64, 4), torch.zeros(64, dtype=torch.long))
    return Workload(
        name="tiny",
        model=lambda: nn.Linear(4, 2),
        data=lambda choice: Dataset("tiny", split, split),
        loss=loss,
        defaults={"batch_size": 4, "optimizer": "sgd"},
    )


def spin(end: float) -> None:
    """Keeps the CPU busy until then."""
    while time.perf_counter() < end:
        pass


def sleep(end: float) -> None:
    """Sleeps until then; a sleep may overshoot, so the last millisecond is spun."""
    time.sleep(max(0.0, end - time.perf_counter() - 1e-3))
    spin(end)


def setup_of(workload: Workload, batch_size: int, device: str) -> Setup:
    """A set-up in this process, on bundled data."""
    given = {"data": "bundled", "device": device, "batch_size": batch_size}
    settings = settings_for(workload.defaults, given)
    trial = Trial(id="t", kind="cost", workload=workload.name, seed=1, settings=settings)
    return set_up(trial, workload, workload.data("bundled"))


def by_hand(setup: Setup) -> Callable[[Tensor], None]:
    """The same step as a person writes it, on the same model and optimizer."""
    model, optimizer, loss_of = setup.model, setup.optimizer, setup.workload.loss
    inputs, targets = (
        part.to(setup.device) for part in (setup.dataset.train.inputs, setup.dataset.train.targets)
    )
    prepare = setup.workload.prepare

    def step(rows: Tensor) -> None:
        x, y = prepare(inputs.index_select(0, rows)), targets.index_select(0, rows)
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()

    return step


def bare_over_hand(setup: Setup, seconds: float) -> list[float]:
    """What our bare step takes beside the same by hand."""
    with stepping(setup, "train") as steps:
        return paired_ratios(setup.device, by_hand(setup), steps.bare, steps.endless, seconds)


def main() -> None:
    """Prints each figure with its bound and exits 1 if one does not hold."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=12.0)
    given = parser.parse_args()
    prepare_process(settings_for({}, {}))
    held = []
    print(f"torch {torch.__version__}, {given.device}, {torch.get_num_threads()} threads")
    for name, wait in (("spins", spin), ("sleeps", sleep)):
        taken_ms: list[float] = []
        setup = setup_of(tiny(wait, taken_ms), 4, "cpu")
        found = statistics.median(measure(setup, CostSpec(turns_s=10)).step_ms)
        known = statistics.median(taken_ms)
        held.append(abs(found / known - 1) <= 0.02)
        told = "ok" if held[-1] else "NOT MET"
        print(
            f"{name} for {known:.3f} ms: reported {found:.3f} ms, {found / known - 1:+.2%}: {told}"
        )
    cases = (("mnist-cnn", 64, 0.02), ("mnist-cnn", 1, 0.10), ("fashion-mlp", 32, 0.03))
    for name, batch_size, most in cases:
        workload = find_workload(name)
        bound = min(most, 0.03) if given.device == "cpu" else 0.03
        spec = CostSpec(turns_s=given.seconds, ratio_within=1e-9)
        record = measure(setup_of(workload, batch_size, given.device), spec)
        told, good = verdict(round_ratios(record), -0.03, bound)
        held.append(good)
        step = statistics.median(record.step_ms)
        print(f"{name}, batch {batch_size}, {step:.3f} ms: phases add up to the step {told}")
        setup = setup_of(workload, batch_size, given.device)
        told, good = verdict(bare_over_hand(setup, given.seconds), -1, 0.02)
        held.append(good)
        print(f"{name}, batch {batch_size}: bare step over the same by hand {told}")
    raise SystemExit(0 if all(held) else 1)


if __name__ == "__main__":
    main()
