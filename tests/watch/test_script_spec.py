"""A script's arguments in a cell, its seed, its metrics in what it prints, and the folder it runs in."""

import re
import shutil
from pathlib import Path

import pytest

from trainlab.errors import SpecError
from trainlab.lab.script_study import script_study
from trainlab.spec import CostSpec
from trainlab.spec.script import (
    SEED_OPTION,
    ScriptSpec,
    first_option,
    misspelt_option,
    with_argument,
)
from trainlab.watching import script_process
from trainlab.watching.own_metrics import Searched
from trainlab.watching.script_process import clear_workplace, make_workplace


def test_an_argument_is_set_whether_it_was_there_or_not() -> None:
    cases: list[tuple[str, bool | int | float | str, str]] = [
        ("--epochs 3", 16, "--epochs 3 --b 16"),
        ("--b 64 --epochs 3", 16, "--epochs 3 --b 16"),
        ("--b=64 -x", 0.5, "-x --b 0.5"),
        ("--b --x", True, "--x --b"),
        ("--b -1 --x", 2, "--x --b 2"),
        ("--b --x", False, "--x"),
        ("--bb 1", "adam", "--bb 1 --b adam"),
        ("b=64 x.b=1 +c", 16, "b=16 x.b=1 +c"),
        ("b=yes", False, "b=false"),
    ]
    for before, level, after in cases:
        assert with_argument(before.split(), "--b", level) == after.split()


def test_seeds_go_to_the_scripts_own_option_and_levels_to_theirs() -> None:
    script = ScriptSpec(path="t.py", arguments=("--lr", "1"), seed_argument="--seed")
    levels = {"batch-size": 16, "env.OMP_NUM_THREADS": 2}
    assert script.arguments_for(levels, 3) == ("--lr", "1", "--batch-size", "16", "--seed", "3")
    assert script.environment_for(levels) == {"OMP_NUM_THREADS": "2"}
    given_seed = ScriptSpec(path="t.py", arguments=("--seed", "7"), seed_argument="--seed")
    assert given_seed.arguments_for({}, 3) == ("--seed", "7")


def test_the_option_for_the_seed_is_found_in_the_text_and_goes_with_one_seed_only(
    tmp_path: Path,
) -> None:
    assert first_option(SEED_OPTION, 'parser.add_argument("--seed", type=int)') == "--seed"
    assert first_option(SEED_OPTION, "parser.add_argument('--random-seed')") == "--random-seed"
    assert first_option(SEED_OPTION, "torch.manual_seed(1)") is None
    path = tmp_path / "t.py"
    path.write_text("parser.add_argument('--seed')")
    assert script_study(path, ["--seed", "3"]).script is not None
    with pytest.raises(SpecError, match="--seed: is among the script's arguments"):
        script_study(path, ["--seed=3"], seeds=(1, 2))


def test_what_is_no_script_or_no_pattern_is_refused_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "t.py"
    for text, told in ((None, "no such file"), ("def f(:\n", "no Python"), ("\0", "no Python")):
        if text is not None:
            path.write_text(text)
        with pytest.raises(SpecError, match=told):
            script_study(path)
    path.write_text("")
    for pattern in ("no group", "(two) (groups)", "(unclosed"):
        with pytest.raises(SpecError, match="metrics"):
            script_study(path, metrics={"accuracy": pattern})


def test_metrics_are_found_in_lines_however_they_are_written() -> None:
    found: list[tuple[str, float]] = []
    patterns = {"accuracy": r"Accuracy: .*\((\d+)%\)", "loss": r"loss ([-\d.e,]+)"}
    output = Searched(patterns, lambda name, value: found.append((name, value)))
    for part in ("Test: Accu", "racy: 91/100 (91%)\nloss 1,234.5\rloss nothing\n", "loss -2e-3"):
        output.search(part)
    output.search()
    assert found == [("accuracy", 0.91), ("loss", 1234.5), ("loss", -0.002)]


OPTIONS = """
parser.add_argument("--batch-size"); parser.add_argument('--lr'); parser.add_argument("--shuffle")
parser.add_argument("--epochs")
"""


def test_a_factor_that_is_an_option_misspelt_is_refused_before_the_script_runs(
    tmp_path: Path,
) -> None:
    meant = {"batchsize": "batch-size", "batch_size": "batch-size", "epocs": "epochs"}
    # What an option begins with, one of another file's, argparse.BooleanOptionalAction, and others.
    names = ("batch-size", "batch", "lrf", "no-shuffle", "env.OMP_NUM_THREADS", "-b", "momentum")
    for name in (*meant, *names):
        assert misspelt_option(name, OPTIONS) == meant.get(name), name
    (tmp_path / "train.py").write_text(OPTIONS)
    told = "--vary batchsize: the script has no option --batchsize; did you mean batch-size?"
    with pytest.raises(SpecError, match=re.escape(told)):
        script_study(tmp_path / "train.py", vary={"batchsize": [16, 64]})


def tree_of(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text() for path in files}


def test_a_script_finds_what_lies_around_its_folder_and_writes_into_its_own(
    tmp_path: Path,
) -> None:
    """Also where it writes over what it finds; and where the run folder itself lies there."""
    home = tmp_path / "home"
    origin = home / "project"
    names = ("best.txt", "models/last.txt", "models/old/first.txt", "runs/own/model.txt")
    for name in (*names, "../shared/b.txt", "../../above.txt", "../../far/data/c.txt"):
        (origin / name).parent.mkdir(parents=True, exist_ok=True)
        (origin / name).write_text(name)
    before = tree_of(tmp_path)
    place = origin / "runs" / "r" / "trials" / "t" / "work"
    work = make_workplace(place, origin)
    assert {name: (work / name).read_text() for name in names} == {name: name for name in names}
    for name in ("../shared/b.txt", "../../above.txt", "../../far/data/c.txt"):
        assert (work / name).read_text() == name
    assert [path.name for path in (work / "runs").iterdir()] == ["own"], "else round in circles"
    (work / "best.txt").write_text("better")
    (work / "models" / "last.txt").write_text("later")
    (work / "models" / "new.txt").write_text("new")
    (work / "models" / "old" / "first.txt").unlink()
    (work / ".." / "shared" / "b.txt").write_text("mine")
    clear_workplace(place)
    assert tree_of(work.parent) == {
        "project/best.txt": "better",
        "project/models/last.txt": "later",
        "project/models/new.txt": "new",
        "shared/b.txt": "mine",
    }
    shutil.rmtree(origin / "runs" / "r")
    assert tree_of(tmp_path) == before


def test_what_is_too_large_or_too_much_to_copy_is_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script_process, "MOST_FILE_BYTES", 10)
    monkeypatch.setattr(script_process, "MOST_IN_FOLDER", 3)
    origin = tmp_path / "home" / "project"
    (origin / "pictures").mkdir(parents=True)
    for number in range(4):
        (origin / "pictures" / f"{number}.png").write_text("p")
    (origin / "large.pt").write_text("x" * 11)
    (origin / "small.pt").write_text("x")
    (origin / "round").symlink_to(origin)
    (origin / "empty").mkdir()
    place = tmp_path / "run" / "trials" / "t" / "work"
    work = make_workplace(place, origin)
    links = sorted(path.name for path in work.rglob("*") if path.is_symlink())
    assert links == ["large.pt", "pictures", "round"]
    assert len(list((work / "pictures").iterdir())) == 4
    (work / "empty" / "new").write_text("n")
    assert not list((origin / "empty").iterdir())
    (work / "empty" / "new").unlink()
    clear_workplace(place)
    assert not place.exists()
    assert len(list((origin / "pictures").iterdir())) == 4


def test_what_cannot_be_measured_of_a_script_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("")
    for mode in ("inference", "both"):
        with pytest.raises(SpecError, match=f"--mode: got {mode}, but a script is timed as it"):
            script_study(script, cost=CostSpec(mode=mode))
    with pytest.raises(SpecError, match="--weights: got trained, but a script makes its own"):
        script_study(script, cost=CostSpec(weights="trained"))
