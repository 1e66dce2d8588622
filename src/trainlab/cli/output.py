"""What verbs print: words, lines and JSON; what becomes of it where it cannot be written."""

import json
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, TextIO

from trainlab.errors import OutputError
from trainlab.language import VARIABLE, environment_language

if TYPE_CHECKING:
    from rich.console import Console

    from trainlab.words import Words


class Output:
    """A stream whose faults are told in a line, as a full disk behind `>`. A reader that has gone, as
    `head` does, is none: the verb goes on."""

    def __init__(self, stream: TextIO) -> None:
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a path may hold what no encoding has
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with self._telling():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._telling():
            self._stream.flush()

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # Python would try once more as it ends, and complain itself.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
            if isinstance(error, BrokenPipeError):
                return
            reason = error.strerror or str(error)
            raise OutputError(f"standard output: cannot be written: {reason}") from None


@contextmanager
def output_for_programs(is_asked: bool = True) -> Iterator[None]:
    """Sends what the user's code prints to standard error, also what it prints from C or a child process:
    it must not mix with what is printed for programs."""
    if not is_asked:
        yield
        return
    sys.stdout.flush()
    own = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(own, 1)
        os.close(own)


def words_in(lang: str | None) -> "Words":
    """The words of the language asked for, or else of the environment's; SpecError where there are none."""
    from trainlab.words import Words, check_language

    if lang is None and os.environ.get(VARIABLE):
        check_language(os.environ[VARIABLE], VARIABLE)
    return Words(environment_language(os.environ) if lang is None else lang)


def say(console: "Console", text: str, style: str = "") -> None:
    """Lines of plain text, whatever they hold; on a terminal broken at gaps, else left whole."""
    from rich.text import Text

    from trainlab.report.wrapping import wrapped

    for line in text.split("\n"):
        parts = wrapped(line, console.width) if console.is_terminal and line else [line]
        for part in parts:
            console.print(Text(part, style), soft_wrap=True, highlight=False)


def print_json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """One JSON value on stdout, and nothing else; null for numbers that JSON cannot hold."""
    sys.stdout.write(json.dumps(_finite(value), allow_nan=False) + "\n")


def _finite(value: Any) -> Any:
    """The value with None for what is not finite: a difference of the largest numbers there are, say."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(inner) for name, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list | tuple) else value
