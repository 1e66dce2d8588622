"""Commands, options and links in the documents, held against the command line without running them."""

import re
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from pages import LANGUAGES, PAGES, ROOT, anchors, blocks, commands, inline_code, links, words_of
from reader import folder_of_a_reader
from small import NOT_RUN

from torchless import Torchless
from trainlab.cli import VERBS, verb_called

ALL_BLOCKS = [block for page in PAGES for block in blocks(page)]
ALL_COMMANDS = [command for block in ALL_BLOCKS for command in commands(block)]
PROGRAMS = ("trainlab", "make", "docker", "source", "python", "pip")

OPTIONS_OF_OTHERS = {"--max-restarts", "--logdir"}
"""In backticks, and torchrun's and TensorBoard's."""


@cache
def options_of(verb: str) -> frozenset[str]:
    """Every option that a verb takes, or those of its own verbs."""
    found = verb_called(verb)
    options = [
        one for kind in getattr(found, "values", lambda: [found])() for one in kind.options()
    ]
    names = {name for one in options for name in (*one.names, one.negative)}
    return frozenset({*names, "--help", "--help-all"})


def unknown_options(words: list[str]) -> Iterator[str]:
    """Options that the verb of a command line does not take."""
    verb = next((word for word in words if word in VERBS), None)
    known = options_of(verb) if verb else {"--help", "--version"}
    for word in words:
        option = word.partition("=")[0]
        # What `watch` does not know is its script's.
        if option.startswith("--") and option not in known and verb != "watch":
            yield f"{verb or 'trainlab'}: {option}"


def test_every_block_says_what_it_is() -> None:
    for block in ALL_BLOCKS:
        assert block.language in LANGUAGES, f"{block.place}: {block.language!r}"
        if block.language == "text":
            lines = block.text.splitlines()
            typed = [line for line in lines if re.match(r"(\$ )?(trainlab|make) [a-z]", line)]
            assert not typed, f"{block.place}: a command in a block that is not run"
        if block.language == "toml":
            assert tomllib.loads(block.text), block.place


def test_a_command_names_a_program_that_is_known() -> None:
    for command in ALL_COMMANDS:
        assert command.words[0] in PROGRAMS, f"{command.place}: {command.text}"
        if command.words[0] == "trainlab":
            assert list(unknown_options(list(command.words[1:]))) == [], command.place


@pytest.mark.slow
def test_every_study_of_built_in_workloads_has_a_plan(torchless: Torchless, tmp_path: Path) -> None:
    folder = folder_of_a_reader(tmp_path)
    planned = set()
    for command in ALL_COMMANDS:
        if command.words[:2] != ("trainlab", "run") or command.text in planned:
            continue
        words = list(command.words[1:])
        # A model of one's own imports torch, which takes seconds: these are run, in test_pages_run.py.
        if ".py:" in words[1] or words[1].startswith("my_study/"):
            continue
        planned.add(command.text)
        answer = torchless.ask([*words, *([] if "--help" in words else ["--dry-run"])], folder)
        assert answer.code == 0, f"{command.place}: {answer.stderr}"
        assert not answer.imported_torch
    assert len(planned) > 20


def test_make_knows_every_target() -> None:
    targets = {command.words[1] for command in ALL_COMMANDS if command.words[0] == "make"}
    assert {"lab", "test", "check"} <= targets
    for target in sorted(targets):
        words = ["make", "--dry-run", "--directory", str(ROOT), target]
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_options_in_backticks_exist() -> None:
    everywhere = {option for verb in VERBS for option in options_of(verb)} | {"--version"}
    for code in (code for page in PAGES for code in inline_code(page)):
        if code.startswith("trainlab ") and "\\" not in code:
            words = list(words_of(code))
            told = list(unknown_options([word.strip("[]") for word in words[1:]]))
            assert told == [], code
            assert words[1] in (*VERBS, "--help", "--version", "…"), code
        elif not code.startswith(("python ", "pip ", "docker ", "tensorboard ")):
            named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", code))
            assert named <= everywhere | OPTIONS_OF_OTHERS, code


def test_what_is_not_run_is_still_in_the_documents() -> None:
    shown = {command.text for command in ALL_COMMANDS}
    assert NOT_RUN - shown == set()


def test_links_lead_somewhere_and_from_the_front_pages_to_every_page() -> None:
    front = [ROOT / name for name in ("README.md", "README.zh.md", "docs/README.md")]
    linked = ((page.parent / link.partition("#")[0]) for page in front for link in links(page))
    assert set(PAGES) - {path.resolve() for path in linked} == set()
    for page in PAGES:
        for target in links(page):
            name, _, anchor = target.partition("#")
            there = (page.parent / name) if name else page
            assert there.exists(), f"{page.name}: {target}"
            if anchor:
                assert anchor in anchors(there), f"{page.name}: {target}"
