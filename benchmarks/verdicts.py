"""Whether verdicts are right as often as they say, on simulated studies whose truth is known.

    python -m benchmarks.verdicts [--studies 10000]

Bounds: "different" in at most 5 % of studies without any difference, after Holm; "equivalent" in at
most 5 % where the difference is the margin; intervals cover 95 % within 1 point; the effect said to
be detectable is found in 80 % of studies within 2 points. Costs: `benchmarks.cost_power`.
A true 5 % shows as more or less in so many studies: three standard errors are allowed for.
Noise that is skewed in one of two cells only is printed without a bound: there no test holds.
"""

import argparse
import math
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from trainlab.stats.means import Interval, mean_of, new_run_interval
from trainlab.stats.paired import fewest_pairs, p_different, p_equivalent, p_flip, p_student
from trainlab.stats.power import detectable
from trainlab.stats.scaling import fit_batches
from trainlab.stats.verdict import LEVEL, holm

Floats = NDArray[np.float64]
Draw = Callable[[tuple[int, ...]], Floats]

rng = np.random.default_rng(20261115)
FAMILY = 4
COUNTS = range(3, 17)
failed: list[str] = []


def two_modes(shape: tuple[int, ...]) -> Floats:
    """Runs that end in one of two places: the t test's worst case."""
    return rng.integers(0, 2, shape) + 0.05 * rng.standard_normal(shape)


def contaminated(shape: tuple[int, ...]) -> Floats:
    """Normal, with one value in ten spread ten times as wide."""
    return rng.standard_normal(shape) * np.where(rng.random(shape) < 0.1, 10, 1)


NOISES: dict[str, Draw] = {
    "normal": rng.standard_normal,
    "uniform": rng.random,
    "exponential": lambda shape: rng.exponential(size=shape),
    "log-normal": lambda shape: np.exp(rng.standard_normal(shape)),
    "t, 2 degrees": lambda shape: rng.standard_t(2, shape),
    "contaminated": contaminated,
    "two modes": two_modes,
    "rounded": lambda shape: np.round(rng.standard_normal(shape)),
}
ONE_SIDED: dict[str, Draw] = {
    "exponential": lambda shape: rng.exponential(size=shape) - 1,
    "log-normal": lambda shape: np.exp(rng.standard_normal(shape)) - math.exp(0.5),
    "one in ten fails": lambda shape: (
        np.where(rng.random(shape) < 0.1, -9.0, 1.0) + 0.3 * rng.standard_normal(shape)
    ),
}


def hold(name: str, holds: bool) -> None:
    """Remembers a bound that failed."""
    if not holds:
        failed.append(name)


def at_most_level(shares: list[float], studies: int) -> bool:
    """Whether all are at most 5 %, as far as so many studies can tell."""
    return max(shares) <= LEVEL + 3 * math.sqrt(LEVEL * (1 - LEVEL) / studies)


def in_parts(test: Callable[[Floats], Floats], values: Floats) -> Floats:
    """The p of every row, few enough rows at a time that 2^n sums of each fit the cache."""
    rows = values.reshape(-1, values.shape[-1])
    size = max(1, 2**16 >> values.shape[-1])
    parts = [test(rows[start : start + size]) for start in range(0, len(rows), size)]
    return np.concatenate(parts).reshape(values.shape[:-1])


def wilcoxon(differences: Floats) -> Floats:
    """Signed ranks, exact; ties are broken at random."""
    broken = differences + 1e-9 * rng.standard_normal(differences.shape)
    return np.asarray(stats.wilcoxon(broken, axis=-1, method="exact").pvalue)


def sign(differences: Floats) -> Floats:
    """The sign test: how many are above zero."""
    above, count = (differences > 0).sum(axis=-1), (differences != 0).sum(axis=-1)
    return np.asarray(np.minimum(1, 2 * special.bdtr(np.minimum(above, count - above), count, 0.5)))


CANDIDATES: dict[str, Callable[[Floats], Floats]] = {
    "t": p_student,
    "flip": p_flip,
    "both": p_different,
    "ranks": wilcoxon,
    "signs": sign,
}


def row(name: str, values: Iterable[float], form: str = "6.2%") -> None:
    """One line of a table."""
    print(f"  {name:28}" + " ".join(f"{value:{form}}" for value in values))


def candidates(studies: int) -> None:
    """What each test calls different where nothing differs, and where the mean moves by one std.

    The std is that of a normal with the same quartiles: heavy tails have none.
    """
    counts = (3, 5, 6, 8, 10)
    every = {name: (draw, 2) for name, draw in NOISES.items()}
    every |= {f"{name}, one cell": (draw, 1) for name, draw in ONE_SIDED.items()}
    for name, (draw, cells) in every.items():
        print(f"\nOne comparison, {name}: p <= 5 % with nothing there | with a shift of one std")
        print(f"  {'seeds':28}" + " ".join(f"{n:6}" for n in counts) + " |")
        values = [draw((studies, cells, n)) for n in counts]
        drawn = [v[:, 0] - v[:, 1] if cells == 2 else v[:, 0] for v in values]
        for test, p in CANDIDATES.items():
            false = [(in_parts(p, d) <= LEVEL).mean() for d in drawn]
            found = [
                (in_parts(p, d + 0.74 * np.subtract(*np.quantile(d, (0.75, 0.25)))) <= LEVEL).mean()
                for d in drawn
            ]
            print(f"  {test:28}" + " ".join(f"{v:6.2%}" for v in false), end=" | ")
            print(" ".join(f"{v:6.1%}" for v in found))


def false_differences(studies: int) -> None:
    """Studies of a baseline and four cells in which no setting matters."""
    print(f'\nStudies with one or more false "different", of {studies}; at most 5 %')
    row("seeds", COUNTS, "6")
    for name, draw in NOISES.items():
        alone, together = [], []
        for n in COUNTS:
            cells = draw((studies, FAMILY + 1, n))
            p = in_parts(p_different, cells[:, 1:] - cells[:, :1])
            adjusted = np.array([holm(family) for family in p.tolist()], dtype=float)
            alone.append((p[:, 0] <= LEVEL).mean())
            together.append((adjusted <= LEVEL).any(axis=1).mean())
        row(f"{name}, 1", alone)
        row(f"{name}, Holm over {FAMILY}", together)
        hold(f"false different: {name}", at_most_level(alone + together, studies))


def false_equivalence(studies: int) -> None:
    """One comparison whose true difference is exactly the margin; and one without any."""
    print('\nFalse "equivalent", difference = margin = 1 std; at most 5 %')
    row("seeds", COUNTS, "6")
    for name, draw in NOISES.items():
        shares = []
        for n in COUNTS:
            cells = draw((studies, 2, n))
            noise = cells[:, 1] - cells[:, 0]
            margin = min(noise.std(), 10.0)
            p = in_parts(partial(p_equivalent, margin=margin), noise + margin)
            shares.append((p <= LEVEL).mean())
        row(name, shares)
        hold(f"false equivalent: {name}", at_most_level(shares, studies))
    noises = [rng.standard_normal((studies, n)) for n in COUNTS]
    shown = [(in_parts(partial(p_equivalent, margin=1.0), x) <= LEVEL).mean() for x in noises]
    row("normal, no difference", shown, "6.1%")


def one_sided_equivalence(studies: int) -> None:
    """The limit of the claim: noise skewed in one of the two cells."""
    print('\nFalse "equivalent" at a margin of 1 std, noise skewed in one cell; no bound')
    row("seeds", COUNTS, "6")
    for name, draw in ONE_SIDED.items():
        shares = []
        for n in COUNTS:
            noise = draw((studies, n))
            scaled = noise.std()
            sides = [
                in_parts(partial(p_equivalent, margin=scaled), noise + side) <= LEVEL
                for side in (scaled, -scaled)
            ]
            shares.append(max(side.mean() for side in sides))
        row(name, shares)


def within(interval: Interval | None, value: float) -> bool:
    """Whether there is an interval and it holds the value."""
    return interval is not None and interval.contains(value)


def held(draw: Draw, shape: tuple[int, int], truth: float) -> Floats:
    """The shares of intervals of the mean and of a new run that hold the truth."""
    runs, new = draw(shape), draw((shape[0],))
    count = np.zeros(2)
    for values, more in zip(runs.tolist(), new.tolist(), strict=True):
        mean = mean_of(values)
        count += [
            within(mean.interval if mean else None, truth),
            within(new_run_interval(values), more),
        ]
    return count / shape[0]


def coverage(studies: int) -> None:
    """How often each interval holds what it is for."""
    counts = (3, 5, 10, 16)
    print(f"\nIntervals of {studies} studies that hold the truth; normal: 94 to 96 %")
    row("seeds", counts, "6")
    for name in ("normal", "exponential", "t, 2 degrees", "contaminated"):
        truth = 1.0 if name == "exponential" else 0.0
        shares = np.array([held(NOISES[name], (studies, n), truth) for n in counts]).T
        for kind, line in zip(("mean", "new run"), shares, strict=True):
            row(f"{name}, {kind}", line)
        if name == "normal":
            hold("coverage", bool((np.abs(shares - 0.95) <= 0.01).all()))


def power(studies: int) -> None:
    """Whether what is called detectable is found in 80 % of studies."""
    print("\nFound at the effect called detectable (in std); 78 to 82 %")
    for family in (1, 4, 20):
        fewest = fewest_pairs(LEVEL / family)
        assert fewest is not None
        counts = range(fewest, 17)
        effects = [detectable(n, LEVEL / family) or math.nan for n in counts]
        shares = [
            (
                in_parts(p_different, rng.standard_normal((studies, n)) + effect) <= LEVEL / family
            ).mean()
            for n, effect in zip(counts, effects, strict=True)
        ]
        row(f"family of {family}: seeds", counts, "6")
        row("detectable", effects, "6.2f")
        row("found", shares, "6.1%")
        hold("power", all(abs(share - 0.8) <= 0.02 for share in shares))


def scaling(studies: int) -> None:
    """A line that is true, measured with noise in proportion."""
    print(
        "\nScaling: intervals that hold the truth: fixed, per sample, a new size; and said to fit"
    )
    for sizes in ((1, 16, 256), (1, 4, 16, 64, 256), (1, 2, 4, 8, 16, 32, 64, 128, 256)):
        true = np.array([2 + 0.05 * size for size in sizes])
        count = np.zeros(4)
        for factors in 1 + 0.03 * rng.standard_normal((studies, len(sizes) + 1)):
            fit = fit_batches(dict(zip(sizes, (true * factors[:-1]).tolist(), strict=True)))
            count += [
                within(fit.fixed.interval, 2),
                within(fit.per_sample.interval, 0.05),
                within(fit.predict(100).interval, 7 * factors[-1]),
                fit.verdict == "fits",
            ]
        row(f"{len(sizes)} sizes", count / studies)
        hold("scaling", bool((np.abs(count[:3] / studies - 0.95) <= 0.01).all()))


def main() -> None:
    """Prints each table and exits 1 if a bound does not hold."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--studies", type=int, default=10_000)
    studies = parser.parse_args().studies
    for table in (
        candidates,
        false_differences,
        false_equivalence,
        one_sided_equivalence,
        coverage,
        power,
        scaling,
    ):
        table(studies)
    print("\nall bounds hold" if not failed else f"\nNOT MET: {', '.join(failed)}")
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
