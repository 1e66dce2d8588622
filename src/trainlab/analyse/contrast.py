"""Which cells are compared with which: those that differ by one factor, each with its reference."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainlab.spec import Cell
from trainlab.spec.train import Scalar


@dataclass(frozen=True)
class Contrast:
    """Two cells that differ by the levels of `factor` alone, as declared."""

    factor: str
    reference: Cell
    other: Cell
    levels: tuple[Scalar | None, Scalar | None]
    """Of the reference and of the other; None where several factors make up one change."""


def contrasts(cells: Sequence[Cell]) -> list[Contrast]:
    """Every cell against its reference.

    In a grid that is the cell with the factor's first level and all else equal. Around a base it is
    the base, also for a cell that changes several settings at once.
    """
    if cells and not cells[0].levels:
        base = cells[0]
        return [_against_base(base, cell) for cell in cells[1:]]
    found = []
    by_levels = {tuple(sorted(cell.levels.items(), key=str)): cell for cell in cells}
    first = dict(reversed([(n, lv) for cell in cells for n, lv in cell.levels.items()]))
    for factor, level in first.items():
        for cell in cells:
            if cell.levels.get(factor, level) == level:
                continue
            key = tuple(sorted({**cell.levels, factor: level}.items(), key=str))
            if (reference := by_levels.get(key)) is not None:
                levels = (level, cell.levels[factor])
                found.append(Contrast(factor, reference, cell, levels))
    return found


def level_of(cell: Cell, factor: str) -> Scalar | None:
    """The level of any factor in a cell, also where the cell does not change it."""
    outer, dot, inner = factor.partition(".")
    value: Any = getattr(cell.settings, outer)
    found: Scalar | None = cell.levels.get(factor, value.get(inner)) if dot else value
    return cell.settings.start_lr if found is None and factor == "lr" else found


def _against_base(base: Cell, cell: Cell) -> Contrast:
    if len(cell.levels) != 1:
        return Contrast(",".join(cell.levels), base, cell, (None, None))
    (factor,) = cell.levels
    return Contrast(factor, base, cell, (level_of(base, factor), cell.levels[factor]))
