"""A workload as it is written: a built-in's name, `file.py:name` or `package.module:name`."""

import ast
import hashlib
from pathlib import Path
from typing import NamedTuple

from trainlab.errors import WorkloadError
from trainlab.spec.base import name_hint
from trainlab.spec.facts import is_script
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


def with_name(text: str, where: str = "") -> str:
    """A file alone as `file.py:name`, where it makes one workload; WorkloadError where it makes several, or
    none. Any other text as it is."""
    file = text.removesuffix(":")
    if not file.endswith(".py"):
        return text
    before = f"{where}: " if where else ""
    source = _check_file(Path(file))
    names = _workloads_made(source)
    if not names:
        rule = "has no workload; write one, as NAME = trainlab.Workload(…)"
        raise WorkloadError(f"{before}{file}: {rule}, or name what makes it: {file}:NAME")
    if len(names) > 1:
        written = ", ".join(f"{file}:{name}" for name in names)
        raise WorkloadError(f"{before}workload {text!r}: which one? Write one of {written}")
    return f"{file}:{names[0]}"


def file_digest(text: str) -> str | None:
    """SHA-256 of the file that a workload of the user's own is in; None for any other."""
    place = text if is_script(text) else text.rpartition(":")[0]
    if not place.endswith(".py") or not Path(place).is_file():
        return None
    return hashlib.sha256(Path(place).read_bytes()).hexdigest()


def _unknown(text: str) -> str:
    hint = name_hint(text, BUILTIN, f"built in: {', '.join(BUILTIN)}")
    return f"workload {text!r} is not known; {hint}; your own is FILE.py:NAME"


def _check_file(path: Path) -> ast.Module:
    """The file as Python reads it."""
    try:
        source = path.read_bytes()
    except FileNotFoundError:
        raise WorkloadError(
            f"{path}: no such file; name one that has a trainlab.Workload"
        ) from None
    except OSError as error:
        raise WorkloadError(f"{path}: cannot be read: {error.strerror or error}") from None
    try:
        return ast.parse(source, str(path))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        where = f":{line}" if line else ""
        raise WorkloadError(f"{path}{where}: {type(error).__name__}: {error}") from None


def _workloads_made(source: ast.Module) -> list[str]:
    """The names that a file gives to `Workload(…)`, however it calls that."""
    called = {"Workload"}
    names: dict[str, None] = {}
    for line in source.body:
        if isinstance(line, ast.ImportFrom):
            called |= {one.asname for one in line.names if one.name == "Workload" and one.asname}
        if not isinstance(line, ast.Assign | ast.AnnAssign) or not isinstance(line.value, ast.Call):
            continue
        function = line.value.func
        made = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if made in called:
            targets = line.targets if isinstance(line, ast.Assign) else [line.target]
            names |= {one.id: None for one in targets if isinstance(one, ast.Name)}
    return list(names)
