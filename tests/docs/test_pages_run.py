"""Every command and snippet of the documents is executed, page by page, as a reader would follow it."""

import warnings
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from pages import PAGES, ROOT, Block, Command, blocks, commands
from reader import Runs, folder_of_a_reader
from small import NOT_RUN, smaller, smaller_call

import trainlab as package
from command import Verb

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Made by the first page that needs them."""
    return Runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def done() -> set[frozenset[str]]:
    """Commands that another page had: training is not repeated."""
    return set()


def is_run(page: Path) -> bool:
    """Whether something on the page can be executed here."""
    kinds = {block.language for block in blocks(page)}
    return bool(kinds & {"bash", "console", "python", "toml"})


@pytest.mark.parametrize(
    "page", [*filter(is_run, PAGES)], ids=lambda page: page.relative_to(ROOT).as_posix()
)
def test_a_page_does_what_it_says(
    page: Path,
    trainlab: Verb,
    tmp_path: Path,
    runs: Runs,
    done: set[frozenset[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = folder_of_a_reader(tmp_path)
    runs.give(trainlab, folder)
    for verb in ("run", "profile"):
        monkeypatch.setattr(package, verb, made_smaller(getattr(package, verb)))
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page):
        for command in commands(block):
            execute(command, trainlab, folder, done)
        if block.language == "python":
            execute_snippet(block, names)
        if block.language == "toml" and "workload" not in block.text:
            study = folder / "part-of-a-study.toml"
            study.write_text(f'workload = "mnist-cnn"\n{block.text}\n')
            trainlab("run", study, "--dry-run")


def execute(command: Command, trainlab: Verb, folder: Path, done: set[frozenset[str]]) -> None:
    """A command of trainlab, on less; `make lab` as the Makefile has it."""
    if command.text in NOT_RUN:
        return
    words = list(command.words[1:])
    if command.words[0] == "make":
        (line,) = (
            one for one in (ROOT / "Makefile").read_text().splitlines() if "(BIN)/trainlab" in one
        )
        words = line.split()[1:]
    else:
        assert command.words[0] == "trainlab", f"{command.place}: {command.text}"
    words = smaller(words)
    trains = words[0] in ("run", "profile") and "my_" not in words[1]
    if trains and frozenset(words) in done:
        return
    done.add(frozenset(words))
    try:
        trainlab(*(found for word in words for found in matching(word, folder)))
    except BaseException as error:
        error.add_note(f"{command.place}: {command.text}")
        raise


def matching(word: str, folder: Path) -> list[str]:
    """What a shell makes of a word with a star, where files match it."""
    if "/*" not in word:
        return [word]
    found = sorted(str(path.relative_to(folder)) for path in folder.glob(word))
    assert found, word
    return found


def execute_snippet(block: Block, names: dict[str, Any]) -> None:
    """In the names that earlier snippets of the page left."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", package.TrialsFailedWarning)
            exec(compile(block.text, block.place, "exec"), names)  # noqa: S102
    except BaseException as error:
        error.add_note(block.place)
        raise


def made_smaller(call: Callable[..., Any]) -> Callable[..., Any]:
    """`trainlab.run` or `trainlab.profile` with less to do."""

    @wraps(call)
    def smaller_one(workload: Any, **asked: Any) -> Any:
        return call(workload, **smaller_call(asked))

    return smaller_one
