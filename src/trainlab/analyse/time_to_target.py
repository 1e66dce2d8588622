"""How long training takes to get good enough: epochs and seconds to a target."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from trainlab.spec.target import Target


@dataclass(frozen=True)
class Point:
    """What one epoch ended with."""

    epoch: int
    elapsed_s: float
    value: float


@dataclass(frozen=True)
class TimeToQuality:
    """How the trials of one cell got to the target."""

    target: Target
    num_trials: int
    num_reached: int
    median_epoch: float | None
    """Among those that reached it, as is the next: too rosy where some never did."""
    median_elapsed_s: float | None
    half_epoch: int | None
    """By then half of all trials were there; `None` if fewer ever were."""
    half_elapsed_s: float | None


def first_reached(points: Sequence[Point], target: Target) -> Point | None:
    """The first epoch that meets the target, even if a later one falls back; `None`: never."""
    ordered = sorted(points, key=lambda point: point.epoch)
    return next((point for point in ordered if target.is_met_by(point.value)), None)


def time_to_quality(trials: Sequence[Sequence[Point]], target: Target) -> TimeToQuality:
    """Over the trials of one cell; a trial without points never reached it."""
    found = [first_reached(points, target) for points in trials]
    reached = [point for point in found if point is not None]
    epochs = sorted(point.epoch for point in reached)
    seconds = sorted(point.elapsed_s for point in reached)
    half = math.ceil(len(trials) / 2)
    there = bool(reached) and len(reached) >= half
    return TimeToQuality(
        target=target,
        num_trials=len(trials),
        num_reached=len(reached),
        median_epoch=statistics.median(epochs) if reached else None,
        median_elapsed_s=statistics.median(seconds) if reached else None,
        half_epoch=epochs[half - 1] if there else None,
        half_elapsed_s=seconds[half - 1] if there else None,
    )
