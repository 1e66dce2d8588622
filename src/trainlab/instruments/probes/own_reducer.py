"""A user's own reducer: `FILE.py:FUNCTION`, a function from a tensor to a tensor of one number."""

import importlib.util
from pathlib import Path

from trainlab.errors import SpecError
from trainlab.instruments.probes.reducers import Reduce, reducer_of_own
from trainlab.spec.probe import ProbeSpec


def own_reducer(spec: ProbeSpec) -> Reduce | None:
    """The function a probe names, or None where its reducer is one of ours."""
    if spec.function is None:
        return None
    place, name = Path(spec.function[0]), spec.function[1]
    if not place.is_file():
        raise SpecError([f"probe {spec}: {place}: no such file"])
    found = importlib.util.spec_from_file_location(f"trainlab_own_{place.stem}", place)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    try:
        found.loader.exec_module(module)
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
        raise SpecError([f"probe {spec}: {place}: cannot be read: {told}"]) from error
    function = getattr(module, name, None)
    if not callable(function):
        names = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        listed = f"; it has {', '.join(names)}" if names else ""
        raise SpecError([f"probe {spec}: {place} has no function {name!r}{listed}"])
    return reducer_of_own(spec, function)
