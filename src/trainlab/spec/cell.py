"""Cell: one combination of levels, with the settings that follow from it."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from trainlab.spec.base import Spec
from trainlab.spec.settings import Scalar, TrainSpec, pairs_of

BASE = "base"
Levels = Mapping[str, Scalar]
"""Factor to level; a parameter of the model is called `model.<name>`."""


class Cell(Spec):
    """One combination of levels."""

    id: str
    """`base`, or its levels as `batch_size=16,lr=0.01`."""
    levels: dict[str, Scalar] = {}
    settings: TrainSpec


def cell_id(levels: Levels) -> str:
    """The levels as one word."""
    parts = (f"{short_name(name)}={level_text(level)}" for name, level in levels.items())
    return ",".join(parts) or BASE


def short_name(factor: str) -> str:
    """A factor as users call it: what belongs to the model or to a script needs no saying so."""
    return factor.removeprefix("model.").removeprefix("script.")


def level_text(level: Scalar) -> str:
    """A level as users write it: true, 0.001, adam."""
    if isinstance(level, bool):
        return str(level).lower()
    # Six digits read better, but two levels must never read the same.
    return f"{level:g}" if isinstance(level, float) and float(f"{level:g}") == level else str(level)


def combinations(vary: Mapping[str, Sequence[Scalar]], design: str) -> list[dict[str, Scalar]]:
    """The levels of each cell: the full grid, or the base and one change at a time."""
    if design == "grid":
        return [dict(zip(vary, levels, strict=True)) for levels in product(*vary.values())]
    return [{}, *({name: level} for name, levels in vary.items() for level in levels)]


def with_levels(settings: Mapping[str, Any], levels: Levels) -> dict[str, Any]:
    """The settings, overridden by a cell's levels; `model.hidden` sets one entry of `model`."""
    merged = dict(settings)
    for name, level in levels.items():
        outer, dot, inner = name.partition(".")
        # A flag gives a mapping as text.
        merged[outer] = {**pairs_of(merged.get(outer, {})), inner: level} if dot else level
    return merged
