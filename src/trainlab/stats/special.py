"""scipy.special, imported with its first use: whoever waits for a script to start does not wait for it."""

from typing import Any


def __getattr__(name: str) -> Any:
    from scipy import special

    return getattr(special, name)
