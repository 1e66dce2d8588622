"""The house rules a machine can check: import direction, public names, what is imported when."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import trainlab

SOURCE = Path(trainlab.__file__).parent

ORDER = [
    "errors",
    "spec",
    "plan",
    "studies",
    "record",
    "data",
    "workloads",
    "train",
    "instruments",
    "execute",
    "lab",
    "cli",
]
"""A room imports only from rooms to its left."""

ANALYSE = {"errors", "spec", "plan", "record", "analyse"}
READERS = {"analyse": ANALYSE, "report": {*ANALYSE, "report"}}
"""Rooms on the other side of the run folder: they read records and never import torch."""


def imports_of(path: Path) -> set[str]:
    """The rooms of trainlab a file imports from, type-checking imports included."""
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "trainlab":
            names = [trainlab._HOMES.get(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        else:
            continue
        rooms |= {name.split(".")[1] for name in names if name.startswith("trainlab.")}
    return rooms


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@pytest.mark.parametrize(
    "path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE))
)
def test_imports_go_one_way(path: Path) -> None:
    room = room_of(path)
    if room in ("__init__", "__main__"):
        return
    allowed = READERS.get(room) or set(ORDER[: ORDER.index(room) + 1])
    if room in ("lab", "cli"):
        allowed |= set(READERS)
    if room == "studies":
        allowed = {"errors", "spec", "studies"}
    assert imports_of(path) <= allowed, f"{room} must not import {imports_of(path) - allowed}"


def test_every_public_name_can_be_imported() -> None:
    assert trainlab.__all__ == [
        *("__version__", "Dataset", "Instrument", "Run", "RunFolder", "Split", "Study"),
        *("TrainSpec", "TrainlabError", "Trial", "Workload", "open_run", "run"),
    ]
    for name in trainlab.__all__:
        assert getattr(trainlab, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        trainlab.nope  # noqa: B018


def loaded_after(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "code",
    [
        "import trainlab",
        "import trainlab.cli; trainlab.cli.build(['--help'])",
        "import trainlab.cli; trainlab.cli.build(['run', '--help'])",
        "import trainlab.cli; trainlab.cli.build(['data', 'list'])",
        "import trainlab.record.folder, trainlab.record.environment",
        "import trainlab.analyse.cost",
        "import trainlab; trainlab.open_run",
        "import trainlab.cli; trainlab.cli.build(['studies'])",
        "import trainlab.cli; trainlab.cli.build(['show'])",
        "import trainlab.cli; trainlab.cli.build(['compare'])",
    ],
)
def test_torch_is_not_imported_where_it_is_not_needed(code: str) -> None:
    assert "torch" not in loaded_after(code)


def test_help_does_not_even_import_the_specs() -> None:
    loaded = loaded_after("import trainlab.cli; trainlab.cli.build(['--help'])")
    assert "trainlab.spec" not in loaded


def test_no_room_is_called_utils() -> None:
    banned = {"utils", "util", "helpers", "common", "misc"}
    assert not banned & {path.stem for path in SOURCE.rglob("*")}
