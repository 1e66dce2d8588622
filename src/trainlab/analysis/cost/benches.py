"""The processes that took turns with each other: the step of each, and all as a table of figures."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from trainlab.analysis.cost.measurement import Measurement
from trainlab.record.cost import CostRecord
from trainlab.stats.cost_ratio import Floats, Pair
from trainlab.stats.rounds import levels


def process_steps_ms(records: Mapping[str, CostRecord]) -> dict[str, float]:
    """The step of each timed trial, by id, as the rounds of its bench give it; of one that ran by
    itself, as its own turns do."""
    benches: dict[str, list[str]] = {}
    for trial_id, record in records.items():
        benches.setdefault(record.bench or f"alone: {trial_id}", []).append(trial_id)
    steps_ms: dict[str, float] = {}
    for members in benches.values():
        found = levels([records[trial_id].quiet_medians_ms() for trial_id in members])
        steps_ms |= zip(members, map(math.exp, found), strict=True)
    return steps_ms


def figures_of(measured: Sequence[Measurement]) -> Floats:
    """Logs of µs per sample, a row per measurement and a column per bench; NaN where one has none.

    Runs from before turns have processes instead of benches, in the order they ran.
    """
    columns: dict[str, int] = {}
    for measurement in measured:
        for bench in measurement.benches:
            columns.setdefault(bench, len(columns))
    figures = np.full((len(measured), len(columns)), math.nan)
    for row, measurement in enumerate(measured):
        size = measurement.summary.batch_size
        for bench, step_ms in zip(measurement.benches, measurement.process_ms, strict=True):
            figures[row, columns[bench]] = math.log(1e3 * step_ms / size)
    return figures


def measured_twice(measured: Sequence[Measurement]) -> list[Pair]:
    """The rows of A/A pairs, the first of each pair first."""
    rows = {(m.trial.cell, m.is_trained, m.trial.again): row for row, m in enumerate(measured)}
    return [
        (rows[cell, is_trained, False], row)
        for (cell, is_trained, again), row in rows.items()
        if again and (cell, is_trained, False) in rows
    ]
