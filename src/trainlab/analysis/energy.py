"""What the GPU takes: energy per sample and per epoch, of steps that were timed and of scripts that were
watched, where the driver counts it."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from trainlab.analysis.document import Table
from trainlab.analysis.evidence import Evidence
from trainlab.analysis.finding import Finding, Kind
from trainlab.analysis.measurement import (
    Estimate,
    Measurement,
    energies_mj,
    figures_of,
    measured_twice,
    repeat_interval,
)
from trainlab.analysis.metrics import Contrast
from trainlab.analysis.tables import Field, estimate, name, table_of, value
from trainlab.record.script_record import WatchedRecord
from trainlab.stats.cost_ratio import compare_costs
from trainlab.stats.means import mean_of
from trainlab.words import Words

ENERGY = Kind("energy", "factors", 12, "cost", weight=lambda one: abs(math.log(one.ratio)))
"""What a change of one factor does to the energy per sample, where it was shown to do something."""


def sample_mj(measurement: Measurement) -> Estimate | None:
    """Per sample; None where nothing counted it."""
    known = [energy for energy in energies_mj(measurement) if math.isfinite(energy)]
    return repeat_interval(known) if known else None


def epoch_j(measurement: Measurement) -> Estimate | None:
    """As many samples as an epoch has; None where that is not known."""
    of_sample = sample_mj(measurement)
    if of_sample is None or not measurement.knows_epochs:
        return None
    return of_sample.times(measurement.costs[0].num_samples / 1e3)


def energy_columns(measured: Sequence[Measurement], words: Words) -> list[Field[Measurement]]:
    """None where nothing was counted."""

    def column(key: str, read: Any) -> Field[Measurement]:
        return value(words(key), lambda m: None if (one := read(m)) is None else estimate(one))

    found = {"sample_mj": sample_mj, "epoch_j": epoch_j}
    return [column(key, read) for key, read in found.items() if any(map(read, measured))]


def energy_findings(
    evidence: Evidence, mode: str, pairs: Sequence[tuple[Contrast, Measurement, Measurement]]
) -> Iterator[Finding]:
    """Pairs of cells whose ratio is shown to differ from 1, decided as the times are."""
    rows = [one for one in evidence.measured if one.summary.mode == mode and sample_mj(one)]
    places = {id(measurement): row for row, measurement in enumerate(rows)}
    known = [one for one in pairs if id(one[1]) in places and id(one[2]) in places]
    found = compare_costs(
        figures_of(rows, energies_mj),
        [(places[id(first)], places[id(second)]) for _, first, second in known],
        measured_twice(rows),
    )
    for (pair, first, second), one in zip(known, found, strict=True):
        both = zip("ab", (sample_mj(first), sample_mj(second)), strict=True)
        told = {f"sample_mj_{end}": energy and energy.value for end, energy in both}
        if one.verdict == "different":
            told |= {"ratio": one.ratio.value, "p": one.p, "family": one.family}
            shown: dict[str, Any] = {"verdict": one.verdict, "interval": one.ratio.interval}
            subject = f"{mode}/sample_mj"
            yield ENERGY(subject=subject, n=one.n, **shown, **pair.shared, **told)


def run_sample_mj(run: WatchedRecord) -> float | None:
    """Per sample that a script trained on, tests and all else included."""
    samples, _, joules = run.energy[-1] if run.energy else (0, 0.0, 0.0)
    return 1e3 * joules / samples if samples else None


def mean_w(run: WatchedRecord) -> list[float]:
    """From the first update to the end of the script."""
    _, seconds, joules = run.energy[-1]
    return [joules / seconds] if seconds else []


def epochs_j(run: WatchedRecord) -> list[float]:
    """Of each pass over the data."""
    return [after[2] - before[2] for before, after in pairwise(run.energy)]


RUN: dict[str, Callable[[WatchedRecord], Sequence[float | None]]] = {
    "sample_mj": lambda run: [run_sample_mj(run)],
    "epoch_j": epochs_j,
    "mean_w": mean_w,
}
"""What a watched run tells of its energy: values that a mean is taken of, over all runs of a cell."""


def energy_of_runs(runs: Sequence[WatchedRecord]) -> dict[str, Estimate | None]:
    """Means over runs, of an epoch over all epochs, with the 95% interval of the true mean; empty where
    nothing was counted."""
    counted = [run for run in runs if run.energy]
    found = {}
    for key, read in RUN.items() if counted else ():
        mean = mean_of([one for run in counted for one in read(run) if one is not None])
        found[key] = None if mean is None else Estimate(mean.value, *mean.ends)
    return found


def script_energy_table(
    rows: Sequence[tuple[str, Sequence[WatchedRecord]]], words: Words
) -> Table | None:
    """Of every cell and its runs; None where nothing was counted."""
    found = [(cell, energy) for cell, runs in rows if (energy := energy_of_runs(runs))]

    def column(key: str) -> Field[Any]:
        return value(words(key), lambda row: None if row[1][key] is None else estimate(row[1][key]))

    fields: list[Field[Any]] = [name(words("cell"), lambda row: row[0]), *map(column, RUN)]
    note = words("script_energy_note")
    caption = words("script_energy_table")
    return table_of(caption, fields, found, note, cell=lambda row: row[0]) if found else None
