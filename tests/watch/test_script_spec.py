"""A script's arguments in a cell, its seed, its metrics in what it prints, and the folder it runs in."""

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainlab.errors import SpecError
from trainlab.lab.scripts import script_study
from trainlab.spec.script import ScriptSpec, seed_argument_of, with_argument
from trainlab.watching.scripts.output import Searched
from trainlab.watching.scripts.workplace import clear_workplace, make_workplace


@pytest.mark.parametrize(
    ("before", "level", "after"),
    [
        (["--epochs", "3"], 16, ["--epochs", "3", "--b", "16"]),
        (["--b", "64", "--epochs", "3"], 16, ["--epochs", "3", "--b", "16"]),
        (["--b=64", "-x"], 0.5, ["-x", "--b", "0.5"]),
        (["--b", "--x"], True, ["--x", "--b"]),
        (["--b", "-1", "--x"], 2, ["--x", "--b", "2"]),
        (["--b", "--x"], False, ["--x"]),
        (["--bb", "1"], "adam", ["--bb", "1", "--b", "adam"]),
    ],
)
def test_an_argument_is_set_whether_it_was_there_or_not(
    before: list[str], level: bool | int | float | str, after: list[str]
) -> None:
    assert with_argument(before, "--b", level) == after


words = st.text("abc-=1.", max_size=6)


@given(st.lists(words, max_size=8), st.integers(0, 99), st.integers(0, 99))
def test_the_last_level_set_is_the_one_that_holds(
    before: list[str], first: int, second: int
) -> None:
    once = with_argument(before, "--level", first)
    assert with_argument(once, "--level", second) == with_argument(before, "--level", second)


def test_seeds_go_to_the_scripts_own_option_and_levels_to_theirs() -> None:
    script = ScriptSpec(path="t.py", arguments=("--lr", "1"), seed_argument="--seed")
    levels = {"batch-size": 16, "env.OMP_NUM_THREADS": 2}
    assert script.arguments_for(levels, 3) == ("--lr", "1", "--batch-size", "16", "--seed", "3")
    assert script.environment_for(levels) == {"OMP_NUM_THREADS": "2"}
    given_seed = ScriptSpec(path="t.py", arguments=("--seed", "7"), seed_argument="--seed")
    assert given_seed.arguments_for({}, 3) == ("--seed", "7")


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ('parser.add_argument("--seed", type=int)', "--seed"),
        ("parser.add_argument('--random-seed')", "--random-seed"),
        ("torch.manual_seed(1)", None),
    ],
)
def test_the_option_for_the_seed_is_found_in_the_text(text: str, option: str | None) -> None:
    assert seed_argument_of(text) == option


@pytest.mark.parametrize("pattern", ["no group", "(two) (groups)", "(unclosed"])
def test_a_pattern_has_one_group(pattern: str, tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("")
    with pytest.raises(SpecError, match="metrics"):
        script_study(tmp_path / "t.py", metrics={"accuracy": pattern})


@pytest.mark.parametrize(
    ("text", "told"),
    [("def f(:\n", "is no Python"), (None, "no such file"), ("\0", "is no Python")],
)
def test_what_is_no_script_is_refused_in_a_line(
    text: str | None, told: str, tmp_path: Path
) -> None:
    path = tmp_path / "t.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SpecError, match=told):
        script_study(path)


def test_a_seed_among_the_arguments_goes_with_one_seed_only(tmp_path: Path) -> None:
    path = tmp_path / "t.py"
    path.write_text("parser.add_argument('--seed')")
    assert script_study(path, ["--seed", "3"]).script is not None
    with pytest.raises(SpecError, match="--seed: is among the script's arguments"):
        script_study(path, ["--seed=3"], seeds=(1, 2))


def test_metrics_are_found_in_lines_however_they_are_written() -> None:
    found: list[tuple[str, float]] = []
    patterns = {"accuracy": r"Accuracy: .*\((\d+)%\)", "loss": r"loss ([-\d.e,]+)"}
    stream = Searched(io.StringIO(), patterns, lambda name, value: found.append((name, value)))
    for part in ("Test: Accu", "racy: 91/100 (91%)\nloss 1,234.5\rloss nothing\n", "loss -2e-3"):
        stream.write(part)
    stream.finish()
    assert found == [("accuracy", 0.91), ("loss", 1234.5), ("loss", -0.002)]


def test_a_script_finds_what_lies_beside_its_folder_and_writes_into_its_own(
    tmp_path: Path,
) -> None:
    origin = tmp_path / "home" / "project"
    (origin / "data").mkdir(parents=True)
    (origin / "data" / "a").write_text("a")
    (tmp_path / "home" / "shared").mkdir()
    (tmp_path / "home" / "shared" / "b").write_text("b")
    place = origin / "runs" / "r" / "trials" / "t" / "work"
    work = make_workplace(place, origin)
    assert (work / "data" / "a").read_text() == "a"
    assert (work / ".." / "shared" / "b").read_text() == "b"
    assert not (work / "runs").exists(), "a link to it would lead round in circles"
    (work / "written").write_text("w")
    assert not (origin / "written").exists()
    clear_workplace(place)
    assert [path.name for path in work.iterdir()] == ["written"]
    (work / "written").unlink()
    clear_workplace(place)
    assert not place.exists()
    assert (origin / "data" / "a").exists()
