"""Constructors that users call: what they are given by a wrong name, or not at all, is told by name."""

import dataclasses
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from trainlab.errors import DataError, TrainlabError
from trainlab.spec.base import name_hint

Kind = TypeVar("Kind")
PLACE = "_trainlab_place"
"""The attribute of what a user makes that has the file and the line of her call."""


def tells_names(
    also_called: dict[str, str], raised: type[TrainlabError] = DataError
) -> Callable[[type[Kind]], type[Kind]]:
    """A dataclass whose constructor suggests the field that was meant, by its spelling or by a name that
    others use for it. A traceback of what it raises ends at the line that called it."""

    def explained(kind: type[Kind]) -> type[Kind]:
        made = kind.__init__
        fields = [one for one in dataclasses.fields(kind) if not one.name.startswith("_")]  # type: ignore[arg-type]
        names = [one.name for one in fields]
        placed = [one.name for one in fields if not one.kw_only]
        needed = [one.name for one in fields if _is_needed(one)]

        @wraps(made)
        def construct(self: Any, *given: Any, **named: Any) -> None:
            for name in named:
                if name not in kind.__dataclass_fields__:  # type: ignore[attr-defined]
                    hint = name_hint(name, names, f"known: {', '.join(names)}", also_called)
                    raise raised(f"{kind.__name__}: has no field {name!r}; {hint}")
            if len(given) > len(placed):
                rule = f"write {names[len(placed)]}=…" if len(names) > len(placed) else ""
                told = f"{kind.__name__}: got a value without a name"
                raise raised(f"{told}; {rule}" if rule else told)
            if missing := [one for one in needed if one not in (*placed[: len(given)], *named)]:
                told = ", ".join(f"{one}=…" for one in missing)
                raise raised(f"{kind.__name__}: lacks {', '.join(missing)}; give {told}")
            object.__setattr__(self, PLACE, _line_of(sys._getframe(1)))
            try:
                made(self, *given, **named)
            except TrainlabError as error:
                raise error.with_traceback(None) from None

        kind.__init__ = construct  # type: ignore[method-assign]
        return kind

    return explained


def _is_needed(one: "dataclasses.Field[Any]") -> bool:
    missing = dataclasses.MISSING
    return one.default is missing and one.default_factory is missing


def _line_of(frame: FrameType) -> str:
    """`folder/file.py:12`; empty for what was typed into a session."""
    file = frame.f_code.co_filename
    return f"{file}:{frame.f_lineno}" if Path(file).is_file() else ""
