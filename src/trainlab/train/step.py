"""One update, with the phases an instrument can tell apart. Trials of every kind run this code."""

from collections.abc import Callable

from torch import Tensor

from trainlab.train.moments import Moments
from trainlab.train.setup import Bench

Step = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]
"""Row numbers of a batch to its (loss, outputs, targets), the update made."""


def make_step(bench: Bench, moments: Moments) -> Step:
    """The update as a function of the batch's rows; everything it needs is looked up once, here."""
    model, optimizer, loss_of = bench.model, bench.optimizer, bench.workload.loss
    batches, prepare, autocast = bench.train_batches, bench.workload.prepare, bench.autocast
    resets_gradients = bench.settings.zero_grad
    phase_ends = moments.phase_ends

    def step(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        inputs, targets = batches.gather(rows)
        phase_ends("data")
        inputs, targets = batches.move(inputs, targets)
        phase_ends("transfer")
        inputs = prepare(inputs)
        phase_ends("data")
        if resets_gradients:
            optimizer.zero_grad()
        phase_ends("zero_grad")
        with autocast():
            outputs = model(inputs)
            phase_ends("forward")
            loss = loss_of(outputs, targets)
        phase_ends("loss")
        loss.backward()
        phase_ends("backward")
        optimizer.step()
        phase_ends("optimizer")
        return loss, outputs, targets

    return step


def make_test_step(
    bench: Bench, moments: Moments
) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]:
    """A batch as stored to its (loss, outputs, targets); nothing is updated."""
    model, loss_of = bench.model, bench.workload.loss
    prepare, autocast, phase_ends = bench.workload.prepare, bench.autocast, moments.phase_ends

    def step(stored: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        inputs = prepare(stored)
        phase_ends("data")
        with autocast():
            outputs = model(inputs)
            phase_ends("forward")
            loss = loss_of(outputs, targets)
        phase_ends("loss")
        return loss, outputs, targets

    return step
