"""Two cells over the same seeds: different, equivalent, or cannot tell.

"Different" requires that the paired t test and the exact sign flip agree (`paired`), after Holm over
the family; "equivalent", two one-sided tests of the same kind against a margin stated beforehand.

Measured on 10,000 simulated studies each (`benchmarks.verdicts`): where nothing differs, "different"
comes up in at most 5 % of them, within the error of so many, from 3 to 16 seeds, after Holm, under
normal, skewed, heavy-tailed, two-moded and rounded noise; where the difference is the margin,
"equivalent" likewise. The limit: noise that is skewed in one cell only, about a mean that is the same.
There each is wrong in 6 to 21 % of studies, and in 19 to 59 % if one run in ten of that cell fails badly.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import Literal, TypeVar

from trainlab.errors import SpecError
from trainlab.stats.means import Mean, mean_of, pair
from trainlab.stats.paired import fewest_pairs, p_different, p_equivalent, p_of_each
from trainlab.stats.power import detectable, seeds_for

Verdict = Literal["different", "equivalent", "cannot tell"]
BySeed = Mapping[int, float]
"""The final value of each trial of a cell, by seed."""

LEVEL = 0.05
"""The chance, over a whole family, of one or more wrong "different"; likewise for "equivalent"."""


@dataclass(frozen=True, kw_only=True)
class HypothesisTest:
    """The test of two cells, and its verdict once the family it belongs to is known."""

    p: float | None
    """`None` where there are too few values for a test."""
    margin: float | None
    """Differences smaller than this do not matter; `None`: not stated, so never equivalent."""
    p_equivalent: float | None
    family: int = 1
    """Comparisons decided together."""
    p_holm: float | None = None
    p_equivalent_holm: float | None = None
    verdict: Verdict = "cannot tell"
    detectable: float | None = None
    """The smallest difference, or ratio above 1, that so many values detect with power 0.8."""


T = TypeVar("T", bound=HypothesisTest)


@dataclass(frozen=True, kw_only=True)
class Comparison(HypothesisTest):
    """The difference `b` minus `a` over seeds, and what may be said about it."""

    n: int
    """Pairs compared."""
    num_dropped: int
    """Seeds that only one of the cells has."""
    num_diverged: int
    """Seeds left out because a value was not finite."""
    mean_a: float | None
    mean_b: float | None
    difference: Mean | None
    fewest_seeds: int | None = None
    """Fewer pairs never reach the level in this family, whatever the data."""
    seeds_needed: int | None = None
    """Estimated to decide it with power 0.8 if the observed effect is the true one; `None`: already
    decided, or cannot be estimated."""


def compare(a: BySeed, b: BySeed, margin: float | None = None) -> Comparison:
    """Decided as a family of its own. SpecError if the margin is not positive."""
    return compare_all([(a, b)], margin)[0]


def compare_all(
    cells: Iterable[tuple[BySeed, BySeed]], margin: float | None = None
) -> tuple[Comparison, ...]:
    """One comparison per pair of cells, decided as one family. SpecError if the margin is not positive."""
    check_margin(margin)
    matched = [pair(a, b) for a, b in cells]
    differences = [pairs.differences for pairs in matched]
    different = p_of_each(differences, p_different)
    equivalent = p_of_each(differences, partial(p_equivalent, margin=margin) if margin else None)
    return decide(
        [
            Comparison(
                n=len(pairs.a),
                num_dropped=pairs.num_dropped,
                num_diverged=pairs.num_diverged,
                mean_a=fmean(pairs.a) if pairs.a else None,
                mean_b=fmean(pairs.b) if pairs.b else None,
                difference=mean_of(pairs.differences),
                p=p,
                margin=margin,
                p_equivalent=p_same,
            )
            for pairs, p, p_same in zip(matched, different, equivalent, strict=True)
        ]
    )


def decide(comparisons: Sequence[Comparison]) -> tuple[Comparison, ...]:
    """The same comparisons as one family, each with its verdict."""
    return tuple(_decided(comparison) for comparison in adjust(comparisons))


def adjust(comparisons: Sequence[T]) -> list[T]:
    """The same comparisons as one family, their p adjusted by Holm; no verdict yet."""
    family = max(1, sum(comparison.p is not None for comparison in comparisons))
    different = holm([comparison.p for comparison in comparisons])
    equivalent = holm([comparison.p_equivalent for comparison in comparisons])
    return [
        replace(comparison, family=family, p_holm=p, p_equivalent_holm=p_same)
        for comparison, p, p_same in zip(comparisons, different, equivalent, strict=True)
    ]


def holm(values: Sequence[float | None]) -> list[float | None]:
    """Adjusted p, in the given order; a value without p is no part of the family."""
    order = sorted((p, index) for index, p in enumerate(values) if p is not None)
    adjusted: list[float | None] = [None] * len(values)
    highest = 0.0
    for rank, (p, index) in enumerate(order):
        highest = max(highest, min(1.0, p * (len(order) - rank)))
        adjusted[index] = highest
    return adjusted


def verdict_of(p: float | None, p_equivalent: float | None) -> Verdict:
    """From adjusted p. "Different" comes first, even for a difference smaller than the margin."""
    if p is not None and p <= LEVEL:
        return "different"
    if p_equivalent is not None and p_equivalent <= LEVEL:
        return "equivalent"
    return "cannot tell"


def check_margin(margin: float | None) -> None:
    """SpecError unless the margin is positive or not stated."""
    if margin is not None and not margin > 0:
        raise SpecError([f"margin: got {margin}, must be above 0"])


def _decided(comparison: Comparison) -> Comparison:
    """With its verdict, the smallest difference that so many seeds detect, and how many are needed.

    Both are counted at the strictest step of Holm.
    """
    verdict = verdict_of(comparison.p_holm, comparison.p_equivalent_holm)
    level = LEVEL / comparison.family
    difference = comparison.difference
    smallest = needed = None
    if difference is not None and difference.std is not None:
        smallest = detectable(comparison.n, level)
        smallest = None if smallest is None else smallest * difference.std
        if verdict == "cannot tell":
            needed = _seeds_needed(difference.value, difference.std, comparison.margin, level)
    return replace(
        comparison,
        verdict=verdict,
        fewest_seeds=fewest_pairs(level),
        seeds_needed=needed,
        detectable=smallest,
    )


def _seeds_needed(difference: float, std: float, margin: float | None, level: float) -> int | None:
    """The smaller of what shows the difference and, with a margin, what shows that it lies within."""
    counts = [seeds_for(_in_stds(difference, std), level)]
    gap = (margin or 0.0) - abs(difference)
    if gap > 0:
        # One-sided: twice the level. Both sides must hold: each with half the chance of failing.
        counts.append(seeds_for(_in_stds(gap, std), 2 * level, power=0.9))
    return min((count for count in counts if count is not None), default=None)


def _in_stds(size: float, std: float) -> float:
    if std:
        return size / std
    return math.inf if size else 0.0
