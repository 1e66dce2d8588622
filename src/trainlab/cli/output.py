"""What verbs print: lines and JSON, apart from what the user's code prints."""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any

from pydantic_core import from_json, to_json
from rich.console import Console
from rich.text import Text

from trainlab.report.wrapping import wrapped


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


def say(console: Console, text: str, style: str = "") -> None:
    """Lines of plain text, whatever they hold; on a terminal broken at gaps, else left whole."""
    for line in text.split("\n"):
        parts = wrapped(line, console.width) if console.is_terminal and line else [line]
        for part in parts:
            console.print(Text(part, style), soft_wrap=True, highlight=False)


def print_lines(lines: Iterable[object]) -> None:
    """Lines on stdout, as they are."""
    for line in lines:
        sys.stdout.write(f"{line}\n")


def print_json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """One JSON value on stdout, and nothing else; null for numbers that JSON cannot hold."""
    sys.stdout.write(json.dumps(from_json(to_json(value, inf_nan_mode="null"))) + "\n")
