"""What a study can show before it is run: the smallest difference its seeds find, and what they never can.

The noise is that of the same settings in earlier runs on the same data, or what the study states; without
either all is said in standard deviations of a run.
"""

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trainlab.analysis.evidence import busy_s, grouped
from trainlab.analysis.metrics import ACCURACY, contrasts, in_order
from trainlab.errors import TrainlabError
from trainlab.plan import plan, trials_of
from trainlab.record.run_folder import RunFolder
from trainlab.record.trial_record import TrialRecord
from trainlab.spec import Study
from trainlab.stats import special
from trainlab.stats.contrasts import complete, critical_of, pair_rows, rows_of
from trainlab.stats.power import NUM_DRAWS, ability

MOST_RUNS = 5
"""The newest earlier runs that are read."""
MOST_CELLS = 30
"""Of a larger study the simulation would take longer than a plan should."""


@dataclass(frozen=True)
class Prospect:
    """What the seeds of a study can show about one metric."""

    metric: str
    num_seeds: int
    stds: float
    """The smallest difference found with power 0.8, in standard deviations of a run."""
    most_seeds: int
    """Those of the last look, where seeds are added; else the same."""
    most_seeds_stds: float
    """The smallest difference that so many find."""
    std: float | None
    """How far runs of one cell lie apart, where that is known."""
    num_trials: int | None
    """Earlier trials that it was computed from; None where the study itself states it."""
    margin: float | None
    largest_std: float | None
    """Of runs that can be shown to be equivalent within the margin; None without one."""


def prospects(study: Study, runs: Path | None = None) -> tuple[Prospect, ...]:
    """For the first metric and every one with a margin; empty where nothing is compared. `runs` is the
    folder of earlier runs."""
    cells = study.all_cells
    pairs = contrasts(cells)
    if not study.learn or not pairs or len(study.seeds) < 2 or len(cells) > MOST_CELLS:
        return ()
    place = {cell.id: index for index, cell in enumerate(cells)}
    rows = pair_rows([(place[p.reference.id], place[p.other.id]) for p in pairs], len(cells))

    def power(num_seeds: int) -> tuple[float, float]:
        """In standard deviations of a run, the smallest difference and the smallest margin that so many
        seeds show. Both are larger where looks on the way ask for higher scores at each."""
        able = ability(rows_of(rows), num_seeds)
        dearer = (
            critical_of(complete(rows, num_seeds, study.looks), NUM_DRAWS).two_sided
            / critical_of(complete(rows, num_seeds), NUM_DRAWS).two_sided
        )
        return float(able.difference.max()) * dearer, float(able.margin.max()) * dearer

    # What the study says; of data that is not chosen yet, the bundled, which is noisier.
    data = study.settings.data
    stated = study.spreads.get("bundled" if data == "auto" else data, {})
    spreads: dict[str, tuple[float | None, int | None]] = {m: (s, None) for m, s in stated.items()}
    spreads |= _spreads(study, runs)
    # Which metrics a workload has is known from its earlier runs. Margins of costs are no matter of seeds.
    margins: dict[str, float | None] = {(in_order(spreads, study) or [ACCURACY])[0]: None}
    margins |= {
        name: margin
        for name, margin in study.margins.items()
        if name.startswith(("test/", "train/", "val/")) and not name.endswith("sample_us")
    }
    num_seeds = len(study.seeds)
    most_seeds = max(num_seeds, *study.looks) if study.looks else num_seeds
    stds, (most_stds, margin_stds) = power(num_seeds)[0], power(most_seeds)
    return tuple(
        Prospect(
            metric,
            num_seeds,
            stds,
            most_seeds,
            most_stds,
            *spreads.get(metric, (None, None)),
            margin,
            None if margin is None else margin / margin_stds,
        )
        for metric, margin in margins.items()
    )


def _alike(study: Study, runs: Path | None) -> list[tuple[RunFolder, set[str]]]:
    """The newest runs that train the same, and which of their cells are also cells of this study. What
    cannot be read is left out."""
    wanted = [cell.settings.learning for cell in study.all_cells]
    alike: list[tuple[str, RunFolder, set[str]]] = []
    for path in runs.glob("*/study.json") if runs is not None and runs.is_dir() else ():
        with suppress(TrainlabError):
            record = RunFolder(path.parent).study()
            earlier = record.to_study(str(path))
            shared = {one.id for one in earlier.all_cells if one.settings.learning in wanted}
            if shared and _trains(earlier) == _trains(study):
                alike.append((record.created, RunFolder(path.parent), shared))
    newest = sorted(alike, key=lambda one: one[0], reverse=True)[:MOST_RUNS]
    return [(run, shared) for _, run, shared in newest]


def expected_s(study: Study, runs: Path, host: str) -> float | None:
    """How long a study should take on this host: each trial its share of the time that trials of its kind
    took in the newest run that trains the same; None where there is none for a kind."""
    planned = Counter(trial.kind for trial in trials_of(plan(study)))
    for run, _ in _alike(study, runs):
        with suppress(TrainlabError):
            hosts = {name: file.read().host for name, file in run.environment_files().items()}
            ended = [
                t for t in run.trials() if t.is_finished and hosts.get(t.environment or "") == host
            ]
            of_kind = {kind: [t for t in ended if t.kind == kind] for kind in planned}
            if all(of_kind.values()):
                each_s = {kind: busy_s(trials) / len(trials) for kind, trials in of_kind.items()}
                return sum(number * each_s[kind] for kind, number in planned.items())
    return None


def _spreads(study: Study, runs: Path | None) -> dict[str, tuple[float, int]]:
    """By metric the typical standard deviation of the cells that runs like it have in common with this
    study, and of how many trials it is."""
    cells: list[list[TrialRecord]] = []
    for run, shared in _alike(study, runs):
        with suppress(TrainlabError):
            by_end = grouped(run.trials(), lambda one: (one.kind, one.state, one.cell))
            cells += filter(None, (by_end.get(("learn", "done", cell)) for cell in shared))
    found: dict[str, list[list[float]]] = {}
    for of_cell in cells:
        for metric in (name for name in of_cell[0].final if "/" in name):
            values = [trial.final.get(metric) for trial in of_cell]
            known = [value for value in values if value is not None and math.isfinite(value)]
            if len(known) > 1:
                found.setdefault(metric, []).append(known)
    stds = {m: statistics.median(map(_typical_std, by_cell)) for m, by_cell in found.items()}
    return {metric: (std, sum(map(len, found[metric]))) for metric, std in stds.items() if std > 0}


def _trains(study: Study) -> object:
    """What a study trains, and on which data; a script's arguments say what it trains."""
    script = study.script
    if script is not None:
        return script.path, script.arguments, script.max_steps
    return study.workload, study.settings.data


def _typical_std(values: Sequence[float]) -> float:
    """The standard deviation, without the bias that the median of those of few values has."""
    freedom = len(values) - 1
    return statistics.stdev(values) / math.sqrt(float(special.chdtri(freedom, 0.5)) / freedom)
