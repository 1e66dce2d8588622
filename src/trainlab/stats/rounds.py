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
    ratios = [_median_difference(one, base) for one in logs]
    by_round: dict[int, list[float]] = {}
    for one, ratio in zip(logs, ratios, strict=True):
        if ratio is not None:
            for number, value in one.items():
                by_round.setdefault(number, []).append(value - ratio)
    rounds = {number: statistics.median(values) for number, values in by_round.items()}
    middle = statistics.median(rounds.values())
    return [
        _lower_quartile(one.values())
        if ratio is None
        else middle + _lower_quartile(value - rounds[number] for number, value in one.items())
        for one, ratio in zip(logs, ratios, strict=True)
    ]


def _lower_quartile(values: Iterable[float]) -> float:
    return float(np.quantile(list(values), 0.25))


def _median_difference(one: Mapping[int, float], base: Mapping[int, float]) -> float | None:
    shared = [value - base[number] for number, value in one.items() if number in base]
    return statistics.median(shared) if shared else None
