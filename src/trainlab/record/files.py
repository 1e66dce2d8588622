"""Plain files, written whole or not at all, and lines appended as they happen."""

import errno
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RecordError(f"{path}: no such file; is this a run folder?") from None
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


def read_lines(path: Path, holding: str = "") -> list[dict[str, Any]]:
    """All complete lines of a JSON-lines file that hold a text; one cut off by a crash is left out."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror or error}") from None
    lines = text[: text.rfind("\n") + 1].splitlines()
    try:
        values = [json.loads(line) for line in lines if holding in line]
    except ValueError as error:
        raise RecordError(f"{path}: has a line that is not JSON: {error}") from None
    if not all(isinstance(value, dict) for value in values):
        raise RecordError(f"{path}: has a line that is no object; copy the run folder again")
    return values
