"""What probes add to a step: one scalar probe, and scalar probes on all layers.

    python -m benchmarks.probes [--device cuda] [--seconds 12]

Bounds, for mnist-cnn at batch 64 on the CPU: one scalar probe, at one layer, adds at most 5% to a step,
scalar probes on all layers at most 25%. Other rows are for information and have no bound.

Ratios are of probed rounds over bare ones, and what is said of them is said in `benchmarks.pairs`. Both
rounds run the same model; what moves to the host at logged points is in the figures.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from benchmarks.cost import setup_of
from benchmarks.pairs import paired_ratios, verdict
from trainlab.machine.process_state import prepare_process
from trainlab.measure.layer_profile import probed_step
from trainlab.measure.steps import stepping
from trainlab.record.run_folder import TrialFolder
from trainlab.record.trial_record import Progress
from trainlab.spec import settings_for
from trainlab.spec.probe import probe_of
from trainlab.train.setup import Setup
from trainlab.workloads.find import find_workload

BOUND_TIMES = 4


@dataclass(frozen=True)
class Case:
    """A workload at a batch size with some probes, and the most they may add; None: no bound."""

    workload: str
    batch_size: int
    what: str
    probes: Sequence[str]
    most: float | None = None


CASES = (
    # The second of three ReLUs, and the layer before it, make the largest tensors of the network.
    Case("mnist-cnn", 64, "one scalar probe", ["relu/2:grad_input:sq_sum"], 0.05),
    Case("mnist-cnn", 64, "one scalar probe", ["conv2:activation:mean"], 0.05),
    Case("mnist-cnn", 64, "one scalar probe", ["relu/2:local_grad:sq_sum"], 0.05),
    Case("mnist-cnn", 64, "one scalar probe", ["fc1.weight:grad:norm@step"], 0.05),
    Case("mnist-cnn", 64, "all layers", ["*:activation:norm"], 0.25),
    Case("mnist-cnn", 64, "all layers", ["*:grad_output:sq_sum"], 0.25),
    Case("mnist-cnn", 64, "all layers", ["*:activation:mean"], 0.25),
    Case("mnist-cnn", 64, "all layers", ["*:activation:zero_fraction"], 0.25),
    Case("mnist-cnn", 64, "all three ReLUs", ["relu:grad_input:sq_sum"]),
    Case("mnist-cnn", 64, "all three ReLUs", ["relu:local_grad:sq_sum"]),
    Case("mnist-cnn", 64, "all four weights", ["*.weight:grad:norm@step"]),
    Case("mnist-cnn", 64, "both readings", ["relu:grad_input:sq_sum", "relu:local_grad:sq_sum"]),
    Case("mnist-cnn", 64, "updates", ["*.weight:update:norm"]),
    Case("mnist-cnn", 64, "all layers, histograms", ["*:activation:histogram"]),
    Case("mnist-cnn", 1, "all three ReLUs", ["relu:grad_input:sq_sum"]),
    Case("fashion-mlp", 32, "one scalar probe", ["relu:grad_input:sq_sum"]),
    Case("fashion-mlp", 32, "all layers", ["*:activation:norm"]),
)


def ratios(setup: Setup, probes: Sequence[str], seconds: float) -> list[float]:
    """What a probed step takes beside a bare one."""
    specs = [probe_of(probe) for probe in probes]
    with TemporaryDirectory() as folder, stepping(setup, "train") as steps:
        probed, instrument = probed_step(setup, steps, specs, TrialFolder(Path(folder)))
        measured = paired_ratios(setup.device, steps.bare, probed, steps.endless, seconds)
        instrument.trial_ends(Progress())
    return measured


def main() -> None:
    """Prints each figure with its bound and exits 1 if one does not hold."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=12.0)
    given = parser.parse_args()
    prepare_process(settings_for({}, {}))
    held = []
    print(f"torch {torch.__version__}, {given.device}, {torch.get_num_threads()} threads")
    for case in CASES:
        setup = setup_of(find_workload(case.workload), case.batch_size, given.device)
        # Longer where there is a bound to decide.
        seconds = given.seconds * (1 if case.most is None else BOUND_TIMES)
        bound = case.most if given.device == "cpu" else None
        measured = ratios(setup, case.probes, seconds)
        text, good = verdict(measured, -1, 1e9 if bound is None else bound)
        text = text.removesuffix(": ok") if bound is None else text
        held.append(good)
        limit = "" if bound is None else f" (at most {bound:+.0%})"
        where = f"{case.workload}, batch {case.batch_size}"
        print(f"{where}: {case.what}, {' and '.join(case.probes)}{limit}: {text}", flush=True)
    raise SystemExit(0 if all(held) else 1)


if __name__ == "__main__":
    main()
