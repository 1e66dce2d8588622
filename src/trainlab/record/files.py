"""Plain files, written whole or not at all, and lines appended as they happen."""

import errno
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from trainlab.errors import RecordError


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns a full disk, a missing folder or a forbidden one into one line that names the file."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        remedy = "free some space or choose another --out" if full else "choose another --out"
        raise RecordError(f"{path}: cannot be written: {reason}; {remedy}") from error


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns a missing or forbidden file into one line that names it."""
    try:
        yield
    except FileNotFoundError:
        raise RecordError(f"{path}: no such file") from None
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror or error}") from None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to, renamed to `path` only if the block succeeds."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    with writing(path):
        try:
            yield part
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Writes beside and renames, so that a reader finds the old file or the new one, never half."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    with replacing(path) as part:
        part.write_text(text + "\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, or a RecordError that names the file and the fault."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse)
    except FileNotFoundError:
        raise RecordError(f"{path}: is missing; was the run folder copied whole?") from None
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise RecordError(f"{path}: is not JSON: {error}; copy the run folder again") from None
    if not isinstance(value, dict):
        kind = type(value).__name__
        raise RecordError(f"{path}: holds a {kind}, must be an object; copy the run folder again")
    return value


class LineWriter:
    """A file of JSON lines; each is handed to the system before the next begins."""

    def __init__(self, path: Path, *, append: bool = False) -> None:
        """A new file, which must not exist yet, unless lines may be appended to an old one."""
        self.path = path
        with writing(path):
            self._stream = path.open("a" if append else "x", encoding="utf-8")

    def write(self, value: Mapping[str, Any]) -> None:
        """Appends one line."""
        with writing(self.path):
            self._stream.write(json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n")
            self._stream.flush()

    def close(self) -> None:
        """Closes the file."""
        with writing(self.path):
            self._stream.close()


def numbered_lines(path: Path, holding: str = "") -> Iterator[tuple[int, dict[str, Any]]]:
    """The complete lines of a JSON-lines file that hold a text, each with its number from 1; one cut off by
    a crash is left out. A RecordError names the line that is no JSON object."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror or error}") from None
    content = content[: content.rfind(b"\n") + 1]
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise RecordError(f"{path}: line {number}: is not UTF-8: {error.reason}") from None
    for number, line in enumerate(text.split("\n")[:-1], 1):
        if holding not in line and line[:1] == "{" and line[-1:] == "}":
            continue
        try:
            value = json.loads(line, parse_constant=_refuse)
        except ValueError as error:
            raise RecordError(f"{path}: line {number}: is not JSON: {error}") from None
        if not isinstance(value, dict):
            kind = type(value).__name__
            raise RecordError(f"{path}: line {number}: holds a {kind}, must be an object")
        yield number, value


def _refuse(name: str) -> NoReturn:
    """Python reads NaN and Infinity, which JSON does not have and which are never written here."""
    raise ValueError(f"{name} is no number in JSON")
