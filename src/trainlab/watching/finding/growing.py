"""Containers of a script that grow from step to step, and the memory of the tensors that they hold."""

import sys
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from trainlab.record.scripts.watched import GrowingRow

MOST_LOOKED_AT = 8
"""The newest entries of a container that are searched for tensors."""
DEPTH = 3


def containers_of(script: Path) -> Iterator[tuple[str, Any]]:
    """Names and lists, deques and dicts of the functions of a script that run, of its module, and of its
    objects there."""
    seen: set[int] = set()
    for names in _scopes(script):
        for name, value in list(names.items()):
            if name.startswith("__"):
                continue
            for path, one in [(name, value), *_attributes(name, value)]:
                if isinstance(one, list | deque | dict) and id(one) not in seen:
                    seen.add(id(one))
                    yield path, one


def _scopes(script: Path) -> Iterator[Mapping[str, Any]]:
    frame, own = sys._getframe(1), str(script)
    last: Mapping[str, Any] | None = None
    while frame is not None:
        if frame.f_code.co_filename == own:
            yield frame.f_locals
            last = frame.f_globals
        if frame.f_back is None:
            break
        frame = frame.f_back
    if last is not None:
        yield last


def _attributes(name: str, value: Any) -> list[tuple[str, Any]]:
    """Those of an object of a class that the script made."""
    if type(value).__module__ != "__main__":
        return []
    return [(f"{name}.{key}", one) for key, one in getattr(value, "__dict__", {}).items()]


class Growth:
    """Looks at the containers of a script at two steps."""

    def __init__(self, script: Path) -> None:
        self._script = script
        self._first: dict[str, tuple[int, int]] = {}
        self._first_step = 0

    def begin(self, step: int) -> None:
        """The first look."""
        self._first_step = step
        self._first = {name: (id(one), len(one)) for name, one in containers_of(self._script)}

    def rows(self, step: int) -> list[GrowingRow]:
        """Those that have grown since by at least half an entry per step, the largest first."""
        num_steps = step - self._first_step
        if not self._first_step or num_steps < 1:
            return []
        rows = []
        for name, one in containers_of(self._script):
            key, length = self._first.get(name, (0, 0))
            grown = len(one) - length
            if key == id(one) and grown >= 0.5 * num_steps:
                size = _entry_bytes(one) * grown / num_steps
                row = GrowingRow(name=name, entries=grown / num_steps, tensor_bytes=int(size))
                rows.append(row)
        return sorted(rows, key=lambda row: -row.tensor_bytes)


def _entry_bytes(container: Any) -> float:
    """The memory of the tensors of an entry, on average over the newest."""
    entries = list(container.values() if isinstance(container, dict) else container)
    newest = entries[-MOST_LOOKED_AT:]
    storages: dict[int, int] = {}
    for entry in newest:
        for tensor in _tensors(entry, DEPTH):
            storage = tensor.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values()) / max(1, len(newest))


def _tensors(value: Any, depth: int) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif depth and isinstance(value, list | tuple | dict):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _tensors(one, depth - 1)
