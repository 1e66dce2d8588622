"""The command, called in the test's own process, where torch is loaded already."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Done:
    """What a verb printed."""

    stdout: str
    stderr: str


Verb = Callable[..., Done]
