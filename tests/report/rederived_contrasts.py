"""Contrasts of cells over seeds, computed again: one difference after the other, with chance of its own."""

import math
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np
from scipy import stats

Row = dict[str, float]
"""What each cell of a contrast counts for."""
Table = dict[str, dict[int, Any]]
"""Cell and seed to a value, or to an array of one value per simulated study; diverged runs are left out."""

DRAWS = 6000
TOLERANCE = 0.06
"""Between two simulations of a critical score, in scores."""


def spread(table: Table, row: Row) -> tuple[int, Any, Any]:
    """Seeds with all cells of the row, its mean over them, and its variance per unit of a cell's."""
    seeds = sorted(set.intersection(*(set(table[cell]) for cell in row)))
    by_seed = [sum(w * table[cell][seed] for cell, w in row.items()) for seed in seeds]
    if len(seeds) < 2:
        return len(seeds), None, None
    mean = sum(by_seed) / len(seeds)
    variance = sum((value - mean) ** 2 for value in by_seed) / (len(seeds) - 1)
    return len(seeds), mean, variance / sum(w**2 for w in row.values())


def estimated(table: Table, row: Row, resolution: float = 0.0) -> tuple[Any, Any, Any, int]:
    """Value, error, degrees of freedom and seeds of one contrast."""
    cells = list(table)
    n, value, own = spread(table, row)
    freedom = n - 1
    if len(cells) == 2:
        alone = [spread(table, {cell: 1.0})[2] for cell in cells]
        typical, others = sum(alone) / 2, freedom
    else:
        between = {}
        for pair in combinations(cells, 2):
            count, _, variance = spread(table, {pair[0]: -1.0, pair[1]: 1.0})
            if count >= 2:
                between[frozenset(pair)] = variance
        typical = np.median(np.array(list(between.values())), axis=0)
        seeds = {seed for cell in cells for seed in table[cell]}
        known = sum(len(table[cell]) for cell in cells)
        others = max(1, known - len(cells) - len(seeds) + 1 - freedom)
        # Half the sum of two cells' variances is that of the pair: solved for each cell.
        k = len(cells)
        mean = {c: np.mean([v for pair, v in between.items() if c in pair], axis=0) for c in cells}
        total = k * np.mean([mean[c] for c in cells], axis=0)
        excess = {c: (2 * mean[c] - total / (k - 1)) * (k - 1) / (k - 2) for c in cells}
        of_cell = {c: np.maximum(0, value) for c, value in excess.items()}
        scale = sum(w**2 for w in row.values())
        own = np.maximum(own, sum(w**2 / scale * of_cell[c] for c, w in row.items()))
    ratio = own / typical
    above = stats.f.sf(ratio, freedom, others)
    below = stats.f.cdf(ratio, freedom, others) + 2.0 ** (1 - n)
    borrowed = others * np.minimum(1, np.minimum(above, below) / 0.3)
    variance = np.maximum(own, (borrowed * typical + freedom * own) / (borrowed + freedom))
    variance = np.maximum(variance, (resolution / 2) ** 2)
    scale = sum(w**2 for w in row.values()) / n
    return value, np.sqrt(variance * scale), freedom + borrowed, n


@lru_cache
def limits(
    present: tuple[tuple[str, tuple[int, ...]], ...],
    rows: tuple[tuple[tuple[str, float], ...], ...],
) -> tuple[float, float, Any]:
    """Scores exceeded in 5% of studies without differences: on either side, on one; and all of them."""
    rng = np.random.default_rng(99)
    table: Table = {}
    for cell, seeds in present:
        std = np.exp(0.3 * rng.standard_normal(DRAWS))
        table[cell] = {seed: std * rng.standard_normal(DRAWS) for seed in seeds}
    scores = []
    for row in rows:
        if spread(table, dict(row))[0] >= 2:
            value, error, freedom, _ = estimated(table, dict(row))
            scores.append(stats.norm.ppf(stats.t.cdf(value / error, freedom)))
    drawn = np.array(scores)
    either, above = np.abs(drawn).max(axis=0), drawn.max(axis=0)
    return float(np.quantile(either, 0.95)), float(np.quantile(above, 0.95)), np.sort(either)


def family(table: Table, rows: list[Row], resolution: float = 0.0) -> list[dict[str, Any] | None]:
    """Each contrast with its interval's half width, at both ends of what simulation leaves open."""
    present = tuple((cell, tuple(sorted(by_seed))) for cell, by_seed in table.items())
    both, one, drawn = limits(present, tuple(tuple(row.items()) for row in rows))
    found: list[dict[str, Any] | None] = []
    for row in rows:
        if spread(table, row)[0] < 2:
            found.append(None)
            continue
        value, error, freedom, n = estimated(table, row, resolution)

        def reach(score: float, error: float = error, freedom: float = freedom) -> float:
            return float(stats.t.ppf(stats.norm.cdf(score), freedom) * error)

        score = abs(stats.norm.ppf(stats.t.cdf(-abs(value) / error, freedom)))
        made = {"value": float(value), "n": n, "p": float((drawn >= score).mean())}
        made["std"] = float(error / math.sqrt(sum(w**2 for w in row.values()) / n))
        made["widths"] = reach(both - TOLERANCE), reach(both + TOLERANCE)
        made["widths_90"] = reach(one - TOLERANCE), reach(one + TOLERANCE)
        found.append(made)
    return found
