"""A look at a model and its loss before several processes train it, on a copy: nothing is changed."""

import copy
import math

import torch
from torch import Tensor, nn

from trainlab.errors import WorkloadError
from trainlab.train.setup import Setup

NUM_SAMPLES = 48
STIRRED = 0.05
"""How far weights are moved, as a standard deviation."""
TOLERANCE = 1e-3
"""Relative, beyond rounding of a mean of so few."""


def check_mean_of_parts(setup: Setup) -> None:
    """WorkloadError where the loss of a batch is not the mean over its samples: the mean of what several
    processes find in their shares would be another loss. A model that cannot be copied is not looked at."""
    try:
        model = copy.deepcopy(setup.model).eval()
    except Exception:  # noqa: BLE001  the model's own
        return
    inputs, targets = _samples(setup)
    devices = [setup.device] if setup.device.type == "cuda" else []
    with torch.no_grad(), torch.random.fork_rng(devices=devices):
        _stir(model)
        whole = _loss(setup, model, inputs, targets)
        means = [_mean_of_parts(setup, model, inputs, targets, size) for size in (1, 2, 5)]
    for mean in filter(math.isfinite, means):
        if math.isfinite(whole) and not math.isclose(whole, mean, rel_tol=TOLERANCE, abs_tol=1e-6):
            raise WorkloadError(
                f"loss: gave {whole:.6g} for a batch and {mean:.6g} as the mean of its parts (it, or the "
                "model, mixes samples), so several processes would train something else; use processes=1"
            )


def _stir(model: nn.Module) -> None:
    """Moves the weights a little: where an output layer starts at zero, all samples have the same loss."""
    draw = torch.Generator().manual_seed(0)
    for one in model.parameters():
        if one.is_floating_point():
            noise = torch.randn(one.shape, generator=draw, dtype=torch.float32)
            one.add_(STIRRED * noise.to(one.device, one.dtype))


def _mean_of_parts(
    setup: Setup, model: nn.Module, inputs: Tensor, targets: Tensor, size: int
) -> float:
    """NaN where a model takes no batch of that size."""
    total = 0.0
    for part, told in zip(inputs.split(size), targets.split(size), strict=True):
        try:
            total += len(told) * _loss(setup, model, part, told)
        except Exception:  # noqa: BLE001  the model's own
            return math.nan
    return total / len(targets)


def _samples(setup: Setup) -> tuple[Tensor, Tensor]:
    """From all over the training set, which may be sorted."""
    batches = setup.split_batches
    rows = torch.linspace(0, batches.num_samples - 1, min(NUM_SAMPLES, batches.num_samples))
    return batches.samples(rows.long())


def _loss(setup: Setup, model: nn.Module, inputs: Tensor, targets: Tensor) -> float:
    with setup.autocast():
        # A copy: the inputs may be changed in place.
        return float(setup.loss(model(setup.workload.prepare(inputs.clone())), targets))
