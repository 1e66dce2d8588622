"""Which cells are compared with which: those that differ by one factor."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from trainlab.spec import Cell
from trainlab.spec.settings import Scalar

MOST_LEVELS = 5
"""Of a factor, each compared with each other; of more, each with the reference only."""


@dataclass(frozen=True)
class Contrast:
    """Two cells that differ by the levels of `factor` alone, as declared."""

    factor: str
    reference: Cell
    other: Cell
    levels: tuple[Scalar | None, Scalar | None]
    """Of the reference and of the other; None where several factors make up one change."""

    @property
    def ids(self) -> tuple[str, str]:
        """Of the reference and of the other."""
        return self.reference.id, self.other.id

    @property
    def factors(self) -> frozenset[str]:
        """One, or several that change together."""
        return frozenset(self.factor.split(","))


def contrasts(cells: Sequence[Cell]) -> list[Contrast]:
    """Every cell against its reference, then the levels of each factor against each other."""
    return [*against_references(cells), *_between_levels(cells)]


def against_references(cells: Sequence[Cell]) -> list[Contrast]:
    """Every cell against its reference; none against one with the same settings by another name.

    In a grid that is the cell with the factor's first level and all else equal. Around a base it is
    the base, also for a cell that changes several settings at once. A cell listed beside a grid that
    has no such neighbour is compared with the grid's first. Cells whose seeds change other parts of what
    is random are not compared: see `with_like_seeds`.
    """
    cells = with_like_seeds(cells)
    if cells and not cells[0].levels:
        others = [cell for cell in cells[1:] if cell.settings.meaning != cells[0].settings.meaning]
        return [_against_base(cells[0], cell) for cell in others]
    factors = tuple(dict.fromkeys(name for cell in cells for name in cell.levels))
    coordinates = [_coordinates(cell, factors) for cell in cells]
    cell_at = dict(zip(coordinates, cells, strict=True))
    pairs = [
        _contrast(factor, reference, cell)
        for axis, factor in enumerate(factors)
        for own, cell in zip(coordinates, cells, strict=True)
        if own[axis] != (first_level := coordinates[0][axis])
        and (reference := cell_at.get((*own[:axis], first_level, *own[axis + 1 :])))
    ]
    compared = {cell_id for pair in pairs for cell_id in pair.ids}
    alone = [cell for cell in cells[1:] if cell.id not in compared]
    return pairs + [_against_base(cells[0], cell) for cell in alone]


def _between_levels(cells: Sequence[Cell]) -> list[Contrast]:
    """The pairs that differ by one factor and leave its reference out, all else equal."""
    by_reference: dict[tuple[str, str], list[Contrast]] = {}
    for pair in against_references(cells):
        if pair.levels != (None, None):
            by_reference.setdefault((pair.factor, pair.reference.id), []).append(pair)
    return [
        _contrast(first.factor, first.other, second.other)
        for pairs in by_reference.values()
        if len(pairs) < MOST_LEVELS
        for first, second in combinations(pairs, 2)
        if first.other.settings.meaning != second.other.settings.meaning
    ]


def with_like_seeds(cells: Sequence[Cell]) -> Sequence[Cell]:
    """The cells whose seeds change the same as the first cell's.

    What a seed changes is no setting of the training: it says which spread is measured, and cells that
    differ by it have no seeds in common to be compared by.
    """
    return [cell for cell in cells if cell.settings.seed_parts == cells[0].settings.seed_parts]


def level_of(cell: Cell, factor: str) -> Scalar | None:
    """The level of any factor in a cell, also where the cell does not change it. None where the setting is
    not known here: a newer trainlab may have recorded it."""
    outer, dot, inner = factor.partition(".")
    value: Any = getattr(cell.settings, outer, cell.levels.get(factor))
    inside = value.get(inner) if isinstance(value, Mapping) else None
    level: Scalar | None = cell.levels.get(factor, inside) if dot else value
    return cell.settings.start_lr if level is None and factor == "lr" else level


def _coordinates(cell: Cell, factors: Sequence[str]) -> tuple[str, ...]:
    """The cell's level of every factor, as text: 1 and 1.0 are one level, but 1 and true are two."""
    levels = (level_of(cell, factor) for factor in factors)
    return tuple(repr(float(level) if type(level) is int else level) for level in levels)


def _contrast(factor: str, reference: Cell, cell: Cell) -> Contrast:
    return Contrast(factor, reference, cell, (level_of(reference, factor), level_of(cell, factor)))


def _against_base(base: Cell, cell: Cell) -> Contrast:
    changed = list(dict.fromkeys([*base.levels, *cell.levels]))
    if len(changed) == 1:
        return _contrast(changed[0], base, cell)
    return Contrast(",".join(changed), base, cell, (None, None))
