"""The level of each of several series that were measured in the same rounds.

    log(time of a series in a round) = its level + the round + noise

What a round does to all series is estimated by the median over them, and each level by the lower quartile
over rounds of what is left: what comes between only ever makes a turn longer. On two cores and on a GPU's
host the levels of fresh processes lay half as far apart as with the median.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

import numpy as np


def levels(times: Sequence[Mapping[int, float]]) -> list[float]:
    """The log level of each series; `times` maps rounds to times. The differences of levels are the log
    ratios. One that shares no round with the series that has most rounds stands by itself."""
    logs = [{number: math.log(time) for number, time in one.items()} for one in times]
    base = max(logs, key=len)
    near = [_median_difference(one, base) for one in logs]
    # Aligned with one series alone, the others would seem faster than it, by up to a tenth of its noise.
    means = {number: statistics.fmean(values) for number, values in _by_round(logs, near).items()}
    ratios = [
        None if ratio is None else _median_difference(one, means)
        for one, ratio in zip(logs, near, strict=True)
    ]
    rounds = {n: statistics.median(values) for n, values in _by_round(logs, ratios).items()}
    middle = statistics.median(rounds.values())
    return [
        _lower_quartile(one.values())
        if ratio is None
        else middle + _lower_quartile(value - rounds[number] for number, value in one.items())
        for one, ratio in zip(logs, ratios, strict=True)
    ]


def _by_round(
    logs: Sequence[Mapping[int, float]], ratios: Sequence[float | None]
) -> dict[int, list[float]]:
    """The series in each round, without what they differ by; those of which that is not known left out."""
    found: dict[int, list[float]] = {}
    for one, ratio in zip(logs, ratios, strict=True):
        if ratio is not None:
            for number, value in one.items():
                found.setdefault(number, []).append(value - ratio)
    return found


def _lower_quartile(values: Iterable[float]) -> float:
    return float(np.quantile(list(values), 0.25))


def _median_difference(one: Mapping[int, float], base: Mapping[int, float]) -> float | None:
    shared = [value - base[number] for number, value in one.items() if number in base]
    return statistics.median(shared) if shared else None
