"""Whether verdicts are right as often as they say, on simulated studies whose truth is known.

    python -m benchmarks.verdicts [--studies 10000] [--only NAME]

Noise is normal, rounded, heavy-tailed, skewed, unequal, and drawn from the real seeds of both labs
(`seed_noise.csv`, made by `benchmarks.seed_noise`). Bounds: "different" in at most 5% of studies in which
nothing differs, over all comparisons of a study; at most 8% with one cell, also the reference, three times
as noisy or skewed alone, 10% with one ten times as noisy; "equivalent" at the margin likewise; 95% of
studies, within a point, have simultaneous intervals that hold every true difference; the effects named in
`power` are found; beside noisier cells two quiet ones are told apart at most 5 points less often than by a
paired t test with the same simultaneous correction; the same with up to ten looks. Three standard errors of
so many studies are allowed for.

The limits, printed without a bound: noise with two outcomes, and the labs' own cells as they are, one of
them many times as noisy as another and skewed. There no test of few seeds holds.
"""

import argparse
import csv
import math
from collections.abc import Callable, Iterable
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import special

from trainlab.analysis.metrics import MOST_LEVELS
from trainlab.stats.batch_line import fit_batches
from trainlab.stats.contrasts import (
    LEVEL,
    Estimates,
    complete,
    critical_of,
    estimate,
    null_studies,
    pair_rows,
    rows_of,
)
from trainlab.stats.means import Interval, mean_of, new_run_interval
from trainlab.stats.power import ability
from trainlab.stats.verdict import compare_all

Floats = NDArray[np.float64]
Draw = Callable[[tuple[int, int, int]], Floats]
"""Studies, cells, seeds → values without any difference."""

rng = np.random.default_rng(20261115)
SEEDS = (3, 5, 8, 16)
CELLS = (2, 3, 7)
LOOKS = (3, 4, 5, 6, 8, 10, 12, 14, 16, 20)
NOISE_FILE = Path(__file__).parent / "seed_noise.csv"
failed: list[str] = []


def pairs_of(num_cells: int) -> list[tuple[int, int]]:
    """The comparisons of a study of one factor, as the product makes them: every pair of few levels, else
    each with the first."""
    cells = range(num_cells)
    every = list(combinations(cells, 2))
    return every if num_cells <= MOST_LEVELS else [pair for pair in every if pair[0] == 0]


def compared(num_cells: int) -> Floats:
    """These comparisons as contrasts."""
    return pair_rows(pairs_of(num_cells), num_cells)


def alike(draw: Callable[[tuple[int, ...]], Floats]) -> Draw:
    """The same noise in every cell."""
    return lambda shape: np.asarray(draw(shape))


def one_cell(which: int, change: Callable[[Floats], Floats]) -> Draw:
    """Normal noise, changed in one cell."""

    def draw(shape: tuple[int, int, int]) -> Floats:
        values = rng.standard_normal(shape)
        values[:, which] = change(values[:, which])
        return values

    return draw


def exponential(values: Floats) -> Floats:
    """Noise with a long right tail, mean 0 and std 1."""
    return np.asarray(rng.exponential(size=values.shape) - 1)


def log_normal(values: Floats) -> Floats:
    """With a longer one."""
    return np.asarray((np.exp(rng.standard_normal(values.shape)) - math.exp(0.5)) / 2.161)


def contaminated(shape: tuple[int, ...]) -> Floats:
    """Normal, with one value in ten spread ten times as wide."""
    return np.asarray(rng.standard_normal(shape) * np.where(rng.random(shape) < 0.1, 10, 1))


def two_modes(shape: tuple[int, ...]) -> Floats:
    """Runs that end in one of two places."""
    return np.asarray(rng.integers(0, 2, shape) + 0.05 * rng.standard_normal(shape))


ALIKE: dict[str, Draw] = {
    "normal": alike(rng.standard_normal),
    "rounded": alike(lambda shape: np.round(rng.standard_normal(shape))),
    "t, 2 degrees": alike(lambda shape: rng.standard_t(2, shape)),
    "contaminated": alike(contaminated),
    "exponential": alike(lambda shape: rng.exponential(size=shape)),
    "log-normal": alike(lambda shape: np.exp(rng.standard_normal(shape))),
    "two modes": alike(two_modes),
    "seeds matter": lambda shape: (
        rng.standard_normal(shape) + 2 * rng.standard_normal((shape[0], 1, shape[2]))
    ),
}
UNEQUAL: dict[str, tuple[Draw, float]] = {
    "one 3 times as noisy": (one_cell(1, lambda x: 3 * x), 0.08),
    "reference 3 times": (one_cell(0, lambda x: 3 * x), 0.08),
    "one exponential": (one_cell(1, exponential), 0.08),
    "reference exponential": (one_cell(0, exponential), 0.08),
    "one log-normal": (one_cell(1, log_normal), 0.08),
    "reference log-normal": (one_cell(0, log_normal), 0.08),
    "one 10 times as noisy": (one_cell(1, lambda x: 10 * x), 0.10),
    "reference 10 times": (one_cell(0, lambda x: 10 * x), 0.10),
}


def real_noise() -> dict[str, Floats]:
    """Centred values [cells, seeds] of both labs, by lab, data and metric."""
    columns: dict[str, dict[str, list[float]]] = {}
    with NOISE_FILE.open(newline="") as file:
        for row in csv.DictReader(file):
            for metric in ("test_accuracy", "test_loss"):
                name = f"{row['lab']} {row['data']} {metric}"
                columns.setdefault(name, {}).setdefault(row["cell"], []).append(float(row[metric]))
    tables = {name: np.array(list(cells.values())) for name, cells in columns.items()}
    return {name: table - table.mean(axis=1, keepdims=True) for name, table in tables.items()}


def drawn_alike(table: Floats) -> Draw:
    """Every cell of a study has the noise of one of the lab's cells, another in each study."""

    def draw(shape: tuple[int, int, int]) -> Floats:
        cell = rng.integers(len(table), size=(shape[0], 1, 1))
        return np.asarray(table[cell, rng.integers(table.shape[1], size=shape)])

    return draw


def drawn_apart(table: Floats) -> Draw:
    """The lab itself: every cell has its own noise; seeds are shared, as in a study."""

    def draw(shape: tuple[int, int, int]) -> Floats:
        seeds = rng.integers(table.shape[1], size=(shape[0], 1, shape[2]))
        return np.asarray(table[np.arange(shape[1])[np.newaxis, :, np.newaxis], seeds])

    return draw


def hold(name: str, shares: Iterable[float], bound: float, studies: int) -> None:
    """Remembers a bound that fails by more than three standard errors of so many studies."""
    if max(shares) > bound + 3 * math.sqrt(bound * (1 - bound) / studies):
        failed.append(name)


def row(name: str, values: Iterable[float], form: str = "6.2%") -> None:
    """One line of a table."""
    print(f"  {name:54}" + " ".join(f"{value:{form}}" for value in values), flush=True)


def called_different(values: Floats, resolution: float = 0.0) -> float:
    """The share of studies with one or more "different"."""
    weights = compared(values.shape[1])
    estimates = estimate(values, weights, resolution)
    scores = np.abs(estimates.scores(estimates.value))
    limit = critical_of(complete(weights, values.shape[2])).two_sided
    return float((scores > limit).any(axis=1).mean())


def false_differences(studies: int) -> None:
    """Studies in which no setting matters."""
    print(f'\nStudies with one or more false "different", of {studies}')
    for cells in CELLS:
        row(f"{cells} cells; seeds", SEEDS, "6")
        for name, draw in ALIKE.items():
            step = 1.0 if name == "rounded" else 0.0
            shares = [called_different(draw((studies, cells, n)), step) for n in SEEDS]
            row(f"{name} ({'no bound' if name == 'two modes' else '5%'})", shares)
            if name != "two modes":
                hold(f"{name}, {cells} cells", shares, LEVEL, studies)
        for name, (draw, bound) in UNEQUAL.items():
            shares = [called_different(draw((studies, cells, n))) for n in SEEDS]
            row(f"{name} ({bound:.0%})", shares)
            hold(f"{name}, {cells} cells", shares, bound, studies)


def false_on_real_noise(studies: int) -> None:
    """The seeds of the labs, shifted to equal means."""
    print("\nThe same on real seed noise; coverage of simultaneous intervals is the rest of 100%")
    row("seeds", SEEDS, "6")
    for name, table in real_noise().items():
        for kind, draw in (("alike", drawn_alike(table)), ("as it is", drawn_apart(table))):
            shares = [called_different(draw((studies, len(table), n))) for n in SEEDS]
            row(f"{name}, {kind} ({'5%' if kind == 'alike' else 'no bound'})", shares)
            if kind == "alike":
                hold(f"real noise: {name}, {kind}", shares, LEVEL, studies)


def false_equivalence(studies: int) -> None:
    """Every cell differs from the first by exactly the margin; and by nothing."""
    print('\nStudies with one or more false "equivalent", true differences = margin (5%)')
    real = {f"{n}, alike": drawn_alike(t) for n, t in real_noise().items() if "accuracy" in n}
    for cells in CELLS:
        row(f"{cells} cells; seeds", SEEDS, "6")
        weights = compared(cells)
        for name, draw in {**ALIKE, **real}.items():
            shares, shown = [], []
            for n in SEEDS:
                values = draw((studies, cells, n))
                low, high = np.quantile(values, (0.25, 0.75))
                for factor, out in ((1.0, shares), (3.0, shown)):
                    # In standard deviations of a normal with the same quartiles: heavy tails have none.
                    margin = factor * max(high - low, 1e-9) / 1.349
                    estimates = estimate(values, weights, 1.0 if name == "rounded" else 0.0)
                    limit = critical_of(complete(weights, n)).one_sided
                    half_width = estimates.half_width(limit)
                    true = margin if factor == 1.0 else 0.0
                    inside = np.abs(estimates.value + true) + half_width < margin
                    out.append(float(inside.any(axis=1).mean() if true else inside.mean()))
            row(name, shares)
            if name != "two modes":
                hold(f"equivalent: {name}, {cells} cells", shares, LEVEL, studies)
            if name == "normal":
                row("  shown, no difference, margin 3 std", shown, "6.1%")


def coverage(studies: int) -> None:
    """Simultaneous intervals, of normal noise; 94 to 96%."""
    print("\nStudies whose simultaneous intervals hold all true differences (94 to 96%)")
    for cells in CELLS:
        shares = [
            1 - called_different(rng.standard_normal((studies, cells, n))) for n in (3, 5, 8, 16)
        ]
        row(f"normal, {cells} cells", shares)
        if any(abs(share - 0.95) > 0.01 + 3 * math.sqrt(0.0475 / studies) for share in shares):
            failed.append(f"coverage, {cells} cells")


def power(studies: int) -> None:
    """Large differences are found with few seeds, and what is called detectable in 80%."""
    print("\nFound: 6 std of a cell with 3 seeds (90%), 1.5 std of a difference with 8 seeds (80%)")
    for cells, n, shift, bound in (
        *((3, 3, 6.0, 0.90), (7, 3, 6.0, 0.90)),
        *((3, 8, 1.5 * math.sqrt(2), 0.80), (7, 8, 1.5 * math.sqrt(2), 0.80)),
    ):
        weights = compared(cells)
        for name, noise in (("normal", 1.0), ("beside one 10 times as noisy", 10.0)):
            values = rng.standard_normal((studies, cells, n))
            values[:, 1] += shift
            values[:, 2] *= noise
            estimates = estimate(values, weights)
            limit = critical_of(complete(weights, n)).two_sided
            share = float((estimates.scores(estimates.value)[:, 0] > limit).mean())
            row(f"{cells} cells, {n} seeds, {shift:.2f} std, {name}", [share])
            if noise == 1.0 and share < bound:
                failed.append(f"power: {cells} cells, {n} seeds")
    print("\nFound at the difference called detectable (75 to 85%)")
    row("seeds", SEEDS, "6")
    for cells in CELLS:
        weights = compared(cells)
        rows, shares = rows_of(weights), []
        for n in SEEDS:
            values = rng.standard_normal((studies, cells, n))
            values[:, 1] += ability(rows, n).difference[0]
            estimates = estimate(values, weights)
            limit = critical_of(complete(weights, n)).two_sided
            shares.append(float((estimates.scores(estimates.value)[:, 0] > limit).mean()))
        row(f"{cells} cells", shares, "6.1%")
        if any(abs(share - 0.8) > 0.05 for share in shares):
            failed.append(f"detectable: {cells} cells")


AUDITED = "2.2, 2.0 and 9.8; at last a difference of 8"
BESIDE: dict[str, tuple[float, ...]] = {
    AUDITED: (2.2, 2.0, 9.8),
    **{f"3 cells, one {x} times": (1, 1, x) for x in (3, 10)},
    **{f"4 cells, one {x} times": (1, 1, 1, x) for x in (4.5, 10)},
    **{f"4 cells, two {x} times": (1, 1, x, x) for x in (4.5, 10)},
    **{f"6 cells, one {x} times": (1, 1, 1, 1, 1, x) for x in (4.5, 10)},
    **{f"6 cells, two {x} times": (1, 1, 1, 1, x, x) for x in (4.5, 10)},
}
"""Standard deviations of cells, of which the first two are compared."""
PAIRED_FINDS = (0.5, 0.8, 0.95)


def paired(values: Floats, weights: Floats) -> Estimates:
    """Every contrast by its own values alone."""
    by_seed = weights @ values
    std = by_seed.std(axis=-1, ddof=1)
    freedom = np.full(std.shape, values.shape[-1] - 1.0)
    return Estimates(by_seed.mean(axis=-1), std / math.sqrt(values.shape[-1]), freedom, std)


def beside_noisy(studies: int) -> None:
    """Against a paired t test whose critical score for the same family follows as ours does: from its own
    largest score in simulated studies without a difference."""
    print(
        "\nFound of two quiet cells beside noisier ones, each by ours and by paired t; and false ones"
    )
    row("true differences that paired t finds in", PAIRED_FINDS, "13.0%")
    for name, stds in BESIDE.items():
        weights, noise = compared(len(stds)), np.array(stds)[:, np.newaxis]
        for n in (3, 5, 8):
            design = complete(weights, n)
            null = (paired(each, weights) for each in null_studies(design))
            largest = np.concatenate([np.abs(each.scores(each.value)).max(axis=1) for each in null])
            limits = critical_of(design).two_sided, float(np.quantile(largest, 1 - LEVEL))
            values = noise * rng.standard_normal((studies, len(stds), n))
            tests = estimate(values, weights), paired(values, weights)
            quantile = special.stdtrit(n - 1, special.ndtr(limits[1]))
            error = math.hypot(*stds[:2]) / math.sqrt(n)
            true = [error * special.nctdtrinc(n - 1, 1 - found, quantile) for found in PAIRED_FINDS]
            shares = [
                float((test.scores(test.value + effect)[:, 0] > limit).mean())
                for effect in (*true, 8.0)
                for test, limit in zip(tests, limits, strict=True)
            ]
            if name != AUDITED:
                shares = shares[:-2]
            row(f"{name}, {n} seeds", (*shares, called_different(values)))
            if any(
                ours < theirs - 0.05 for ours, theirs in zip(shares[::2], shares[1::2], strict=True)
            ):
                failed.append(f"beside noisy: {name}, {n} seeds")


def looks(studies: int) -> None:
    """Seeds are added until every comparison is decided, with a look after each of ten numbers."""
    print(f"\nUntil decided, looks after {', '.join(map(str, LOOKS))} seeds; margin 2.5 std")
    print(f"  {'':64}wrong (5%) decided  seeds used")
    noises = {name: ALIKE[name] for name in ("normal", "t, 2 degrees", "exponential", "rounded")}
    noises |= {n: drawn_alike(t) for n, t in real_noise().items() if "accuracy" in n}
    for cells in (3, 7):
        weights = compared(cells)
        for name, draw in noises.items():
            values = draw((studies, cells, LOOKS[-1]))
            std = max(float(np.subtract(*np.quantile(values, (0.75, 0.25)))), 1e-9) / 1.349
            for truth, shift, margin in (
                ("nothing", 0.0, None),
                ("the margin", 2.5 * std, 2.5 * std),
            ):
                moved = values.copy()
                moved[:, 1:] += shift
                wrong, used, decided = sequential(moved, weights, margin, name == "rounded")
                title = f"{cells} cells, {name}, true: {truth}"
                print(f"  {title:66}{wrong:8.2%}{decided:9.1%}{used:9.1f}", flush=True)
                hold(f"until decided: {cells} cells, {name}, {truth}", [wrong], LEVEL, studies)


def sequential(
    values: Floats, weights: Floats, margin: float | None, rounded: bool
) -> tuple[float, float, float]:
    """The shares of studies wrong at their last look, seeds used, and studies decided.

    Wrong: "different" where nothing differs, or "equivalent" at the margin.
    """
    at_margin = weights[:, 0] != 0
    open_studies = np.ones(len(values), dtype=bool)
    wrong = np.zeros(len(values), dtype=bool)
    used = np.full(len(values), float(LOOKS[-1]))
    for count in LOOKS:
        critical = critical_of(complete(weights, count, LOOKS))
        estimates = estimate(values[..., :count], weights, 1.0 if rounded else 0.0)
        different = np.abs(estimates.value) > estimates.half_width(critical.two_sided)
        same = np.zeros_like(different)
        if margin is not None:
            reach = np.abs(estimates.value) + estimates.half_width(critical.one_sided)
            same = ~different & (reach < margin)
        # Those with the first lie at the margin, the others at zero.
        mistaken = different.any(axis=1) if margin is None else same[:, at_margin].any(axis=1)
        wrong |= mistaken & open_studies
        done = open_studies & (different | same).all(axis=1)
        used[done] = count
        open_studies &= ~done
    return float(wrong.mean()), float(used.mean()), float((~open_studies).mean())


def contradictions(studies: int) -> None:
    """Comparisons as users get them, with missing and diverged runs: interval and verdict agree."""
    num, wrong, counts = 0, 0, dict[str, int]()
    for _ in range(max(1, studies // 2)):
        cells, n = int(rng.integers(2, 6)), int(rng.integers(1, 9))
        values = rng.normal(0.9, 0.01, (cells, n)) + rng.choice([0, 0, 0.01, 0.1], (cells, 1))
        values = np.clip(np.round(values, 3), 0, 1)
        values[rng.random(values.shape) < rng.choice([0.0, 0.1])] = np.nan
        table = {str(cell): dict(enumerate(line)) for cell, line in enumerate(values.tolist())}
        pairs = [(str(first), str(second)) for first, second in pairs_of(cells)]
        for made in compare_all(table, pairs, 0.03, resolution=0.001, most=1.0):
            num += 1
            counts[made.verdict] = counts.get(made.verdict, 0) + 1
            low, high = (made.interval.low, made.interval.high) if made.interval else (None, None)
            if low is None or high is None:
                wrong += made.verdict in ("different", "equivalent")
            elif made.verdict == "different":
                wrong += low <= 0 <= high
            elif made.verdict == "equivalent":
                wrong += not -0.03 < low <= high < 0.03
            else:
                wrong += not low <= 0 <= high
    print(f"\n{num} comparisons, {counts}: interval against verdict in {wrong}")
    if wrong or num < studies // 2:
        failed.append("contradictions")


def within(interval: Interval | None, value: float) -> bool:
    """Whether there is an interval and it holds the value."""
    return interval is not None and interval.contains(value)


def means(studies: int) -> None:
    """Intervals of a cell's own mean and of a new run."""
    counts = (3, 5, 10, 16)
    print("\nIntervals of a mean and of a new run that hold the truth; normal: 94 to 96%")
    row("seeds", counts, "6")
    for name in ("normal", "exponential", "t, 2 degrees"):
        truth = 1.0 if name == "exponential" else 0.0
        shares = []
        for n in counts:
            drawn = ALIKE[name]((studies, 1, n + 1))[:, 0].tolist()
            of_mean = [mean_of(values[:-1]) for values in drawn]
            held = [within(mean.interval if mean else None, truth) for mean in of_mean]
            new = [within(new_run_interval(values[:-1]), values[-1]) for values in drawn]
            shares.append((sum(held) / studies, sum(new) / studies))
        for kind, line in zip(("mean", "new run"), zip(*shares, strict=True), strict=True):
            row(f"{name}, {kind}", line)
            if name == "normal" and any(abs(share - 0.95) > 0.01 for share in line):
                failed.append(f"means: {kind}")


def scaling(studies: int) -> None:
    """A line that is true, measured with noise in proportion."""
    print("\nScaling: intervals that hold the truth: fixed, per sample, a new size; said to fit")
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
        if (np.abs(count[:3] / studies - 0.95) > 0.01).any():
            failed.append("scaling")


TABLES = (
    *(
        false_differences,
        false_on_real_noise,
        false_equivalence,
        coverage,
        power,
        beside_noisy,
        looks,
    ),
    *(contradictions, means, scaling),
)


def main() -> None:
    """Prints each table and exits 1 if a bound does not hold."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--studies", type=int, default=10_000)
    parser.add_argument("--only", help="a table: " + ", ".join(t.__name__ for t in TABLES))
    asked = parser.parse_args()
    for table in TABLES:
        if asked.only in (None, table.__name__):
            table(asked.studies)
    print("\nall bounds hold" if not failed else f"\nNOT MET: {'; '.join(failed)}")
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
