"""A workload as it is written: a built-in's name, `file.py:name` or `package.module:name`. No torch here:
built-ins are described for help texts, tables and plans, and a file is read without running it."""

import ast
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from trainlab.errors import WorkloadError
from trainlab.spec.base import name_hint
from trainlab.spec.facts import WorkloadFacts, is_script


@dataclass(frozen=True, kw_only=True)
class CatalogueEntry(WorkloadFacts):
    """A built-in workload: what a study needs to know of it, and where its code is."""

    summary: str
    module: str
    images: str
    """The data set it learns from."""


_STEPPED = {"schedule": "step", "lr_gamma": 0.7}
_ENTRIES = (
    CatalogueEntry(
        name="mnist-cnn",
        summary="two convolutions and two linear layers on MNIST (the PyTorch example)",
        module="trainlab.workloads.mnist_cnn",
        images="mnist",
        defaults={"epochs": 1, "batch_size": 64, "optimizer": "adadelta", "lr": 1.0, **_STEPPED},
        parameters=(),
        metrics=("accuracy",),
        loss_parameters=("ignore_index", "reduction"),
    ),
    CatalogueEntry(
        name="fashion-mlp",
        summary="one hidden layer of 128 on Fashion-MNIST",
        module="trainlab.workloads.fashion_mlp",
        images="fashion-mnist",
        defaults={"epochs": 5, "batch_size": 32, "optimizer": "adam", "lr": 0.001},
        parameters=("hidden",),
        metrics=("accuracy",),
        model_defaults={"hidden": 128},
        loss_parameters=("ignore_index", "reduction", "label_smoothing"),
    ),
)
BUILTIN: Mapping[str, CatalogueEntry] = MappingProxyType({entry.name: entry for entry in _ENTRIES})


def check_reference(text: str, where: str = "") -> tuple[str, str]:
    """A file or a module's name, and the name in it, of a workload of the user's own; WorkloadError where
    the text cannot be one."""
    place, _, name = text.rpartition(":")
    if not place or not name:
        hint = name_hint(text, BUILTIN, f"built in: {', '.join(BUILTIN)}")
        problem = f"workload {text!r} is not known; {hint}; your own is FILE.py:NAME"
        raise WorkloadError(f"{where}: {problem}" if where else problem)
    if place.endswith(".py"):
        _check_file(Path(place))
    return place, name


def with_name(text: str, where: str = "") -> str:
    """A file alone as `file.py:name`, where it makes one workload; any other text as it is."""
    file = text.removesuffix(":")
    if not file.endswith(".py"):
        return text
    before = f"{where}: " if where else ""
    names = _workloads_made(_check_file(Path(file)))
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


def _check_file(path: Path) -> ast.Module:
    """The file as Python reads it."""
    try:
        return ast.parse(path.read_bytes(), str(path))
    except FileNotFoundError:
        rule = "no such file; name one that has a trainlab.Workload"
        raise WorkloadError(f"{path}: {rule}") from None
    except OSError as error:
        raise WorkloadError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        where = f":{line}" if line else ""
        raise WorkloadError(f"{path}{where}: {type(error).__name__}: {error}") from None


def _workloads_made(source: ast.Module) -> list[str]:
    """The names that a file gives to `Workload(…)`."""
    names: dict[str, None] = {}
    for line in source.body:
        if not isinstance(line, ast.Assign | ast.AnnAssign) or not isinstance(line.value, ast.Call):
            continue
        function = line.value.func
        made = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if made == "Workload":
            targets = line.targets if isinstance(line, ast.Assign) else [line.target]
            names |= {one.id: None for one in targets if isinstance(one, ast.Name)}
    return list(names)
