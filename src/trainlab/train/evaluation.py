"""Evaluation: the whole test set through a model in eval mode."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from trainlab.train.meter import Means, Meter
from trainlab.train.moments import Moments
from trainlab.train.seeds import seeded
from trainlab.train.setup import Setup

Batch = tuple[Tensor, Tensor]
"""Stored inputs and targets."""
Outcome = tuple[Tensor, Tensor, Tensor]
"""Loss, outputs and targets of a step."""
CallModel = Callable[[Any], Any]
"""The model, or a way to call it."""


class Evaluation:
    """The test of one trial, its step made ready. `call_model`: in place of calling the model itself."""

    def __init__(self, setup: Setup, call_model: CallModel | None = None) -> None:
        self._setup = setup
        self._step = make_inference_step(setup, Moments([]), call_model)
        self._meter = Meter(setup.workload.metrics, setup.device)

    def run(self, epoch: int) -> Means:
        """Means over the test set; what it draws derives from (seed, epoch)."""
        setup, meter = self._setup, self._meter
        setup.model.eval()
        meter.reset()
        # Not inference_mode: a model may keep a tensor made here, a mask say, for its next update.
        with torch.no_grad(), seeded(setup.trial.seed, "test", epoch, setup.device):
            for inputs, targets in setup.test_batches.in_order():
                # A copy of what the model could change in place: the batch is a view of the stored set.
                inputs = inputs.clone() if inputs.is_floating_point() else inputs
                meter.add(*self._step((inputs, targets)))
            return meter.means()


def make_inference_step(
    setup: Setup, moments: Moments, call_model: CallModel | None = None
) -> Callable[[Batch], Outcome]:
    """A forward pass as a function of a batch as stored; nothing is updated."""
    model, loss_of = call_model or setup.model, setup.workload.loss
    prepare, autocast, phase_ends = setup.workload.prepare, setup.autocast, moments.phase_ends
    batch_ready, forward_begins = moments.batch_ready, moments.forward_begins

    def step(batch: Batch) -> Outcome:
        stored, targets = batch
        inputs = prepare(stored)
        phase_ends("prepare")
        batch_ready(inputs, targets)
        forward_begins()
        with autocast():
            outputs = model(inputs)
            phase_ends("forward")
            loss = loss_of(outputs, targets)
        phase_ends("loss")
        return loss, outputs, targets

    return step
