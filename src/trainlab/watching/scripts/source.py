"""A script's file, looked at before it runs."""

import ast
from pathlib import Path

from trainlab.errors import SpecError
from trainlab.spec.script import ScriptSpec


def check_script(script: ScriptSpec) -> None:
    """SpecError where there is no such file, or where Python cannot read it."""
    source_of(Path(script.path))


def source_of(path: Path) -> str:
    """The text of a script; SpecError where it is none."""
    try:
        text = path.read_text(encoding="utf-8")
        ast.parse(text)
    except FileNotFoundError:
        raise SpecError([f"{path}: no such file; give the script's path"]) from None
    except OSError as error:
        raise SpecError([f"{path}: cannot be read: {error.strerror or error}"]) from None
    except SyntaxError as error:
        where = f"{path}:{error.lineno}"
        raise SpecError([f"{where}: is no Python: {error.msg}; run it by itself first"]) from None
    except ValueError as error:
        raise SpecError([f"{path}: is no Python: {error}; give a script"]) from None
    return text
