"""What a study can show before it is run: the smallest difference its seeds find, and what they never can.

The noise is that of earlier runs of the same workload on the same data, where there are any; without them
all is said in standard deviations of a run.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scipy import special

from trainlab.analysis.metrics import ACCURACY, contrasts, in_order
from trainlab.errors import TrainlabError
from trainlab.record.run_folder import RunFolder
from trainlab.record.trial_record import TrialRecord
from trainlab.spec import Study
from trainlab.stats.contrasts import Floats, complete, critical_of, pair_rows, rows_of
from trainlab.stats.power import NUM_DRAWS, ability

MOST_RUNS = 5
"""The newest earlier runs that are read."""
MOST_CELLS = 30
"""Of a larger study the simulation would take longer than a plan should."""


@dataclass(frozen=True)
class SeedSpread:
    """How far runs of one cell lie apart."""

    std: float
    num_trials: int | None
    """Earlier trials that it was computed from; None where the study itself states it."""


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
    spread: SeedSpread | None
    margin: float | None
    largest_std: float | None
    """Of runs that can be shown to be equivalent within the margin; None without one."""

    @property
    def difference(self) -> float | None:
        """The smallest difference found, in the metric's own unit."""
        return None if self.spread is None else self.stds * self.spread.std

    @property
    def most_seeds_difference(self) -> float | None:
        """The smallest difference that the most seeds find, in the metric's own unit."""
        return None if self.spread is None else self.most_seeds_stds * self.spread.std

    @property
    def can_be_equivalent(self) -> bool | None:
        """Whether the margin is within reach; None where that is not known."""
        if self.largest_std is None or self.spread is None:
            return None
        return self.spread.std <= self.largest_std


def prospects(study: Study, earlier: Sequence[RunFolder] = ()) -> tuple[Prospect, ...]:
    """For the first metric and every one with a margin; empty where nothing is compared."""
    cells = study.all_cells
    pairs = contrasts(cells)
    if not study.learn or not pairs or len(study.seeds) < 2 or len(cells) > MOST_CELLS:
        return ()
    index_of = {cell.id: index for index, cell in enumerate(cells)}
    places = ((index_of[pair.reference.id], index_of[pair.other.id]) for pair in pairs)
    rows = pair_rows(places, len(cells))
    # What the study says; of data that is not chosen yet, the bundled, which is noisier.
    data = study.settings.data
    stated = study.spreads.get("bundled" if data == "auto" else data, {})
    spreads = {metric: SeedSpread(std, None) for metric, std in stated.items()}
    spreads |= _spreads(study, earlier)
    # Which metrics a workload has is known from its earlier runs.
    margins: dict[str, float | None] = {(in_order(spreads) or [ACCURACY])[0]: None}
    margins |= {name: margin for name, margin in study.margins.items() if not _is_cost(name)}
    num_seeds = len(study.seeds)
    most_seeds = max(num_seeds, *study.looks) if study.looks else num_seeds
    able, most_able = (ability(rows_of(rows), number) for number in (num_seeds, most_seeds))
    dearer, most_dearer = (_dearer(rows, number, study.looks) for number in (num_seeds, most_seeds))
    largest_std = 1 / float(most_able.margin.max()) / most_dearer
    return tuple(
        Prospect(
            metric=metric,
            num_seeds=num_seeds,
            stds=float(able.difference.max()) * dearer,
            most_seeds=most_seeds,
            most_seeds_stds=float(most_able.difference.max()) * most_dearer,
            spread=spreads.get(metric),
            margin=margin,
            largest_std=None if margin is None else margin * largest_std,
        )
        for metric, margin in margins.items()
    )


def _dearer(rows: Floats, num_seeds: int, looks: tuple[int, ...]) -> float:
    """How much higher scores must be where looks on the way ask for them at each."""
    with_looks = critical_of(complete(rows, num_seeds, looks), NUM_DRAWS).two_sided
    return with_looks / critical_of(complete(rows, num_seeds), NUM_DRAWS).two_sided


def earlier_runs(folder: Path, study: Study) -> list[RunFolder]:
    """The newest runs in a folder that trained the same workload on the same data."""
    found: list[tuple[str, RunFolder]] = []
    for path in folder.glob("*/study.json") if folder.is_dir() else ():
        run = RunFolder(path.parent)
        try:
            record = run.study()
            other = record.to_study(str(path))
        except TrainlabError:
            continue
        if _is_alike(other, study):
            found.append((record.created, run))
    return [run for _, run in sorted(found, key=lambda one: one[0], reverse=True)[:MOST_RUNS]]


def _is_alike(other: Study, study: Study) -> bool:
    """Whether two studies train the same on the same data; a script's arguments say what it trains."""
    if (other.script is None) != (study.script is None):
        return False
    if other.script is not None and study.script is not None:
        asked = (study.script.path, study.script.arguments, study.script.max_steps)
        return (other.script.path, other.script.arguments, other.script.max_steps) == asked
    return other.workload == study.workload and other.settings.data == study.settings.data


def _spreads(study: Study, earlier: Sequence[RunFolder]) -> dict[str, SeedSpread]:
    """The typical standard deviation of the cells of earlier runs as long as these, by metric."""
    epochs = study.settings.epochs
    cells: dict[tuple[Path, str], list[TrialRecord]] = {}
    for run in earlier:
        try:
            trials = [*run.trials()]
        except TrainlabError:
            continue
        for trial in trials:
            is_done = (trial.kind, trial.state) == ("learn", "done")
            if is_done and trial.settings.get("epochs") == epochs:
                cells.setdefault((run.path, trial.cell), []).append(trial)
    stds: dict[str, list[float]] = {}
    counts: dict[str, int] = {}
    for of_cell in cells.values():
        for metric in of_cell[0].final:
            values = [trial.final.get(metric) for trial in of_cell]
            known = [value for value in values if value is not None and math.isfinite(value)]
            if "/" in metric and len(known) > 1:
                stds.setdefault(metric, []).append(_typical_std(known))
                counts[metric] = counts.get(metric, 0) + len(known)
    return {
        metric: SeedSpread(median, counts[metric])
        for metric, found in stds.items()
        if (median := statistics.median(found)) > 0
    }


def _typical_std(values: Sequence[float]) -> float:
    """The standard deviation, without the bias that the median of those of few values has."""
    freedom = len(values) - 1
    return statistics.stdev(values) / math.sqrt(float(special.chdtri(freedom, 0.5)) / freedom)


def _is_cost(metric: str) -> bool:
    return metric.partition("/")[0] not in ("test", "train", "val") or metric.endswith("sample_us")
