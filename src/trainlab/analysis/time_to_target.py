"""How long training takes to get good enough: epochs and seconds to a target."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trainlab.spec.study import Target
from trainlab.stats.ranks import censored_median


@dataclass(frozen=True)
class EpochValue:
    """A metric at the end of one epoch, and the seconds of training and testing so far."""

    epoch: int
    elapsed_s: float
    value: float


@dataclass(frozen=True)
class TimeToTarget:
    """When the trials of one cell reached the target."""

    num_trials: int
    num_reached: int
    median_epoch: float | None
    """A trial that never reached it counts as later than all others; None where that is the median trial.
    Likewise the next."""
    median_elapsed_s: float | None
    epochs: tuple[float, ...] = ()
    """Of every trial; infinite where it never reached the target."""


def first_reached(epochs: Sequence[EpochValue], target: Target) -> EpochValue | None:
    """The first epoch that meets the target, even if a later one falls back; `None`: never."""
    ordered = sorted(epochs, key=lambda epoch: epoch.epoch)
    return next((epoch for epoch in ordered if target.is_met_by(epoch.value)), None)


def time_to_target(trials: Sequence[Sequence[EpochValue]], target: Target) -> TimeToTarget:
    """Over the trials of one cell; a trial without epochs never reached it."""
    reached = [first_reached(epochs, target) for epochs in trials]
    epochs = tuple(math.inf if one is None else float(one.epoch) for one in reached)
    seconds = [math.inf if one is None else one.elapsed_s for one in reached]
    return TimeToTarget(
        num_trials=len(trials),
        num_reached=sum(one is not None for one in reached),
        median_epoch=censored_median(epochs) if epochs else None,
        median_elapsed_s=censored_median(seconds) if seconds else None,
        epochs=epochs,
    )
