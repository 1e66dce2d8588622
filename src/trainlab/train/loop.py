"""The training loop, as an instrument sees it:

    trial_begins(bench)                          model, data and optimizer stand ready
    for each epoch:
        epoch_begins(epoch)
        for each batch of the shuffled training set:
            step_begins(step)
            take the batch's rows                phase_ends("data")
            move them to the device              phase_ends("transfer")
            scale the pixels                     phase_ends("data")
            reset the gradients                  phase_ends("zero_grad")
            run the model                        phase_ends("forward")
            compute the loss                     phase_ends("loss")
            differentiate                        phase_ends("backward")
            update the weights                   phase_ends("optimizer")
            step_ends(step)
            every few steps: point_logged(point) means since the last point
        test_begins(epoch)                       the model is about to run in eval mode
        run the whole test set
        test_ends(epoch)
        change the learning rate
        epoch_ends(point)                        means over the epoch and over the test set
    trial_ends(progress)                         done, diverged, interrupted or failed

The phases are in step.py. Instruments watch; the losses are the same with all of them and with none.
"""

import math
import time
from collections.abc import Callable
from typing import Literal

import torch

from trainlab.machine.device import synchronize
from trainlab.train.meter import Meter
from trainlab.train.moments import Moments, Point, Progress
from trainlab.train.optimizers import make_schedule
from trainlab.train.seeds import data_order, drawing_from
from trainlab.train.setup import Bench
from trainlab.train.step import make_step, make_test_step

Clock = Callable[[], float]


def train(
    bench: Bench, moments: Moments, progress: Progress, clock: Clock = time.perf_counter
) -> None:
    """Trains to the end or until the loss is not finite; `progress` holds what happened, always."""
    # Before the first update: torch counts them.
    schedule = make_schedule(bench.settings, bench.optimizer)
    moments.trial_begins(bench)
    with drawing_from(bench.trial.seed, "dropout", bench.device):
        for epoch in range(1, bench.settings.epochs + 1):
            moments.epoch_begins(epoch)
            _one_epoch(bench, moments, progress, epoch, clock)
            if progress.state == "diverged":
                return
            if schedule is not None:
                schedule.step()
    progress.state = "done"


def _one_epoch(
    bench: Bench, moments: Moments, progress: Progress, epoch: int, clock: Clock
) -> None:
    """Training, test, records; times are of the first two, device synchronised around them."""
    before_s = progress.total_s
    synchronize(bench.device)
    start = clock()
    means = _train_epoch(bench, moments, progress, epoch, lambda: before_s + clock() - start)
    synchronize(bench.device)
    train_s = clock() - start
    progress.total_s = before_s + train_s
    if progress.state == "diverged":
        return
    moments.test_begins(epoch)
    start = clock()
    tested = test(bench)
    synchronize(bench.device)
    test_s = clock() - start
    moments.test_ends(epoch)
    progress.total_s += test_s
    metrics = {f"train/{name}": value for name, value in means.items()}
    metrics |= {f"test/{name}": value for name, value in tested.items()}
    metrics["lr"] = learning_rate(bench)
    progress.epochs_done, progress.final = epoch, metrics
    if not math.isfinite(tested["loss"]):  # the last update of the epoch broke it
        progress.state, progress.diverged_at_step = "diverged", progress.steps_done
    times_s = {"train_s": train_s, "test_s": test_s, "time_s": progress.total_s}
    moments.epoch_ends(_point("epoch", bench, progress, epoch, metrics, times_s))


def _train_epoch(
    bench: Bench, moments: Moments, progress: Progress, epoch: int, elapsed_s: Clock
) -> dict[str, float]:
    """All updates of one epoch; returns the epoch's sample-weighted means."""
    bench.model.train()
    batches, every = bench.train_batches, bench.log_every_steps
    step, meter = make_step(bench, moments), Meter(bench.workload.metrics, bench.device)
    sums: dict[str, float] = {}
    order = data_order(bench.trial.seed, epoch, batches.num_samples)
    first = progress.steps_done + 1
    for number, rows in enumerate(batches.rows(order), start=first):
        moments.step_begins(number)
        meter.add(*step(rows))
        moments.step_ends(number)
        progress.steps_done = number
        if (number - first + 1) % every and number - first + 1 != len(batches):
            continue
        means = meter.means()
        progress.total_s = elapsed_s()
        for name, value in means.items():
            sums[name] = sums.get(name, 0.0) + value * meter.num_samples
        metrics = {f"train/{name}": value for name, value in means.items()}
        metrics["lr"] = learning_rate(bench)
        times_s = {"time_s": progress.total_s}
        moments.point_logged(_point("step", bench, progress, epoch, metrics, times_s))
        if not math.isfinite(means["loss"]) and (bad := meter.first_bad_step()) is not None:
            progress.state = "diverged"
            progress.diverged_at_step = number - meter.num_steps + bad
            break
        meter.reset()
    return {name: total / batches.num_samples for name, total in sums.items()}


def test(bench: Bench) -> dict[str, float]:
    """Means over the whole test set, in eval mode."""
    bench.model.eval()
    step, meter = make_test_step(bench, Moments([])), Meter(bench.workload.metrics, bench.device)
    # Not inference_mode: a model may keep a tensor made here, a mask say, for its next update.
    with torch.no_grad():
        for stored, targets in bench.test_batches.in_order():
            meter.add(*step(stored, targets))
        return meter.means()


def learning_rate(bench: Bench) -> float:
    """The current one."""
    return float(bench.optimizer.param_groups[0]["lr"])


def _point(
    kind: Literal["step", "epoch"],
    bench: Bench,
    progress: Progress,
    epoch: int,
    metrics: dict[str, float],
    times_s: dict[str, float],
) -> Point:
    batches = bench.train_batches
    steps_in_epoch = progress.steps_done - (epoch - 1) * len(batches)
    samples_in_epoch = min(steps_in_epoch * batches.batch_size, batches.num_samples)
    return Point(
        kind=kind,
        epoch=epoch,
        step=progress.steps_done,
        samples=(epoch - 1) * batches.num_samples + samples_in_epoch,
        metrics=metrics,
        times_s=times_s,
    )
