"""What the GPU takes: energy per sample and per epoch, of steps that were timed and of scripts that were
watched, where the driver counts it."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from trainlab.analysis.document import Table
from trainlab.analysis.evidence import Evidence, trial_confounds
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
        if one.verdict == "different":
            both = zip("ab", (sample_mj(first), sample_mj(second)), strict=True)
            yield ENERGY(
                subject=f"{mode}/sample_mj",
                n=one.n,
                interval=one.ratio.interval,
                verdict=one.verdict,
                confounds=trial_confounds(first.trial, second.trial, pair.factors),
                ratio=one.ratio.value,
                p=one.p,
                family=one.family,
                **pair.shared,
                **{f"sample_mj_{end}": energy and energy.value for end, energy in both},
            )


def run_sample_mj(run: WatchedRecord) -> float | None:
    """Per sample that a script trained on, tests and all else included."""
    samples, _, joules = run.energy[-1] if run.energy else (0, 0.0, 0.0)
    return 1e3 * joules / samples if samples else None


def epochs_j(run: WatchedRecord) -> list[float]:
    """Of each pass over the data."""
    return [after[2] - before[2] for before, after in pairwise(run.energy)]


def energy_of_runs(runs: Sequence[WatchedRecord]) -> dict[str, Estimate | None]:
    """Per sample, per epoch and on average: means over runs, or all their epochs, with the 95% interval of
    the true mean; empty where nothing was counted."""
    counted = [run for run in runs if run.energy]
    by_key = {
        "sample_mj": [mj for run in counted if (mj := run_sample_mj(run)) is not None],
        "epoch_j": [joules for run in counted for joules in epochs_j(run)],
        "mean_w": [joules / s for run in counted for _, s, joules in run.energy[-1:] if s],
    }
    means = {key: mean_of(values) for key, values in by_key.items() if counted}
    return {k: Estimate(mean.value, *mean.ends) if mean else None for k, mean in means.items()}


def script_energy_table(
    rows: Sequence[tuple[str, Sequence[WatchedRecord]]], words: Words
) -> Table | None:
    """Of every cell and its runs; None where nothing was counted."""
    found = [(cell, energy) for cell, runs in rows if (energy := energy_of_runs(runs))]
    if not found:
        return None

    def column(key: str) -> Field[Any]:
        return value(words(key), lambda row: row[1][key] and estimate(row[1][key]))

    fields = [name(words("cell"), lambda row: row[0]), *map(column, found[0][1])]
    note = words("script_energy_note")
    return table_of(words("script_energy_table"), fields, found, note, cell=lambda row: row[0])
