"""A script's file, looked at before it runs."""

import ast
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from trainlab.errors import SpecError
from trainlab.spec.script import ScriptSpec


def check_script(script: ScriptSpec) -> None:
    """SpecError where there is no such file, or where Python cannot read it."""
    source_of(Path(script.path))


def module_file(name: str, folder: Path) -> tuple[str, Path]:
    """The module that `python -m name` runs in a folder, and its file; nothing is imported. SpecError where
    there is none."""
    places: Sequence[str] | None = [str(folder), *sys.path]
    found = None
    for part in name.split("."):
        # By its last part alone: the path of a package without a file asks for the one around it.
        found = PathFinder.find_spec(part, places) if part and places else None
        places = None if found is None else _folders_of(found)
    if found is not None and places is not None:
        name = f"{name}.{MAIN}"
        found = PathFinder.find_spec(MAIN, places)
    if found is None or found.origin is None or Path(found.origin).suffix != ".py":
        rule = "no such module here; give it as `python -m` takes it, from the same folder"
        raise SpecError([f"-m {name}: {rule}"])
    return name, Path(found.origin)


def _folders_of(package: ModuleSpec) -> list[str] | None:
    """Where its modules are; None for a module."""
    places = package.submodule_search_locations
    return None if places is None else list(places)


MAIN = "__main__"
"""The module of a package that is run."""


def source_of(path: Path) -> str:
    """The text of a script; SpecError where it is none."""
    try:
        text = path.read_text(encoding="utf-8")
        ast.parse(text)
    except FileNotFoundError:
        raise SpecError([f"{path}: no such file; give the script's path"]) from None
    except OSError as error:
        raise SpecError(
            [f"{path}: cannot be read: {error.strerror or error}; give the script's path"]
        ) from None
    except SyntaxError as error:
        where = f"{path}:{error.lineno}"
        raise SpecError([f"{where}: is no Python: {error.msg}; run it by itself first"]) from None
    except ValueError as error:
        raise SpecError([f"{path}: is no Python: {error}; give a script"]) from None
    return text
