"""The house rules a machine can check: import direction, circles, sizes, public names, lazy imports."""

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import trainlab

SOURCE = Path(trainlab.__file__).parent

ASKED = (
    "errors",
    "extras",
    "language",
    "stats",
    "spec",
    "studies",
    "plan",
    "resolve",
    "record",
    "words",
)
READERS = (*ASKED, "analysis", "report", "export")
MAKERS = (
    *(
        *ASKED,
        "machine",
        "data",
        "workloads",
        "train",
        "instruments",
        "measure",
        "watching",
        "execute",
    ),
)
"""The two sides of the run folder; on each, a room imports only from rooms to its left."""

NARROWER: Mapping[str, tuple[str, ...]] = {
    "stats": ("errors",),
    "studies": ("errors", "spec"),
    "record": ("errors", "spec"),
    "resolve": ("errors", "spec", "plan"),
    "words": ("errors", "spec"),
    "machine": ("errors", "spec", "record"),
    "lab": (*MAKERS, *READERS),
    "cli": (*MAKERS, *READERS, "lab"),
}
"""Rooms that may import less than all to their left, and those on top of both sides."""


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in sorted(SOURCE.rglob("*.py"))}


def imports_of(path: Path) -> Iterator[str]:
    """The modules of trainlab that a file imports, wherever in it, relative imports resolved."""
    package = module_of(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            home = ".".join([*above, *([node.module] if node.module else [])])
            if home == "trainlab" and not node.level:
                homes = (trainlab._HOMES.get(alias.name, "") for alias in node.names)
                yield from filter(None, homes)
            for alias in node.names:
                inner = f"{home}.{alias.name}"
                if inner in MODULES:
                    yield inner
                elif home in MODULES and home != "trainlab":
                    yield home


GRAPH = {name: set(imports_of(path)) - {name} for name, path in MODULES.items()}


def room_of(module: str) -> str:
    return [*module.split("."), ""][1]


def allowed_for(room: str) -> tuple[str, ...]:
    if room in NARROWER:
        return (*NARROWER[room], room)
    side = MAKERS if room in MAKERS else READERS
    return side[: side.index(room) + 1]


def test_imports_go_one_way() -> None:
    for module in (name for name in MODULES if room_of(name) not in ("", "__main__")):
        rooms = {room_of(name) for name in GRAPH[module]}
        against = rooms - set(allowed_for(room_of(module)))
        assert not against, f"{module} must not import {against}"


def circle_in(graph: Mapping[str, set[str]]) -> list[str]:
    """One circle of imports, or nothing."""
    done: set[str] = set()
    for start in graph:
        trail: list[str] = []

        def walk(name: str, trail: list[str] = trail) -> list[str]:
            if name in trail:
                return [*trail[trail.index(name) :], name]
            if name in done or name not in graph:
                return []
            trail.append(name)
            for other in sorted(graph[name]):
                if found := walk(other):
                    return found
            trail.pop()
            done.add(name)
            return []

        if found := walk(start):
            return found
    return []


def test_no_module_imports_itself_through_others() -> None:
    assert not circle_in(GRAPH)


def test_relative_imports_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = SOURCE / "stats" / "planted.py"
    monkeypatch.setattr(Path, "read_text", lambda self: "from ..report import contents\n")
    assert set(imports_of(planted)) == {"trainlab.report.contents"}


@pytest.mark.parametrize("room", ["record", "stats", "spec", "words", "analysis", "report"])
def test_rooms_of_values_hold_no_torch_and_no_clock(room: str) -> None:
    files = SOURCE.joinpath(room).rglob("*.py")
    imported = {
        name.partition(".")[0]
        for path in files
        for node in ast.walk(ast.parse(path.read_text()))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert not imported & {"torch", "time"}
    calls = {
        node.attr
        for path in SOURCE.joinpath(room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
    }
    assert not calls & {"now", "utcnow", "today", "perf_counter", "monotonic"}


def test_every_public_name_can_be_imported() -> None:
    assert trainlab.__all__ == [
        *(
            "__version__",
            "Dataset",
            "Instrument",
            "OfWholeSet",
            "Run",
            "RunFolder",
            "Split",
            "Study",
        ),
        *("TrainSpec", "TrainlabError", "Trial", "TrialsFailedWarning", "Workload"),
        *("gate", "log", "open_run", "profile", "run", "watch"),
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


def test_torch_is_not_imported_where_it_is_not_needed() -> None:
    loaded = loaded_after(
        "import trainlab, trainlab.cli, trainlab.record.study_record, trainlab.analysis.measurement\n"
        "trainlab.open_run, trainlab.gate\n"
        "for verb in trainlab.cli.VERBS: trainlab.cli.verb_called(verb)"
    )
    assert {"trainlab.cli.look_verbs", "trainlab.cli.script_verbs"} <= loaded
    assert "torch" not in loaded


def test_a_dry_run_loads_no_torch_and_no_data() -> None:
    loaded = loaded_after(
        "import contextlib, io, trainlab.cli\n"
        "for study in ('mnist-lab', 'fashion-lab', 'mnist-cnn'):\n"
        "    with contextlib.redirect_stdout(io.StringIO()):\n"
        "        words = ['run', study, '--vary', 'lr=0.1,0.2', '--dry-run']\n"
        "        assert trainlab.cli.call(words) == 0"
    )
    assert "trainlab.cli.plan_text" in loaded
    assert not loaded & {"torch", "pandas", "scipy.stats", "pyarrow"}
    assert not [name for name in loaded if name.startswith("trainlab.data")]


def test_help_imports_next_to_nothing() -> None:
    loaded = loaded_after("import trainlab.cli; trainlab.cli.call(['--help'])")
    assert not loaded & {"click", "rich", "pydantic", "trainlab.spec", "trainlab.words"}


def test_no_room_is_called_utils() -> None:
    banned = {"utils", "util", "helpers", "common", "misc"}
    assert not banned & {path.stem for path in SOURCE.rglob("*")}


def test_no_two_test_files_have_one_name() -> None:
    """pytest imports test files by their bare names: the second of one name is not collected."""
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert len(names) == len(set(names)), sorted(name for name in names if names.count(name) > 1)
