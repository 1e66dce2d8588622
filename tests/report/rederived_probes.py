"""What probes saw, computed again from their raw files."""

import math

import numpy as np
from raw_run import Expected, Json, RawRun
from scipy import optimize, stats

from trainlab.analysis.finding import Finding

Series = list[Json]
"""One trial's lines of one probe at one target, in order."""


def _series(run: RawRun, found: Finding, target: str, probe: str) -> list[Series]:
    """Of every trial of the cell that was watched there."""
    all_lines = [run.lines(t, "probes.jsonl") for t in run.learned(found.cells[0]).values()]
    mine = [
        [x for x in lines if (x["probe"], x["layer"]) == (probe, target)] for lines in all_lines
    ]
    return [lines for lines in mine if lines]


def _own(run: RawRun, found: Finding) -> list[Series]:
    return _series(run, found, found.subject, str(found.numbers["probe"]))


def _norm(line: Json) -> float:
    """Of one tensor, root mean square over those of the period."""
    squared = line["value"] if line["reducer"] == "sq_sum" else line["value"] ** 2
    return math.sqrt(squared / line["fired"])


def _element(line: Json) -> float:
    """Root mean square of the elements."""
    squared = line["value"] if line["reducer"] == "sq_sum" else line["value"] ** 2
    return math.sqrt(squared / line["count"])


def _mean(values: list[float]) -> tuple[float, tuple[float, float] | None]:
    if len(values) == 1:
        return values[0], None
    low, high = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))
    return float(np.mean(values)), (float(low), float(high))


def _geometric(values: list[float]) -> tuple[float, tuple[float, float] | None]:
    value, ends = _mean([math.log(one) for one in values])
    return math.exp(value), ends and (math.exp(ends[0]), math.exp(ends[1]))


def gradient(run: RawRun, found: Finding) -> Expected:
    """Against the last layer of the same probe."""
    probe, other = str(found.numbers["probe"]), str(found.numbers["compared_with"])
    pairs = zip(_own(run, found), _series(run, found, other, probe), strict=True)
    every = [_element(a[-1]) / _element(b[-1]) for a, b in pairs]
    ratios = [one for one in every if one]
    ratio, interval = _geometric(ratios)
    numbers = {"probe": probe, "ratio": ratio, "compared_with": other}
    numbers["num_zero"] = len(every) - len(ratios)
    return Expected(numbers, len(ratios), interval)


def growing(run: RawRun, found: Finding) -> Expected:
    """Against its own first period."""
    own = _own(run, found)
    ended = [(x[0], x[-1]) for x in own if "value" in x[0] and "value" in x[-1]]
    ratios = [_norm(last) / _norm(first) for first, last in ended]
    ratio, interval = _geometric(ratios)
    numbers = {"probe": found.numbers["probe"], "ratio": ratio, "num_zero": 0}
    return Expected(numbers, len(ratios), interval)


def broken(run: RawRun, found: Finding) -> Expected:
    """Not finite at all."""
    bad = [[x["step"] for x in lines if "not_finite" in x] for lines in _own(run, found)]
    firsts = [steps[0] for steps in bad if steps]
    numbers = {"probe": found.numbers["probe"], "num_not_finite": len(firsts)}
    numbers["median_step"] = np.median(firsts)
    return Expected(numbers, len(run.learned(found.cells[0])))


def _steps(line: Json) -> np.ndarray:
    return np.arange(line["step"] - line["num_steps"], line["step"]) + 1.0


def _power(lines: Series) -> float:
    """Whose root mean squares over the periods lie nearest to the norms, but for a factor."""
    norms = np.log([_norm(line) for line in lines])

    def off(power: float) -> float:
        means = [np.log(np.mean(_steps(line) ** (2 * power))) / 2 for line in lines]
        return float(np.var(norms - means))

    near = {"method": "bounded", "options": {"xatol": 1e-9}}
    return float(optimize.minimize_scalar(off, bounds=(0.01, 40), **near).x)


def accumulation(run: RawRun, found: Finding) -> Expected:
    """By least squares, of each trial."""
    own = _own(run, found)
    slopes = [_power(lines) for lines in own]
    times, _ = _geometric([_norm(lines[-1]) / _norm(lines[0]) for lines in own])
    exponent, interval = _mean(slopes)
    first, last = (np.mean(_steps(own[0][end])) for end in (0, -1))
    numbers = {"probe": found.numbers["probe"], "exponent": exponent, "times": times}
    return Expected(numbers | {"first_step": first, "last_step": last}, len(slopes), interval)


def dead_units(run: RawRun, found: Finding) -> Expected:
    """The share in the last period."""
    last = [lines[-1] for lines in _own(run, found)]
    share, interval = _mean([x["value"] for x in last])
    steps = _steps(last[0])
    numbers = {"probe": found.numbers["probe"], "share": share, "epoch": last[0]["epoch"]}
    numbers |= {"every": last[0]["every"], "first_step": steps[0], "last_step": steps[-1]}
    return Expected(numbers, len(last), interval)


def update_ratio(run: RawRun, found: Finding) -> Expected:
    """The norm of one update over that of the weight, in the last period."""
    probe = str(found.numbers["probe"])
    weights = _series(run, found, found.subject, probe.replace(":update:", ":weight:"))
    ratios = [_norm(a[-1]) / _norm(b[-1]) for a, b in zip(_own(run, found), weights, strict=True)]
    ratio, interval = _geometric(ratios)
    numbers = {"probe": probe, "ratio": ratio, "num_zero": 0}
    return Expected(numbers | {"healthy_low": 1e-4, "healthy_high": 1e-2}, len(ratios), interval)
