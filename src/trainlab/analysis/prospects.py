"""What a study can show before it is run: the smallest difference its seeds find, and what they never can.

The noise is that of the same settings in earlier runs on the same data, or what the study states of as
large a training set and as many epochs; without either all is said in standard deviations of a run.
"""

import math
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from trainlab.analysis.evidence import busy_s, grouped
from trainlab.analysis.metrics import ACCURACY, contrasts, in_order
from trainlab.errors import TrainlabError
from trainlab.plan import plan, trials_of
from trainlab.record.run_folder import RunFolder
from trainlab.spec import Study
from trainlab.spec.study import OF_SPREADS
from trainlab.stats.contrasts import complete, critical_of, pair_rows, rows_of
from trainlab.stats.power import NUM_DRAWS, ability

MOST_RUNS = 5
"""The newest earlier runs that are read."""
MOST_CELLS = 30
"""Of a larger study the simulation would take longer than a plan should."""


Range = tuple[float, float]
"""Of the pair of cells that shows most, and of the one that shows least."""


class Noise(NamedTuple):
    """How far the runs of each cell lie apart."""

    stds: tuple[float, ...]
    num_trials: int | None
    """Earlier trials that it was computed from; None where the study itself states it."""


class Shown(NamedTuple):
    """The smallest difference that so many seeds find, and the smallest margin that they can show."""

    num_seeds: int
    difference_stds: float
    """In standard deviations of a run, as the next."""
    margin_stds: float
    differences: Range | None = None
    """In the unit of the metric, as the next; None where the noise is not known."""
    margins: Range | None = None


class Prospect(NamedTuple):
    """What the seeds of a study can show about one metric, with power 0.8."""

    metric: str
    noise: Noise | None
    margin: float | None
    """Within which cells are equivalent; None where none is stated."""
    first: Shown
    last: Shown
    """Of the last look, where seeds are added; else the same."""


def prospects(study: Study, runs: Path | None = None) -> tuple[Prospect, ...]:
    """For the first metric and every one with a margin; `runs` is the folder of earlier runs."""
    cells = study.all_cells
    pairs = contrasts(cells)
    if not study.learn or not pairs or len(study.seeds) < 2 or len(cells) > MOST_CELLS:
        return ()
    place = {cell.id: index for index, cell in enumerate(cells)}
    rows = pair_rows([(place[p.reference.id], place[p.other.id]) for p in pairs], len(cells))

    def shown(num_seeds: int, noise: Noise | None) -> Shown:
        """All is larger where looks on the way ask for higher scores at each."""
        dearer = (
            critical_of(complete(rows, num_seeds, study.looks), NUM_DRAWS).two_sided
            / critical_of(complete(rows, num_seeds), NUM_DRAWS).two_sided
        )
        difference, margin, _ = ability(rows_of(rows), num_seeds)
        alike = Shown(num_seeds, dearer * float(difference.max()), dearer * float(margin.max()))
        if noise is None:
            return alike
        scale = max(noise.stds)
        found, equal = (scale * alike.difference_stds,) * 2, (scale * alike.margin_stds,) * 2
        if min(noise.stds) < scale:
            relative = tuple(float(f"{std / scale:.2g}") for std in noise.stds)
            difference, margin, _ = ability(rows_of(rows), num_seeds, relative)
            scale *= dearer
            found = scale * float(difference.min()), scale * float(difference.max())
            equal = scale * float(margin.min()), scale * float(margin.max())
        return alike._replace(differences=found, margins=equal)

    known = {m: Noise((s,) * len(cells), None) for m, s in _stated(study).items()}
    known |= _earlier(study, runs)
    # Which metrics a workload has is known from its earlier runs. Margins of costs are no matter of seeds.
    margins: dict[str, float | None] = {(in_order(known, study) or [ACCURACY])[0]: None}
    margins |= {
        name: margin
        for name, margin in study.margins.items()
        if name.startswith(("test/", "train/", "val/")) and not name.endswith("sample_us")
    }
    first, last = len(study.seeds), max(len(study.seeds), *study.looks, 0)
    return tuple(
        Prospect(name, noise, margin, shown(first, noise), shown(last, noise))
        for name, margin in margins.items()
        for noise in [known.get(name)]
    )


def _stated(study: Study) -> dict[str, float]:
    """What the study says of its noise, by metric: of other data, sizes or epochs it says nothing."""
    stated = dict(study.spreads.get(study.settings.data, {}))
    of = {name: stated.pop(name, None) for name in OF_SPREADS}
    planned = [{name: getattr(cell.settings, name) for name in of} for cell in study.all_cells]
    return stated if all(one == of for one in planned) else {}


def _alike(study: Study, runs: Path | None) -> list[tuple[RunFolder, dict[str, str]]]:
    """The newest runs that train the same, with what the cells of this study are called there."""
    wanted = [(cell.id, cell.settings.learning) for cell in study.all_cells]
    alike: list[tuple[str, RunFolder, dict[str, str]]] = []
    for path in runs.glob("*/study.json") if runs is not None and runs.is_dir() else ():
        with suppress(TrainlabError):
            record = RunFolder(path.parent).study()
            earlier = record.to_study(str(path))
            cells = [(one.id, one.settings.learning) for one in earlier.all_cells]
            shared = {here: there for there, own in cells for here, asked in wanted if own == asked}
            if shared and _trains(earlier) == _trains(study):
                alike.append((record.created, RunFolder(path.parent), shared))
    newest = sorted(alike, key=lambda one: one[0], reverse=True)[:MOST_RUNS]
    return [(run, shared) for _, run, shared in newest]


def expected_s(study: Study, runs: Path, host: str) -> float | None:
    """How long a study should take on this host, by the newest run that trains the same."""
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


def _earlier(study: Study, runs: Path | None) -> dict[str, Noise]:
    """By metric the noise of the cells in runs like it; that of a typical one for a cell they lack."""
    found: dict[str, dict[str, list[list[float]]]] = {}
    for run, shared in _alike(study, runs):
        with suppress(TrainlabError):
            by_end = grouped(run.trials(), lambda one: (one.kind, one.state, one.cell))
            for here, there in shared.items():
                trials = by_end.get(("learn", "done", there), [])
                for metric in {name for trial in trials for name in trial.final if "/" in name}:
                    values = [trial.final.get(metric) for trial in trials]
                    finite = [v for v in values if v is not None and math.isfinite(v)]
                    if len(finite) > 1:
                        found.setdefault(metric, {}).setdefault(here, []).append(finite)
    known: dict[str, Noise] = {}
    for metric, by_cell in found.items():
        stds = {c: math.sqrt(np.mean([np.var(v, ddof=1) for v in of])) for c, of in by_cell.items()}
        if (typical := float(np.median([*stds.values()]))) > 0:
            of_cells = (stds.get(cell.id, typical) for cell in study.all_cells)
            number = sum(len(values) for of_runs in by_cell.values() for values in of_runs)
            known[metric] = Noise(tuple(max(std, typical / 100) for std in of_cells), number)
    return known


def _trains(study: Study) -> object:
    """What a study trains, and on which data; a script's arguments say what it trains."""
    script = study.script
    if script is not None:
        return script.path, script.arguments, script.max_steps
    return study.workload, study.settings.data
