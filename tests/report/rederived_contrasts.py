"""Contrasts of cells over seeds, computed again: one difference after the other, with chance of its own."""

import math
from functools import lru_cache
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


def sorted_arrays(values: list[Any]) -> Any:
    """From small to large, study by study."""
    return np.sort(np.array(values), axis=0)


def estimated(table: Table, row: Row, resolution: float = 0.0) -> tuple[Any, Any, Any, int]:
    """Value, error, degrees of freedom and seeds of one contrast."""
    n, value, own = spread(table, row)
    freedom = max(1, n - 1)
    # What rounding leaves of equal differences is no variance.
    own = np.where(np.asarray(own) < 1e-24, 0.0, own)
    scale = sum(w**2 for w in row.values())
    part = {cell: row.get(cell, 0.0) ** 2 / scale for cell in table}
    alone = {cell: spread(table, {cell: 1.0})[2] for cell in table if part[cell]}
    apart = sum(part[cell] * variance for cell, variance in alone.items())
    squares = sum((part[cell] * variance) ** 2 for cell, variance in alone.items())
    # Variances that tell of the noise elsewhere, and how much each may count.
    elsewhere = [(apart, freedom * (apart**2 / np.maximum(squares, 1e-300) - 1))]
    for cell in table:
        beside = [spread(table, {cell: 1.0, other: -1.0}) for other in table if other != cell]
        usable = sorted_arrays([variance for count, _, variance in beside if count >= 2])
        its_freedom = max(1, len(table[cell]) - 1)
        if len(usable) and part[cell] < 0.5:
            place = (len(usable) - 1) // 3
            quantile = (place + 0.7) / (len(usable) + 0.4)
            usual = stats.chi2.ppf(quantile, its_freedom) / its_freedom
            elsewhere.append((usable[place] / usual, (1 - 2 * part[cell]) * its_freedom))
    full, none = (math.log(stats.f.isf(chance, freedom, freedom)) for chance in (0.25, 0.15))
    total, borrowed = freedom * own, 0.0
    for variance, most in elsewhere:
        with np.errstate(all="ignore"):
            away = np.abs(np.log(np.divide(variance, own)))
        agrees = np.clip((none - away) / (none - full), 0, 1)
        counts = most * np.where(own == 0, min(1, 0.5**freedom / 0.25), agrees)
        total, borrowed = total + counts * variance, borrowed + counts
    variance = np.maximum(own, total / (freedom + borrowed))
    variance = np.maximum(variance, (resolution / 2) ** 2)
    return value, np.sqrt(variance * scale / n), freedom + borrowed, n


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
