"""Replaced: a function or method of torch's that is ours for a while."""

from collections.abc import Callable
from typing import Any


class Replaced:
    """Is put in and taken out again, many times; what somebody else has put in its place stays there."""

    def __init__(self, owner: Any, name: str, watched: Callable[..., Any]) -> None:
        """`owner` is a class or a module."""
        self._owner, self._name, self._watched = owner, name, watched
        self._before = owner.__dict__.get(name)
        """None: the method is inherited."""

    def put(self) -> None:
        """From now on calls are seen."""
        if self._owner.__dict__.get(self._name) is self._before:
            setattr(self._owner, self._name, self._watched)

    def take_out(self) -> None:
        """All is as before."""
        if self._owner.__dict__.get(self._name) is not self._watched:
            return
        if self._before is None:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._before)
