"""Two cells over the same seeds: different, equivalent, or cannot tell.

"Different" asks that the paired t test and the exact sign flip agree (`paired`), after Holm over the
family; "equivalent", two one-sided tests of the same kind against a margin stated beforehand.

Measured on 10,000 simulated studies each (`benchmarks.verdicts`): where nothing differs, "different"
comes up in at most 5 % of them, within the error of so many, from 3 to 16 seeds, after Holm, under
normal, skewed, heavy-tailed, two-moded and rounded noise; where the difference is the margin,
"equivalent" likewise. The limit: noise that is skewed in one cell only, about a mean that is the same.
There each is wrong in 6 to 21 % of studies, and in 19 to 59 % if one run in ten of that cell fails badly.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

import numpy as np

from trainlab.analyse.paired import fewest_pairs, p_different, p_equivalent
from trainlab.analyse.power import detectable, seeds_for
from trainlab.analyse.statistics import Mean, mean_of, pair
from trainlab.errors import SpecError

Verdict = Literal["different", "equivalent", "cannot tell"]

LEVEL = 0.05
"""The chance, over a whole family, of one or more wrong "different"; likewise for "equivalent"."""


@dataclass(frozen=True)
class Comparison:
    """What `b` has more than `a`, and what may be said about it."""

    n: int
    """Pairs compared."""
    num_dropped: int
    """Seeds that only one of the cells has."""
    num_diverged: int
    """Seeds left out because a value was not finite."""
    mean_a: float | None
    mean_b: float | None
    difference: Mean | None
    p: float | None
    """`None` below two pairs."""
    margin: float | None
    """Differences smaller than this do not matter; `None`: not stated, so never equivalent."""
    p_equivalent: float | None
    family: int = 1
    """Comparisons decided together."""
    p_holm: float | None = None
    p_equivalent_holm: float | None = None
    verdict: Verdict = "cannot tell"
    fewest_seeds: int | None = None
    """Fewer pairs never reach the level in this family, whatever the data."""
    seeds_needed: int | None = None
    """Estimated to settle it with power 0.8 if the observed effect is the true one; `None`: settled,
    or cannot be known."""
    detectable: float | None = None
    """The smallest difference so many pairs find with power 0.8, at the observed spread."""


def compare(
    a: Mapping[int, float], b: Mapping[int, float], margin: float | None = None
) -> Comparison:
    """Values by seed; decided as a family of its own. SpecError if the margin is not positive."""
    return decide([undecided(a, b, margin)])[0]


def undecided(
    a: Mapping[int, float], b: Mapping[int, float], margin: float | None = None
) -> Comparison:
    """The same, to be decided with others as one family."""
    check_margin(margin)
    pairs = pair(a, b)
    differences, known = np.array(pairs.differences), len(pairs.a) > 1
    return Comparison(
        n=len(pairs.a),
        num_dropped=pairs.num_dropped,
        num_diverged=pairs.num_diverged,
        mean_a=fmean(pairs.a) if pairs.a else None,
        mean_b=fmean(pairs.b) if pairs.b else None,
        difference=mean_of(pairs.differences),
        p=float(p_different(differences)) if known else None,
        margin=margin,
        p_equivalent=float(p_equivalent(differences, margin)) if known and margin else None,
    )


def decide(comparisons: Sequence[Comparison], level: float = LEVEL) -> tuple[Comparison, ...]:
    """The same comparisons as one family, each with its verdict."""
    different = holm([c.p for c in comparisons])
    equivalent = holm([c.p_equivalent for c in comparisons])
    family = max(1, sum(c.p is not None for c in comparisons))
    decided = (
        replace(
            comparison,
            family=family,
            p_holm=p,
            p_equivalent_holm=p_same,
            verdict=verdict_of(p, p_same, level),
        )
        for comparison, p, p_same in zip(comparisons, different, equivalent, strict=True)
    )
    return tuple(_with_seeds(comparison, level / family) for comparison in decided)


def holm(values: Sequence[float | None]) -> list[float | None]:
    """Adjusted p, in the given order; what has no p is no part of the family."""
    order = sorted((p, place) for place, p in enumerate(values) if p is not None)
    adjusted: list[float | None] = [None] * len(values)
    highest = 0.0
    for rank, (p, place) in enumerate(order):
        highest = max(highest, min(1.0, p * (len(order) - rank)))
        adjusted[place] = highest
    return adjusted


def verdict_of(p: float | None, p_equivalent: float | None, level: float) -> Verdict:
    """A difference that is shown wins, even one smaller than the margin."""
    if p is not None and p <= level:
        return "different"
    if p_equivalent is not None and p_equivalent <= level:
        return "equivalent"
    return "cannot tell"


def check_margin(margin: float | None) -> None:
    """SpecError unless the margin is positive or not stated."""
    if margin is not None and not margin > 0:
        raise SpecError([f"margin: got {margin}, must be above 0"])


def _with_seeds(comparison: Comparison, level: float) -> Comparison:
    """Adds what so many seeds can find and how many it would take, at the strictest step of Holm."""
    difference = comparison.difference
    fewest = fewest_pairs(level)
    if difference is None or difference.std is None:
        return replace(comparison, fewest_seeds=fewest, seeds_needed=None, detectable=None)
    smallest = detectable(comparison.n, level)
    return replace(
        comparison,
        fewest_seeds=fewest,
        seeds_needed=_seeds_needed(comparison, difference.value, difference.std, level),
        detectable=None if smallest is None else smallest * difference.std,
    )


def _seeds_needed(
    comparison: Comparison, difference: float, std: float, level: float
) -> int | None:
    """To show the difference, or, where a margin is stated, that it lies within: the fewer."""
    if comparison.verdict != "cannot tell":
        return None
    counts = [seeds_for(_in_stds(difference, std), level)]
    gap = (comparison.margin or 0.0) - abs(difference)
    if gap > 0:
        # One-sided: twice the level. Both sides must hold: each with half the chance of failing.
        counts.append(seeds_for(_in_stds(gap, std), 2 * level, power=0.9))
    return min((count for count in counts if count is not None), default=None)


def _in_stds(size: float, std: float) -> float:
    if std:
        return size / std
    return math.inf if size else 0.0
