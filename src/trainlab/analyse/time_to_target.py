"""How long training takes to get good enough: epochs and seconds to a target."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from trainlab.spec.target import Target


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
    """Among the trials that reached it, as is the next: too optimistic where some never did."""
    median_elapsed_s: float | None


def first_reached(epochs: Sequence[EpochValue], target: Target) -> EpochValue | None:
    """The first epoch that meets the target, even if a later one falls back; `None`: never."""
    ordered = sorted(epochs, key=lambda epoch: epoch.epoch)
    return next((epoch for epoch in ordered if target.is_met_by(epoch.value)), None)


def time_to_target(trials: Sequence[Sequence[EpochValue]], target: Target) -> TimeToTarget:
    """Over the trials of one cell; a trial without epochs never reached it."""
    first_epochs = (first_reached(epochs, target) for epochs in trials)
    reached = [epoch for epoch in first_epochs if epoch is not None]
    return TimeToTarget(
        num_trials=len(trials),
        num_reached=len(reached),
        median_epoch=statistics.median(e.epoch for e in reached) if reached else None,
        median_elapsed_s=statistics.median(e.elapsed_s for e in reached) if reached else None,
    )
