"""The metrics of a run: which are compared, what they can be, and how finely they are known."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from trainlab.analysis.evidence import Evidence, grouped, level_of
from trainlab.spec import Cell, Study
from trainlab.spec.settings import Scalar
from trainlab.spec.study import PARTS, lower_is_better, objective_of, recorded_as
from trainlab.stats.contrasts import Family, Floats, compare_cells, table_of
from trainlab.stats.means import NOT_NEGATIVE, SHARES, UNLIMITED, Interval
from trainlab.stats.verdict import Comparison, compare_all
from trainlab.words.numbers import is_share

ACCURACY = "test/accuracy"
USUAL = (ACCURACY, "test/loss", "train/loss")
"""The metrics that are always compared."""


OF_ONE = frozenset(
    {"f1", "auc", "auroc", "roc_auc", "precision", "recall", "iou", "dice", "map", "specificity"}
)
"""Metrics of the usual names that lie between 0 and 1."""


def compared_metrics(evidence: Evidence) -> list[str]:
    """Those that are compared, that of the answer first; losses of different losses are not."""
    names = in_order(evidence.metrics, evidence.study)
    if any(factor.startswith("loss.") for factor in evidence.factors):
        return [name for name in names if not name.endswith("/loss")]
    return names


def in_order(metrics: Iterable[str], study: Study) -> list[str]:
    """The one that the answer goes by: the objective, or else the most wanted. Then the usual ones, and all
    others on the test set; where there are none of that, as in scripts that know only a validation set or
    none, those on the next part."""
    names = list(metrics)
    # Of a value that was logged for both, as Lightning does, that of a batch is no result.
    of_batch = {f"{one.removesuffix('_epoch')}_step" for one in names if one.endswith("_epoch")}
    first = objective_in(names, study) or min(
        (one for one in names if one not in of_batch),
        key=lambda one: _wanted(one, study),
        default="",
    )
    part = next((f"{one}/" for one in PARTS if any(n.startswith(f"{one}/") for n in names)), "")
    of_part = (
        n for n in names if n.startswith(part) and (part != "train/" or not _is_aside(n, study))
    )
    wanted = (first, *(name for name in USUAL if name in names), *of_part)
    return [name for name in dict.fromkeys(wanted) if name]


def objective_in(metrics: Sequence[str], study: Study) -> str | None:
    """The metric that the study's objective names; None where it has none, or none of these is it."""
    named = recorded_as(objective_of(study.objective)[0]) if study.objective else ()
    return next((name for name in named if name in metrics), None)


def _wanted(metric: str, study: Study) -> tuple[object, ...]:
    """The smaller, the more wanted: what was asked for or named by the user before losses recorded anyway,
    test before validation before training, accuracies before losses. What a script trains on comes before
    the losses of training that it writes: those may be parts of it, and what stands beside them."""
    part, _, name = metric.partition("/")
    # What a script was seen to call `backward` on; the losses of a workload.
    seen = "train" if study.script is not None else "|".join(PARTS)
    is_loss = re.fullmatch(rf"({seen})/loss(_\d+)?", metric) is not None
    is_own_loss = study.script is not None and part == "train" and "loss" in name and not is_loss
    is_lower = study.is_better_lower(metric)
    return (
        _is_aside(metric, study),
        not _is_asked(metric, study),
        2 * is_own_loss + is_loss,
        PARTS.index(part) if part in PARTS else len(PARTS),
        name != "accuracy",
        2 if is_lower is None else int(is_lower),
        "loss" in name,
    )


def _is_aside(metric: str, study: Study) -> bool:
    """Whether it is likely no result, as a learning rate: not asked for, and no way of it is better."""
    is_known = _is_asked(metric, study) or study.is_better_lower(metric) is not None
    return not is_known and (study.script is not None or metric.startswith("train/"))


def _is_asked(metric: str, study: Study) -> bool:
    """Whether a script was told to have it."""
    asked = () if study.script is None else (*study.script.metrics, *study.script.metric_files)
    return any(metric in recorded_as(name) for name in asked)


def limits_of(metric: str, values: Iterable[float] = ()) -> Interval:
    """What the metric can be at all: a share is one of 1, unless its values are in per cent, and a loss or
    an error of which none of the values is negative is taken to have no negative ones."""
    finite = [value for value in values if math.isfinite(value)]
    if is_share(metric) or metric.rpartition("/")[2].lower() in OF_ONE:
        return SHARES if max(finite, default=0.0) <= 1 else UNLIMITED
    if finite and min(finite) >= 0 and lower_is_better(metric):
        return NOT_NEGATIVE
    return UNLIMITED


def num_test_samples(evidence: Evidence) -> int | None:
    """The fewest that any learn trial was tested on; None where that is not recorded."""
    known = (one.trial.data for one in evidence.all_learned)
    return min((data.num_test for data in known if data is not None), default=None)


def resolution_of(evidence: Evidence, metric: str) -> float:
    """The step in which values of the metric come: an accuracy on n samples is a multiple of 1 / n."""
    num_samples = num_test_samples(evidence)
    return 1 / num_samples if metric == ACCURACY and num_samples else 0.0


def compared_values(
    evidence: Evidence,
    metric: str,
    values: Mapping[str, Mapping[int, float]],
    pairs: Sequence[tuple[str, str]],
    looks: tuple[int, ...] = (),
) -> tuple[Comparison, ...]:
    """The comparisons of pairs of cells, by their values of the metric by seed, as one family."""
    limits = limits_of(metric, (one for seeds in values.values() for one in seeds.values()))
    margin, most = evidence.study.margins.get(metric), limits.high - limits.low
    step = resolution_of(evidence, metric)
    return compare_all(values, pairs, margin, looks=looks, resolution=step, most=most)


# Which cells are compared with which: those that differ by one factor.

MOST_LEVELS = 5
"""Of a factor, each compared with each other; of more, each with the reference only."""


@dataclass(frozen=True)
class Contrast:
    """Two cells that differ by the levels of `factor` alone, as declared."""

    factor: str
    reference: Cell
    other: Cell

    @property
    def levels(self) -> tuple[Scalar | None, Scalar | None]:
        """Of the reference and of the other; None where several factors make up one change."""
        if "," in self.factor:
            return None, None
        return level_of(self.reference, self.factor), level_of(self.other, self.factor)

    @property
    def ids(self) -> tuple[str, str]:
        """Of the reference and of the other."""
        return self.reference.id, self.other.id

    @property
    def factors(self) -> frozenset[str]:
        """One, or several that change together."""
        return frozenset(self.factor.split(","))

    @property
    def shared(self) -> dict[str, Any]:
        """What every finding about the two says."""
        return {"factor": self.factor, "levels": self.levels, "cells": self.ids}


def contrasts(cells: Sequence[Cell]) -> list[Contrast]:
    """Every cell against its reference, then the other levels of each factor against each other."""
    pairs = against_references(cells)
    of_levels = (pair for pair in pairs if pair.levels != (None, None))
    by_reference = grouped(of_levels, lambda pair: (pair.factor, pair.reference.id))
    between = [
        Contrast(first.factor, first.other, second.other)
        for group in by_reference.values()
        if len(group) < MOST_LEVELS
        for first, second in combinations(group, 2)
        if first.other.settings.meaning != second.other.settings.meaning
    ]
    return [*pairs, *between]


def against_references(cells: Sequence[Cell]) -> list[Contrast]:
    """Every cell against its reference; none against one with the same settings by another name.

    In a grid that is the cell with the factor's first level and all else equal; around a base the base,
    also for a cell that changes several settings at once. A cell listed beside a grid that has no such
    neighbour is compared with the grid's first."""
    cells = with_like_seeds(cells)
    if cells and not cells[0].levels:
        others = [cell for cell in cells[1:] if cell.settings.meaning != cells[0].settings.meaning]
        return [_against_base(cells[0], cell) for cell in others]
    factors = tuple(dict.fromkeys(name for cell in cells for name in cell.levels))

    def text(level: Scalar | None) -> str:
        """1 and 1.0 are one level, but 1 and true are two."""
        return repr(float(level) if type(level) is int else level)

    coordinates = [tuple(text(level_of(cell, name)) for name in factors) for cell in cells]
    cell_at = dict(zip(coordinates, cells, strict=True))
    pairs = [
        Contrast(factor, reference, cell)
        for axis, factor in enumerate(factors)
        for own, cell in zip(coordinates, cells, strict=True)
        if own[axis] != (first_level := coordinates[0][axis])
        and (reference := cell_at.get((*own[:axis], first_level, *own[axis + 1 :])))
    ]
    compared = {cell_id for pair in pairs for cell_id in pair.ids}
    alone = [cell for cell in cells[1:] if cell.id not in compared]
    return pairs + [_against_base(cells[0], cell) for cell in alone]


def with_like_seeds(cells: Sequence[Cell]) -> Sequence[Cell]:
    """The cells whose seeds change the same as the first cell's: others have no seeds in common with it."""
    return [cell for cell in cells if cell.settings.seed_parts == cells[0].settings.seed_parts]


def _against_base(base: Cell, cell: Cell) -> Contrast:
    return Contrast(",".join(dict.fromkeys([*base.levels, *cell.levels])), base, cell)


# MetricTable: one metric of all cells by seed, ready to be compared.


@dataclass(frozen=True)
class MetricTable:
    """The cells that have a value of the metric, and their values."""

    metric: str
    cells: tuple[Cell, ...]
    values: Floats
    """Cells by seeds, NaN where there is no value."""
    looks: tuple[int, ...]
    resolution: float

    @property
    def index_of(self) -> dict[str, int]:
        """The row of each cell, by its id."""
        return {cell.id: row for row, cell in enumerate(self.cells)}

    def compared(self, weights: Floats) -> Family:
        """The contrasts as one family."""
        return compare_cells(self.values, weights, self.looks, self.resolution)


def metric_table(evidence: Evidence, metric: str) -> MetricTable:
    """Of the trials that ended well, in the cells that can be compared."""
    by_id = {cell.id: cell for cell in with_like_seeds(evidence.cells)}
    ids, values = table_of({cell: evidence.values(cell, metric) for cell in by_id})
    cells = tuple(by_id[cell] for cell in ids)
    looks, resolution = evidence.study.looks, resolution_of(evidence, metric)
    return MetricTable(metric, cells, values, looks, resolution)
