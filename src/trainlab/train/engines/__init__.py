"""Engines: how updates are made. For each group of trials those that could make them are tried in order."""

from collections.abc import Sequence

import torch

from trainlab.record.schema import Note, note
from trainlab.spec import TrainSpec
from trainlab.train.callbacks import GRAINS, Moments
from trainlab.train.engines.ddp import ParallelEngine
from trainlab.train.engines.eager import CompiledEngine, EagerEngine
from trainlab.train.engines.engine import Engine
from trainlab.train.engines.programs import ProgramEngine
from trainlab.train.engines.tuned import TunedEngine

ENGINES: dict[str, Engine] = {
    "eager": EagerEngine(),
    "tuned": TunedEngine(),
    "graphed": ProgramEngine("graphed", takes_many=False),
    "lanes": ProgramEngine("lanes", takes_many=True),
    "compiled": CompiledEngine(),
}
"""By the names that the setting `engine` takes."""
PARALLEL = ParallelEngine()


def engines_for(
    settings: TrainSpec, device: torch.device, *, has_others: bool = False
) -> list[Engine]:
    """The engines to try, the fastest first; the last is always eager. `has_others`: whether the study has
    other learn trials: one engine then makes all, so that no two that are compared differ in it."""
    if settings.processes > 1:
        return [PARALLEL]
    if settings.engine != "auto":
        names = [settings.engine]
    elif settings.optimizer_code != "auto":
        names = []  # what was asked for is one of torch's own
    elif device.type == "cuda":
        names = ["lanes", "graphed"] if has_others else ["graphed"]
    elif device.type == "cpu":
        names = ["tuned"]
    else:
        names = []
    return [ENGINES[name] for name in dict.fromkeys([*names, "eager"])]


def engine_for(settings: TrainSpec, watched_by: Sequence[Moments]) -> tuple[Engine, Note | None]:
    """The engine that is asked for, eager for `auto`; or eager with a note where an instrument must see
    more than the engine shows."""
    if settings.processes > 1:
        return PARALLEL, None
    engine = ENGINES["eager" if settings.engine == "auto" else settings.engine]
    too_coarse = too_coarse_for(engine, watched_by)
    return (engine, None) if too_coarse is None else (ENGINES["eager"], too_coarse)


def too_coarse_for(engine: Engine, watched_by: Sequence[Moments]) -> Note | None:
    """Why the engine cannot show what these instruments watch; None where it can."""
    grains = [one.grain_in_program if engine.is_program else one.grain for one in watched_by]
    needed = max(grains, key=GRAINS.index, default="point")
    if GRAINS.index(needed) <= GRAINS.index(engine.shows):
        return None
    return note("engine_too_coarse", engine=engine.name, needed=needed, shows=engine.shows)
