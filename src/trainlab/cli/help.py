"""Help pages: names and what they mean, in groups, for the width of the terminal. Imports next to nothing,
so that help is there at once."""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from trainlab.report.wrapping import cells, wrapped

OF_A_VERB = "`{path} VERB --help` shows the options of a verb."
NARROWEST, WIDEST = 60, 100
STOPS = "[。；]"  # noqa: RUF001
NAME_WIDTH = 25
"""Columns for names; beside a longer one its meaning begins on the next line."""


class Group(NamedTuple):
    """Options of one subject."""

    title: str
    rows: Sequence[tuple[str, str]]
    """Names, and what they mean."""


class Texts:
    """Texts of help pages in a language: as the code has them, or their Chinese in words/help.toml."""

    def __init__(self, lang: str) -> None:
        self.lang = lang
        self._chinese: dict[str, str] = {}
        if lang == "zh":
            import tomllib
            from pathlib import Path

            file = Path(__file__).parents[1] / "words" / "help.toml"
            for table in tomllib.loads(file.read_text(encoding="utf-8")).values():
                self._chinese.update(table)

    def __call__(self, text: str, **values: object) -> str:
        """A text with the values filled in for the names in it; in English where it has no Chinese."""
        told = self._chinese.get(text, text)
        return told.format(**values) if values else told

    def first_sentence(self, text: str) -> str:
        """The text up to its first full stop or semicolon, for a table of contents."""
        is_chinese = text in self._chinese
        first = re.split(STOPS if is_chinese else "[.;] |[.]$", self(text))[0]
        return first + ("。" if is_chinese else ".")


def headed(heading: str, text: str) -> str:
    """A text after its heading; a Chinese colon brings its own space."""
    return f"{heading} {text}" if heading.isascii() else f"{heading}{text}"


def help_page(usage: str, summary: str, groups: Iterable[Group], ending: str = "") -> str:
    """The whole page; `ending` is its last line."""
    width = min(max(_terminal_width(), NARROWEST), WIDEST)
    parts = ["\n".join(wrapped(usage, width - 7, " " * 7)).strip()]
    parts += ["\n".join(wrapped(text, width)) for text in (summary,) if text]
    parts += ["\n".join(_group_lines(group, width)) for group in groups if group.rows]
    parts += ["\n".join(wrapped(ending, width))] if ending else []
    return "\n\n".join(parts) + "\n"


def _group_lines(group: Group, width: int) -> Iterator[str]:
    yield _bold(group.title)
    column = max((cells(name) for name, _ in group.rows if cells(name) <= NAME_WIDTH), default=0)
    indent = " " * (column + 4)
    for name, meaning in group.rows:
        lines = wrapped(meaning, width - len(indent))
        if cells(name) > column:
            yield from (f"  {line}" for line in wrapped(name, width - 2))
        else:
            first = next(lines, "")
            yield f"  {name}{' ' * (column - cells(name) + 2)}{first}".rstrip()
        yield from (indent + line for line in lines)


def _bold(text: str) -> str:
    plain = not sys.stdout.isatty() or "NO_COLOR" in os.environ
    return text if plain else f"\033[1m{text}\033[0m"


def _terminal_width() -> int:
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal():
        return int(columns)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError):
        return 80
