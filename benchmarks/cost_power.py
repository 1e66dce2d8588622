"""Whether verdicts about cost are right as often as they say, on simulated benches whose truth is known.

    python -m benchmarks.cost_power [--studies 10000]

Three cells, the first and the last measured twice; benches differ by 30%, processes within a bench by the
noise given. Bounds: "different" in at most 5% of studies without any difference, "equivalent" in at most
5% where the true ratio is the margin, simultaneous intervals hold all ratios in at least 95% (three
standard errors allowed for); at every noise more processes find a slowdown of 5% more often; at 2% noise
so many processes as the tool itself says settle it do so in at least 90%.
"""

import argparse
import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from trainlab.stats.cost_ratio import CostComparison, compare_costs

Floats = NDArray[np.float64]
Draw = Callable[[tuple[int, int]], Floats]

PAIRS, TWICE = [(0, 1), (0, 2)], [(0, 3), (2, 4)]
COUNTS = (3, 4, 5, 8, 12, 20, 50)
STDS = (0.005, 0.01, 0.02, 0.04)
MARGIN = 0.05
MOST_SAID = 200
"""Larger numbers that the tool says are tried with so many."""
rng = np.random.default_rng(20261115)
failed: list[str] = []

NOISES: dict[str, Draw] = {
    "normal": rng.standard_normal,
    "skewed": lambda shape: rng.exponential(size=shape) - 1,
    "t, 3 degrees": lambda shape: rng.standard_t(3, shape) / math.sqrt(3),
    "one in ten slow": lambda shape: (
        0.5 * rng.standard_normal(shape) + 3.0 * (rng.random(shape) < 0.1)
    ),
}


def study(n: int, std: float, slower: float = 1.0, draw: Draw = rng.standard_normal) -> Floats:
    """Figures of three cells and two A/A copies; the second cell is slower."""
    figures = std * draw((5, n)) + 0.3 * rng.standard_normal(n)
    figures[1] += math.log(slower)
    return figures


def compared(figures: Floats) -> tuple[CostComparison, ...]:
    """Both ratios, as a report would have them."""
    return compare_costs(figures, PAIRS, TWICE, MARGIN)


def hold(name: str, holds: bool) -> None:
    """Remembers a bound that failed."""
    if not holds:
        failed.append(name)


def row(name: str, values: Sequence[float], form: str = "7.1%") -> None:
    """One line of a table."""
    print(f"  {name:28}" + " ".join(f"{value:{form}}" for value in values), flush=True)


def error_of(share: float, studies: int) -> float:
    """Three Monte-Carlo errors."""
    return 3 * math.sqrt(share * (1 - share) / studies)


def without_difference(studies: int) -> None:
    """What is called different where nothing differs, and how often all intervals hold the truth."""
    print(f'"different" with nothing there, 2% noise, of {studies}; at most 5% | intervals hold')
    row("processes", COUNTS, "7")
    for name, draw in NOISES.items():
        false, held = [], []
        for n in COUNTS:
            found = [compared(study(n, 0.02, 1.0, draw)) for _ in range(studies)]
            false.append(np.mean([any(c.verdict == "different" for c in two) for two in found]))
            held.append(np.mean([all(_holds_one(c) for c in two) for two in found]))
        row(name, false)
        row("", held)
        if name == "normal":
            hold("false different", max(false) <= 0.05 + error_of(0.05, studies))
            hold("coverage", min(held) >= 0.95 - error_of(0.95, studies))


def _holds_one(comparison: CostComparison) -> bool:
    interval = comparison.ratio.interval
    return interval is not None and interval.contains(1.0)


def at_the_margin(studies: int) -> None:
    """What is called equivalent where the true ratio is the margin."""
    print(f'\n"equivalent" where the ratio is the margin, 2% noise, of {studies}; at most 5%')
    row("processes", COUNTS, "7")
    shares = [
        np.mean(
            [
                compared(study(n, 0.02, 1 + MARGIN))[0].verdict == "equivalent"
                for _ in range(studies)
            ]
        )
        for n in COUNTS
    ]
    row("normal", shares)
    hold("false equivalent", max(shares) <= 0.05 + error_of(0.05, studies))


def power(studies: int) -> None:
    """How often a slowdown of 5% is found."""
    print(f"\n5% slower, found in so many of {studies}; more processes find it more often")
    row("processes", COUNTS, "7")
    for std in STDS:
        shares = [
            np.mean(
                [compared(study(n, std, 1.05))[0].verdict == "different" for _ in range(studies)]
            )
            for n in COUNTS
        ]
        row(f"noise {std:.1%}", shares)
        rises = all(b >= a - error_of(0.5, studies) for a, b in pairwise(shares))
        hold(f"power rises at {std:.1%}", rises)


def as_many_as_said(studies: int) -> None:
    """A study of three processes that cannot tell says how many would settle it; then so many are run."""
    said, found = [], []
    for _ in range(studies):
        first = compared(study(3, 0.02, 1.05))[0]
        if first.processes_needed is not None:
            said.append(min(first.processes_needed, MOST_SAID))
            again = compared(study(said[-1], 0.02, 1.05))[0]
            found.append(again.verdict == "different")
    share = float(np.mean(found))
    low, middle, high = np.quantile(said, (0.1, 0.5, 0.9))
    print(
        f"\n5% slower at 2% noise: {len(said)} of {studies} studies of 3 processes cannot tell; they say "
        f"{middle:.0f} ({low:.0f} to {high:.0f}) would settle it; with so many {share:.1%} do"
    )
    hold("as many as said", share >= 0.9)


def main() -> None:
    """Prints each table and exits 1 if a bound does not hold."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--studies", type=int, default=10_000)
    studies = parser.parse_args().studies
    for table in (without_difference, at_the_margin, power, as_many_as_said):
        table(studies)
    print("\nall bounds hold" if not failed else f"\nNOT MET: {', '.join(failed)}")
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
