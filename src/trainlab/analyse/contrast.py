"""Which cells are compared with which: those that differ by one factor, each with its reference."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainlab.spec import Cell
from trainlab.spec.settings import Scalar


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


def contrasts(cells: Sequence[Cell]) -> list[Contrast]:
    """Every cell against its reference.

    In a grid that is the cell with the factor's first level and all else equal. Around a base it is
    the base, also for a cell that changes several settings at once. A cell listed beside a grid that
    has no such neighbour is compared with the grid's first.
    """
    if cells and not cells[0].levels:
        base = cells[0]
        return [_against_base(base, cell) for cell in cells[1:]]
    factors = tuple(dict.fromkeys(name for cell in cells for name in cell.levels))
    places = {_place(cell, factors): cell for cell in cells}
    found = [
        Contrast(factor, reference, cell, (level_of(reference, factor), level_of(cell, factor)))
        for number, factor in enumerate(factors)
        for cell in cells
        if (reference := _reference(cell, number, factors, places, cells[0])) is not None
    ]
    compared = {one.other.id for one in found} | {one.reference.id for one in found}
    alone = [cell for cell in cells[1:] if cell.id not in compared]
    return found + [_against_base(cells[0], cell) for cell in alone]


def level_of(cell: Cell, factor: str) -> Scalar | None:
    """The level of any factor in a cell, also where the cell does not change it."""
    outer, dot, inner = factor.partition(".")
    value: Any = getattr(cell.settings, outer)
    found: Scalar | None = cell.levels.get(factor, value.get(inner)) if dot else value
    return cell.settings.start_lr if found is None and factor == "lr" else found


def _place(cell: Cell, factors: Sequence[str]) -> tuple[str, ...]:
    """Where a cell lies among all that varies; by text, for 1 and true are equal to Python."""
    return tuple(repr(_plain(level_of(cell, factor))) for factor in factors)


def _plain(level: Scalar | None) -> Scalar | None:
    return float(level) if isinstance(level, int) and not isinstance(level, bool) else level


def _reference(
    cell: Cell,
    number: int,
    factors: Sequence[str],
    places: Mapping[tuple[str, ...], Cell],
    first: Cell,
) -> Cell | None:
    """The cell with the first level of one factor and all else equal; None for such a cell itself."""
    own, start = _place(cell, factors), _place(first, factors)[number]
    return None if own[number] == start else places.get((*own[:number], start, *own[number + 1 :]))


def _against_base(base: Cell, cell: Cell) -> Contrast:
    changed = list(dict.fromkeys([*base.levels, *cell.levels]))
    if len(changed) != 1:
        return Contrast(",".join(changed), base, cell, (None, None))
    (factor,) = changed
    return Contrast(factor, base, cell, (level_of(base, factor), level_of(cell, factor)))
