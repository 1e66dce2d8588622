"""Finds a workload by what the user wrote: a built-in's name, `file.py:name` or `package.module:name`.

One that was given as an object goes to fresh processes of this machine as a pickle: what is importable by
its name; what was typed into a notebook, a session or a script by value.
"""

import importlib
import importlib.util
import pickle
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import cloudpickle  # type: ignore[import-untyped]

from trainlab.errors import TrainlabError, WorkloadError, said_by
from trainlab.workloads.reference import BUILTIN, check_reference, with_name
from trainlab.workloads.user_code import FILE, own_line
from trainlab.workloads.workload import Workload


def find_workload(reference: str) -> Workload:
    """The workload, or a WorkloadError that says what was looked for and what there is."""
    if reference in BUILTIN:
        workload = importlib.import_module(BUILTIN[reference].module).workload
    else:
        place, name = check_reference(with_name(reference))
        module = _from_file(Path(place)) if place.endswith(".py") else _from_package(place)
        if not hasattr(module, name):
            names = [n for n, value in vars(module).items() if isinstance(value, Workload)]
            known = f"it has {', '.join(names)}" if names else "it has no Workload at all"
            raise WorkloadError(f"{place}: has no {name!r}; {known}")
        workload = getattr(module, name)
    if not isinstance(workload, Workload):
        kind = type(workload).__name__
        raise WorkloadError(f"{reference}: is a {kind}, must be a trainlab.Workload")
    return workload


def _from_file(path: Path) -> ModuleType:
    # A name of our own, so that a file called copy.py does not replace Python's module.
    name = f"trainlab_own_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise WorkloadError(f"{path}: is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    # The file's own folder is importable and stays so, as it is for `python file.py`.
    _make_importable(path.resolve().parent)
    try:
        with FILE:
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        sys.modules.pop(name, None)
        where = own_line(error, str(path)) or path
        raise WorkloadError(f"{where}: {_error_text(error)}") from error
    return module


def _from_package(name: str) -> ModuleType:
    _make_importable(Path.cwd())
    try:
        with FILE:
            return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise WorkloadError(f"{name}: cannot be imported: {_error_text(error)}") from error


def _make_importable(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _error_text(error: BaseException) -> str:
    own = isinstance(error, TrainlabError)
    return str(error) if own else f"{type(error).__name__}: {said_by(error)}"


def sent(workloads: Mapping[str, Workload]) -> dict[str, bytes]:
    """Each workload as a fresh process gets it; WorkloadError where it holds an open file, say."""
    found = {}
    for name, workload in workloads.items():
        # Both are kept in the object: a fresh process could not look at its source again.
        _ = workload.code, workload.facts
        try:
            found[name] = cloudpickle.dumps(workload)
        except Exception as error:
            reason = _error_text(error).partition("\n")[0]
            rule = f"cannot go to a fresh process: {reason}; name it as FILE.py:NAME"
            raise WorkloadError(f"{workload.name}: {rule}") from error
    return found


def received(content: bytes, name: str) -> Workload:
    """The workload that this user's driver has sent; WorkloadError where it cannot be had."""
    try:
        workload = pickle.loads(content)  # noqa: S301  from the driver of this process
    except Exception as error:
        reason = f"{type(error).__name__}: {said_by(error)}"
        raise WorkloadError(f"{name}: a fresh process cannot make it: {reason}") from error
    assert isinstance(workload, Workload)
    return workload
