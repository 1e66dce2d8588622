"""Plain files: written whole and synced, or not at all; lines appended as they happen; read with care."""

import errno
import hashlib
import json
import os
import re
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainlab.errors import RecordError
from trainlab.spec.base import STEERING, plain_value

WAS_CHANGED = "was changed or damaged after it was written"
COPY_AGAIN = "copy the run folder again"
SEAL = re.compile(rb'\n  "[^"\n]*": "([0-9a-f]{64})"\n}\n\Z')
"""The last lines of a JSON file: the sha256 of all lines before them (`head -n -2 FILE | sha256sum`)."""


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
def reading(path: Path, missing: str = "no such file") -> Iterator[None]:
    """Turns a missing or forbidden file into one line that names it."""
    try:
        yield
    except FileNotFoundError:
        raise RecordError(f"{path}: {missing}") from None
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror or error}") from None


@contextmanager
def replacing(path: Path, *, synced: bool = True) -> Iterator[Path]:
    """A new file to write to, renamed to `path` only if the block succeeds. Synced before, so that after a
    power loss there is the old content or the new."""
    with writing(path):
        part = new_part(path)
        try:
            yield part
            if synced:
                sync(part)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


def new_part(path: Path) -> Path:
    """An empty file beside a path, to be renamed to it."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    part.touch(exist_ok=False)
    return part


@contextmanager
def temporary_folder(prefix: str = "trainlab-") -> Iterator[Path]:
    """A folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def sync(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)


def write_json(path: Path, value: Mapping[str, Any], *, synced: bool = True) -> None:
    """Writes beside and renames, so that a reader finds the old file or the new one, never half; its own
    sha256 stands last. Half of a character is written as its escape."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False).removesuffix("\n}")
    lines = f"{text},\n".encode("utf-8", "backslashreplace")
    seal = f'  "sha256": "{hashlib.sha256(lines).hexdigest()}"\n}}\n'
    with replacing(path, synced=synced) as part:
        part.write_bytes(lines + seal.encode())


def read_bytes(path: Path) -> bytes:
    """What a file of a run holds; RecordError where it cannot be read."""
    with reading(path, "is missing; was the run folder copied whole?"):
        return path.read_bytes()


def sha256_of(path: Path) -> str:
    """The digest of a file, as `sha256sum` gives it."""
    return hashlib.sha256(read_bytes(path)).hexdigest()


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, its texts plain, or a RecordError that names the file and the fault: also where it is
    not as it was written. Files of earlier versions have no sha256."""
    content = read_bytes(path)
    try:
        value = _object_in(content)
    except ValueError as error:
        raise RecordError(f"{path}: {error}; {COPY_AGAIN}") from None
    seal, digest = SEAL.search(content), value.pop("sha256", None)
    lines = content[: seal.start() + 1] if seal else b""
    if (seal or digest) and digest != hashlib.sha256(lines).hexdigest():
        raise RecordError(f"{path}: {WAS_CHANGED}; {COPY_AGAIN}")
    return value


class LineWriter:
    """A file of JSON lines; each is handed to the system before the next begins, or with others."""

    def __init__(self, path: Path, *, append: bool = False) -> None:
        """A new file, which must not exist yet, unless lines may be appended to an old one."""
        self.path = path
        with writing(path):
            self._stream = path.open(
                "a" if append else "x", encoding="utf-8", errors="backslashreplace"
            )

    def write(self, *values: Mapping[str, Any]) -> None:
        with writing(self.path):
            for value in values:
                self._stream.write(json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n")
            self._stream.flush()

    def close(self) -> None:
        with writing(self.path):
            self._stream.close()


def numbered_lines(path: Path, holding: str = "") -> Iterator[tuple[int, dict[str, Any]]]:
    """The complete lines of a JSON-lines file that hold a text, each with its number from 1; one cut off by
    a crash is left out. A RecordError names the line that is no JSON object."""
    content = read_bytes(path)
    for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), 1):
        if holding.encode() not in line and line[:1] == b"{" and line[-1:] == b"}":
            continue
        try:
            yield number, _object_in(line)
        except ValueError as error:
            raise RecordError(f"{path}: line {number}: {error}") from None


def _object_in(content: bytes) -> dict[str, Any]:
    """A JSON object with its texts plain: without characters that would steer a terminal. ValueError."""
    try:
        text = content.decode("utf-8")
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"holds a {type(value).__name__}, must be an object")
    # Most files hold no such character, neither as it is nor as its escape.
    plain: dict[str, Any] = plain_value(value) if "\\u" in text or STEERING.search(text) else value
    return plain
