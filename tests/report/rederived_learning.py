"""What learn trials show, computed again from their raw files."""

import math
from bisect import bisect_left
from functools import cache, lru_cache
from itertools import product

import numpy as np
from raw_run import Expected, Json, Pair, RawRun, Within, holm
from scipy import optimize, stats

from trainlab.analyse.findings.finding import Finding

SUBJECTS = ("test/accuracy", "test/loss", "train/loss")
LEVEL = 0.05


def effect(run: RawRun, found: Finding) -> Expected:
    """Paired by seed; decided with all other comparisons of the same metric."""
    return effects(run, found.subject)[found.cells[0], found.cells[1]]


@lru_cache
def effects(run: RawRun, metric: str) -> dict[Pair, Expected]:
    """One family."""
    margin = run.study["margins"].get(metric)
    sides = {pair: _paired(run, pair, metric) for pair in run.pairs}
    known = [pair for pair, (a, _) in sides.items() if len(a) > 1]
    different = dict(zip(known, holm([_p_different(*sides[p]) for p in known]), strict=True))
    same: dict[Pair, float] = {}
    if margin is not None:
        tested = holm([_p_equivalent(*sides[p], margin) for p in known])
        same = dict(zip(known, tested, strict=True))
    return {
        pair: _effect(
            run, pair, metric, sides[pair], different.get(pair), same.get(pair), len(known)
        )
        for pair in run.pairs
    }


def _paired(run: RawRun, pair: Pair, metric: str) -> tuple[np.ndarray, np.ndarray]:
    first, second = (run.values(cell, metric) for cell in pair)
    seeds = [
        seed
        for seed in sorted(first.keys() & second.keys())
        if math.isfinite(first[seed]) and math.isfinite(second[seed])
    ]
    return np.array([first[s] for s in seeds]), np.array([second[s] for s in seeds])


def _effect(
    run: RawRun,
    pair: Pair,
    metric: str,
    sides: tuple[np.ndarray, np.ndarray],
    p: float | None,
    p_same: float | None,
    family: int,
) -> Expected:
    a, b = sides
    first, second = (run.values(cell, metric) for cell in pair)
    margin, level = run.study["margins"].get(metric), LEVEL / family
    fewest = next(n for n in range(2, 60) if 2.0 ** (1 - n) <= level)
    numbers: Json = dict.fromkeys(("mean_a", "mean_b", "difference", "seeds_needed", "detectable"))
    interval, verdict = None, "cannot tell"
    if p is not None and p <= LEVEL:
        verdict = "different"
    elif p_same is not None and p_same <= LEVEL:
        verdict = "equivalent"
    if len(a):
        numbers |= {"mean_a": a.mean(), "mean_b": b.mean(), "difference": (b - a).mean()}
    if len(a) > 1:
        std = (b - a).std(ddof=1)
        low, high = stats.t.interval(0.95, len(a) - 1, (b - a).mean(), std / math.sqrt(len(a)))
        interval = (float(low), float(high))
        numbers["detectable"] = _detectable(len(a), level, fewest, std)
        if verdict == "cannot tell":
            numbers["seeds_needed"] = _seeds_needed((b - a).mean(), std, margin, level, fewest)
    numbers |= {
        "p": p,
        "family": family,
        "margin": margin,
        "fewest_seeds": fewest,
        "num_dropped": len(first.keys() ^ second.keys()),
        "num_diverged": len(first.keys() & second.keys()) - len(a),
    }
    return Expected(numbers, len(a), interval, verdict)


def _p_different(a: np.ndarray, b: np.ndarray) -> float:
    """The larger of the paired t test and the exact sign flip."""
    d = b - a
    flipped = np.abs(_patterns(len(d)) @ d)
    by_flip = float((flipped >= abs(d.sum()) - 1e-9 * np.abs(d).sum()).mean())
    return max(float(stats.ttest_rel(b, a).pvalue), by_flip)


def _p_equivalent(a: np.ndarray, b: np.ndarray, margin: float) -> float:
    """Two one-sided tests, each the larger of t and sign flip."""
    return max(_p_above(margin + (b - a)), _p_above(margin - (b - a)))


def _p_above(values: np.ndarray) -> float:
    by_t = float(stats.ttest_1samp(values, 0.0, alternative="greater").pvalue)
    flipped = _patterns(len(values)) @ values
    by_flip = float((flipped >= values.sum() - 1e-9 * np.abs(values).sum()).mean())
    return max(by_t, by_flip)


@lru_cache
def _patterns(size: int) -> np.ndarray:
    return np.array(list(product((1.0, -1.0), repeat=size)))


def _detectable(n: int, level: float, fewest: int, std: float) -> Within | None:
    """The difference found in 80 % of simulated studies."""
    if n < fewest:
        return None
    size = optimize.brentq(lambda effect: _power(effect, n, level) - 0.8, 0.05, 30.0)
    return Within(0.93 * size * std, 1.07 * size * std)


def _seeds_needed(
    difference: float, std: float, margin: float | None, level: float, fewest: int
) -> Within:
    """For the difference, or for its being within the margin, whichever takes fewer."""
    counts = [_seeds(abs(difference) / std, level, 0.8, fewest)]
    gap = (margin or 0.0) - abs(difference)
    if gap > 0:
        counts.append(_seeds(gap / std, 2 * level, 0.9, fewest - 1))
    return Within(math.floor(0.93 * min(counts)), math.ceil(1.07 * min(counts)))


def _seeds(effect: float, level: float, power: float, fewest: int) -> int:
    counts = range(fewest, 10_000)
    return counts[bisect_left(counts, power, key=lambda n: _power(effect, n, level))]


@cache
def _power(effect: float, n: int, level: float) -> float:
    """How often both tests reject; beyond 12 seeds the sign flip adds nothing to t."""
    if n > 12:
        beyond = stats.t.ppf(1 - level / 2, n - 1)
        return float(stats.nct.sf(beyond, n - 1, effect * math.sqrt(n)))
    draws = np.random.default_rng(5).standard_normal((1500, n)) + effect
    by_t = stats.ttest_1samp(draws, 0.0, axis=1).pvalue
    half = _patterns(n)[: 2 ** (n - 1)]
    by_flip = (np.abs(draws @ half.T) >= np.abs(draws.sum(axis=1))[:, None] - 1e-9).mean(axis=1)
    return float((np.maximum(by_t, by_flip) <= level).mean())


def diverged(run: RawRun, found: Finding) -> Expected:
    """Trials of a cell whose loss was not finite."""
    ended = run.learned(found.cells[0]).values()
    steps = [t["diverged_at_step"] for t in ended if t["state"] == "diverged"]
    numbers = {"num_diverged": len(steps), "median_step": np.median(steps)}
    return Expected(numbers, len(ended))


def time_to_target(run: RawRun, found: Finding) -> Expected:
    """The first epoch of each trial that met the target."""
    target = run.study["targets"][found.subject]
    ended = [t for t in run.learned(found.cells[0]).values() if t["state"] in ("done", "diverged")]
    sign = -1 if found.subject.endswith("loss") else 1
    firsts = []
    for trial in ended:
        lines = [one for one in run.lines(trial, "curve.jsonl") if one["kind"] == "epoch"]
        met = [one for one in lines if sign * one[found.subject] >= sign * target]
        firsts += met[:1]
    numbers: Json = {"target": target, "num_reached": len(firsts)}
    for key, name in (("median_epoch", "epoch"), ("median_s", "time_s")):
        numbers[key] = np.median([one[name] for one in firsts]) if firsts else None
    return Expected(numbers, len(ended))


def unfinished(run: RawRun, found: Finding) -> Expected:
    """How all trials ended."""
    states = [trial["state"] for trial in run.trials]
    done = states.count("done") + states.count("diverged")
    numbers = {
        "num_done": done,
        "num_planned": len(states),
        "num_failed": states.count("failed"),
        "num_interrupted": states.count("interrupted"),
        "num_pending": states.count("pending") + states.count("running"),
    }
    return Expected(numbers, done)
