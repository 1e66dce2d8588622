"""How often `trainlab reproduce` fails where it should not, and where it should.

    python -m benchmarks.reproduce [--studies 2000]

Simulates published runs beside ours: five settings, three metrics, five epochs, whose figures move
together over epochs and metrics, rounded to three places. Exits 1 where, under normal noise, a true
reproduction fails in more than 2%, plus three Monte-Carlo errors, or where one setting's accuracy is three
standard deviations off and less than half of the studies of 16 seeds fail. Heavy tails and skew are shown.
"""

import argparse
import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from trainlab.analysis.reproduce import PublishedFigure, published_curves

CELLS = ("base", "batch_size=16", "batch_size=64", "lr=0.01", "optimizer=sgd")
METRICS = ("train/loss", "test/loss", "test/accuracy")
EPOCHS, PLACES = 5, 3
STD = 0.004
"""Of a figure between seeds, as of the accuracies of both labs."""
OFF = 3.0
NOISES = ("normal", "heavy tails", "skewed")
BOUND = 0.02
FOUND = 0.5

Array = NDArray[np.float64]


def runs(draw: np.random.Generator, noise: str, epochs_move: float, number: int) -> Array:
    """Runs by metric and epoch, each of variance one: the metrics share half of their variance."""
    shape = (number, len(METRICS) + 1, EPOCHS)
    white = {
        "normal": lambda: draw.standard_normal(shape),
        "heavy tails": lambda: draw.standard_t(5, shape) / math.sqrt(5 / 3),
        "skewed": lambda: draw.exponential(1.0, shape) - 1,
    }[noise]()
    drawn = white.copy()
    for epoch in range(1, EPOCHS):
        new = math.sqrt(1 - epochs_move**2) * white[:, :, epoch]
        drawn[:, :, epoch] = epochs_move * drawn[:, :, epoch - 1] + new
    return (drawn[:, :-1] + drawn[:, -1:]) / math.sqrt(2)


def figures(ours: Array, published: Array, cell: str) -> Iterator[PublishedFigure]:
    """Of one cell, as the verb has them."""
    for place, metric in enumerate(METRICS):
        for epoch in range(EPOCHS):
            values = (0.5 + STD * ours[:, place, epoch]).tolist()
            yield PublishedFigure(
                cell=cell,
                metric=metric,
                epoch=epoch + 1,
                published=round(0.5 + STD * float(published[place, epoch]), PLACES),
                places=PLACES,
                by_seed=dict(enumerate(values, start=1)),
            )


def failure_rates(
    studies: int, seeds: int, noise: str, epochs_move: float, off: float
) -> tuple[float, float]:
    """By curves; and as it was decided before, by 95% of the figures being inside."""
    draw = np.random.default_rng(7)
    by_curves = by_share = 0
    for _ in range(studies):
        found: list[PublishedFigure] = []
        for number, cell in enumerate(CELLS):
            ours, published = (runs(draw, noise, epochs_move, n) for n in (seeds, 1))
            if number == 0:
                published[:, METRICS.index("test/accuracy")] += off
            found += figures(ours, published[0], cell)
        by_curves += not all(curve.agrees for curve in published_curves(found))
        by_share += sum(figure.inside is True for figure in found) < 0.95 * len(found)
    return by_curves / studies, by_share / studies


def main() -> None:
    """Prints a table of both rates."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--studies", type=int, default=2000)
    studies = parser.parse_args().studies
    failed = False
    print("seeds  noise        epochs move  off   fails   before")
    for off in (0.0, OFF):
        for seeds in (8, 16):
            for noise in NOISES:
                for epochs_move in (0.3, 0.6):
                    rate, before = failure_rates(studies, seeds, noise, epochs_move, off)
                    error = 3 * math.sqrt(BOUND * (1 - BOUND) / studies)
                    is_decisive = noise == "normal" and seeds == 16 and epochs_move < 0.5
                    wrong = rate > BOUND + error if not off else is_decisive and rate < FOUND
                    wrong &= noise == "normal"
                    failed |= wrong
                    mark = " NOT MET" if wrong else ""
                    row = f"{seeds:5}  {noise:11}  {epochs_move:11.1f}  {off:3.0f}"
                    print(f"{row}  {rate:6.1%}  {before:7.1%}{mark}", flush=True)
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
