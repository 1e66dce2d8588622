"""Change: what is done to torch before a script runs, and undone when it has ended."""

from collections.abc import Callable
from contextlib import ExitStack
from types import CodeType
from typing import Any

from trainlab.spec.script import ChangeName

MISSING = object()


class ChangeError(Exception):
    """The change cannot be made to this script."""


class UnusedChangeError(ChangeError):
    """It made no difference to anything that the script did."""


class Change:
    """One change under way. `code`, where there is one, runs in place of the script's own."""

    def __init__(self, name: ChangeName, value: str) -> None:
        self.name, self.value = name, value
        self.code: CodeType | None = None
        self.on_step: Callable[[], None] | None = None
        """Is called at the end of every step."""
        self.num_uses = 0
        """Times that it has made a difference."""
        self._undo = ExitStack()

    @property
    def number(self) -> int:
        """Its value as a positive number."""
        try:
            number = int(self.value)
        except ValueError:
            number = 0
        if number < 1:
            raise ChangeError(f"{self.name}: got {self.value!r}, must be a whole number from 1 on")
        return number

    def put(self, owner: Any, name: str, value: Any) -> None:
        """Sets an attribute, which may be new, until the change is undone."""
        if (before := vars(owner).get(name, MISSING)) is MISSING:
            self._undo.callback(delattr, owner, name)
        else:
            self._undo.callback(setattr, owner, name, before)
        setattr(owner, name, value)

    def close(self) -> None:
        """Undoes it."""
        self._undo.close()

    def check_used(self) -> None:
        """UnusedChangeError where it made no difference."""
        if not self.num_uses:
            raise UnusedChangeError(f"{self.name}: the script does nothing that it would change")
