"""What a script tells us itself, where it imports trainlab: `trainlab.log(accuracy=0.98)`."""

from collections.abc import Callable

Hear = Callable[[str, float], None]
_listening: list[Hear] = []


def listen(hear: Hear) -> None:
    """From now on `hear` is told every value."""
    _listening.append(hear)


def stop_listening(hear: Hear) -> None:
    """`hear` is told nothing more."""
    _listening.remove(hear)


def log(**metrics: float) -> None:
    """Tells whoever watches the values of metrics, as `trainlab.log(accuracy=0.98)`; does nothing where
    nobody does, so that a script can keep it."""
    for hear in _listening:
        for name, value in metrics.items():
            hear(name, float(value))
