"""Imports of the script: whoever watches a library is told once it is there."""

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

Then = Callable[[Any], None]
"""Is given the module, all of which has run."""


def on_import(name: str, then: Then) -> Callable[[], None]:
    """Calls `then` with a module when it has been imported, at once where it is there already, and once
    only. Gives what ends the wait."""
    if (module := sys.modules.get(name)) is not None:
        then(module)
        return lambda: None
    waiting = (name, then)
    _finder.waiting.append(waiting)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    return lambda: _finder.forget(waiting)


class _Finder(MetaPathFinder):
    """Finds nothing itself: it asks the others, and has the module's loader tell."""

    def __init__(self) -> None:
        self.waiting: list[tuple[str, Then]] = []
        self._is_asking = False

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if self._is_asking or all(name != own for own, _ in self.waiting):
            return None
        self._is_asking = True
        try:
            spec = find_spec(name)
        finally:
            self._is_asking = False
        loader = getattr(spec, "loader", None)
        if loader is not None and "exec_module" not in vars(loader):
            self._see(loader, name)
        return spec

    def _see(self, loader: Any, name: str) -> None:
        """Of the loader itself only one method is ours, until the module has run: a library finds its
        files by it."""
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            execute(module)
            for waiting in [one for one in self.waiting if one[0] == name]:
                self.forget(waiting)
                waiting[1](sys.modules.get(name, module))

        loader.exec_module = exec_module

    def forget(self, waiting: tuple[str, Then]) -> None:
        """May be called again."""
        if waiting in self.waiting:
            self.waiting.remove(waiting)
        if not self.waiting and self in sys.meta_path:
            sys.meta_path.remove(self)


_finder = _Finder()
