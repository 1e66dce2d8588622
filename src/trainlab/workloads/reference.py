"""A workload as it is written: a built-in's name, `file.py:name` or `package.module:name`."""

import ast
import hashlib
from pathlib import Path
from typing import NamedTuple

from trainlab.errors import WorkloadError
from trainlab.spec.suggestion import name_hint
from trainlab.workloads.catalogue import BUILTIN


class Reference(NamedTuple):
    """Where a user's own workload is."""

    place: str
    """A Python file or a module's name."""
    name: str


def check_reference(text: str, where: str = "") -> Reference:
    """The parts of what a user wrote, `where` she did, for a workload of her own; WorkloadError where it
    cannot be one. Reads a file without running it: that takes torch."""
    place, _, name = text.rpartition(":")
    if not place or not name:
        raise WorkloadError(f"{where}: {_unknown(text)}" if where else _unknown(text))
    if place.endswith(".py"):
        _check_file(Path(place))
    return Reference(place, name)


def file_digest(text: str) -> str | None:
    """SHA-256 of the file that a workload of the user's own is in; None for any other."""
    place, _, _ = text.rpartition(":")
    if not place.endswith(".py") or not Path(place).is_file():
        return None
    return hashlib.sha256(Path(place).read_bytes()).hexdigest()


def _unknown(text: str) -> str:
    if text.endswith((".py", ".py:")):
        file = text.removesuffix(":")
        return f"workload {text!r}: which one? Write {file}:NAME"
    hint = name_hint(text, BUILTIN, f"built in: {', '.join(BUILTIN)}")
    return f"workload {text!r} is not known; {hint}; your own is FILE.py:NAME"


def _check_file(path: Path) -> None:
    try:
        source = path.read_bytes()
    except FileNotFoundError:
        raise WorkloadError(
            f"{path}: no such file; name one that has a trainlab.Workload"
        ) from None
    except OSError as error:
        raise WorkloadError(f"{path}: cannot be read: {error.strerror or error}") from None
    try:
        ast.parse(source, str(path))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        where = f":{line}" if line else ""
        raise WorkloadError(f"{path}{where}: {type(error).__name__}: {error}") from None
