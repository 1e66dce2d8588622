"""Engines: how updates are made. One is chosen for each group of trials."""

from collections.abc import Sequence

from trainlab.record.note import Note, note
from trainlab.train.engines.eager import EagerEngine
from trainlab.train.engines.engine import Engine
from trainlab.train.engines.graphed import GraphedEngine
from trainlab.train.engines.lanes import LanesEngine
from trainlab.train.moments import GRAINS, Moments

ENGINES: dict[str, Engine] = {
    "eager": EagerEngine(),
    "graphed": GraphedEngine(),
    "lanes": LanesEngine(),
}
"""By the names that the setting `engine` takes."""


def engine_for(name: str, watched_by: Sequence[Moments]) -> tuple[Engine, Note | None]:
    """The engine of that name, or eager with a note where an instrument must see more than it shows."""
    engine = ENGINES["eager" if name == "auto" else name]
    grains = [one.grain_in_program if engine.is_program else one.grain for one in watched_by]
    needed = max(grains, key=GRAINS.index, default="point")
    if GRAINS.index(needed) <= GRAINS.index(engine.shows):
        return engine, None
    too_coarse = note("engine_too_coarse", engine=engine.name, needed=needed, shows=engine.shows)
    return ENGINES["eager"], too_coarse
