"""The house rules a machine can check: import direction, circles, sizes, public names, lazy imports."""

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import trainlab

SOURCE = Path(trainlab.__file__).parent

ASKED = (
    *("errors", "extras", "language", "stats", "spec", "studies"),
    *("plan", "resolve", "record", "words"),
)
READERS = (*ASKED, "analysis", "report", "export")
FILLERS = ("machine", "data", "workloads", "train", "instruments", "measure", "watching", "execute")
MAKERS = (*ASKED, *FILLERS)
"""The two sides of the run folder; on each, a room imports only from rooms to its left."""

NARROWER: Mapping[str, tuple[str, ...]] = {
    "stats": ("errors",),
    "studies": ("errors", "spec"),
    "record": ("errors", "spec", "plan"),
    "resolve": ("errors", "spec", "plan"),
    "words": ("errors", "spec"),
    "machine": ("errors", "spec", "record"),
    "lab": (*MAKERS, *READERS),
    "cli": (*MAKERS, *READERS, "lab"),
    "page": (*MAKERS, *READERS, "lab", "cli"),
}
"""Rooms that may import less than all to their left, and those on top of both sides."""


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in sorted(SOURCE.rglob("*.py"))}
TREES = {name: list(ast.walk(ast.parse(path.read_text()))) for name, path in MODULES.items()}


def imports_in(nodes: Iterable[ast.AST], package: Sequence[str]) -> Iterator[str]:
    """The modules that code of a package imports, wherever in it, relative imports resolved; of other
    programs than trainlab too."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            home = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{home}.{alias.name}"
                own = trainlab._HOMES.get(alias.name, home) if home == "trainlab" else home
                yield inner if inner in MODULES else own


def imported_by(name: str) -> set[str]:
    is_package = MODULES[name].name == "__init__.py"
    package = name.split(".") if is_package else name.split(".")[:-1]
    return set(imports_in(TREES[name], package)) - {name}


GRAPH = {name: {one for one in imported_by(name) if one in MODULES} for name in MODULES}


def room_of(module: str) -> str:
    return [*module.split("."), ""][1]


def allowed_for(room: str) -> tuple[str, ...]:
    if room in NARROWER:
        return (*NARROWER[room], room)
    side = MAKERS if room in MAKERS else READERS
    return side[: side.index(room) + 1]


def test_imports_go_one_way() -> None:
    for module in (name for name in MODULES if room_of(name) not in ("", "__main__")):
        rooms = {room_of(name) for name in GRAPH[module] - {"trainlab"}}
        against = rooms - set(allowed_for(room_of(module)))
        assert not against, f"{module} must not import {against}"


def test_no_module_imports_itself_through_others() -> None:
    try:
        tuple(TopologicalSorter({n: GRAPH[n] - {"trainlab"} for n in GRAPH}).static_order())
    except CycleError as error:
        raise AssertionError(error.args[1]) from None


def test_rooms_of_values_hold_no_torch_and_no_clock() -> None:
    rooms = ("record", "stats", "spec", "words", "analysis", "report")
    for name in (name for name in MODULES if room_of(name) in rooms):
        programs = {one.partition(".")[0] for one in imported_by(name)}
        assert not programs & {"torch", "time"}, name
        calls = {node.attr for node in TREES[name] if isinstance(node, ast.Attribute)}
        assert not calls & {"now", "utcnow", "today", "perf_counter", "monotonic"}, name


def test_every_public_name_can_be_imported() -> None:
    classes = (
        "Dataset Instrument OfWholeSet Run RunFolder Split Study TrainSpec TrainlabError Trial"
    )
    verbs = "gate log open_run profile run search watch"
    names = f"__version__ {classes} TrialsFailedWarning Workload {verbs}".split()
    assert trainlab.__all__ == names
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
