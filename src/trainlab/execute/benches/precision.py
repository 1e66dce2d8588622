"""Whether the ratios between the cells of a study are known as well as was asked for."""

import math

import numpy as np

from trainlab.record.run_folder import RunFolder
from trainlab.record.trial_record import TrialRecord
from trainlab.spec import Study
from trainlab.stats.cost_ratio import compare_costs
from trainlab.stats.rounds import levels

Row = tuple[str, bool, str | None]
"""A cell, whether it is the second of an A/A pair, and whose weights it has."""


def is_precise(run: RunFolder, study: Study, mode: str) -> bool:
    """In that mode, from the records so far: how wide the intervals are, never what they show. Measuring
    until a difference is found would find one."""
    assert study.cost is not None
    benches: dict[str, dict[Row, dict[int, float]]] = {}
    for trial in run.trials():
        if (trial.watch, trial.mode, trial.state) == ("steps", mode, "done"):
            record = run.trial(trial.id).cost.read()
            benches.setdefault(record.bench, {})[_row(trial)] = record.quiet_medians_ms()
    rows = list(dict.fromkeys(row for bench in benches.values() for row in bench))
    figures = np.full((len(rows), len(benches)), math.nan)
    for column, bench in enumerate(benches.values()):
        for row, level in zip(bench, levels(list(bench.values())), strict=True):
            figures[rows.index(row), column] = level
    places = {row: place for place, row in enumerate(rows)}
    firsts = [row for row in rows if not row[1]]
    pairs = [(places[firsts[0]], places[row]) for row in firsts[1:]]
    twice = [
        (places[first], places[row])
        for row in rows
        if row[1] and (first := (row[0], False, row[2])) in places
    ]
    found = compare_costs(figures, pairs, twice)
    widths = [comparison.half_width for comparison in found]
    return all(width is not None and width <= study.cost.ratio_within for width in widths)


def _row(trial: TrialRecord) -> Row:
    return trial.cell, trial.again, trial.weights_of
