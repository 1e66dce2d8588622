"""Help: the basic options on a page, all of them on another, nothing wider than the terminal."""

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.cells import cell_len

import trainlab
from command import called
from trainlab.cli import GROUPS, VERBS
from trainlab.cli.help_pages import Texts, help_page
from trainlab.report.wrapping import cells
from trainlab.spec import CostSpec, TrainSpec
from trainlab.spec.base import option_of
from trainlab.spec.settings import OF_WORKLOADS

SOURCE = Path(trainlab.__file__).parent
Shown = Callable[..., str]
HAN = re.compile(r"[\u4e00-\u9fff]")
PAGES = [*(verb for verb in VERBS if verb != "data"), "data list", "data fetch"]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    """A help page, for a terminal of so many columns and in a language."""

    def show(line: str, columns: int = 80, lang: str = "en") -> str:
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("TRAINLAB_LANG", lang)
        return called(*line.split()).stdout

    return show


def test_help_is_one_page_of_groups_that_ends_with_how_to_see_the_rest(shown: Shown) -> None:
    for verb in ("run", "profile"):
        page = shown(f"{verb} --help")
        lines = page.splitlines()
        assert len(lines) <= 42, page
        titles = [line for line in lines if re.match(r"[A-Z].*[^.]$", line) and "Usage" not in line]
        assert [title.partition(" (")[0] for title in titles] == [
            *("What to run", "Settings people change most", "Measuring", "Output", "Examples"),
        ]
        rest = rf"`trainlab {verb} --help-all` shows the other \d\d options too\."
        assert re.fullmatch(rest, lines[-1])
        for option in ("--epochs", "--batch-size", "--lr", "--optimizer", "--device", "--data"):
            assert f"  {option} " in page
        assert ("--seeds" in page) == ("--vary" in page) == (verb == "run")
        assert "--allocator" not in page


def test_help_all_has_every_setting_once(shown: Shown) -> None:
    for verb in ("run", "profile"):
        page = shown(f"{verb} --help-all")
        options = [option_of(TrainSpec, name) for name in OF_WORKLOADS]
        for option in (*options, *(option_of(CostSpec, name) for name in CostSpec.model_fields)):
            assert len(re.findall(rf"^  {option}\b(?!-)", page, re.MULTILINE)) == 1, option
        assert "--script" not in page
        assert "--change" not in page
        assert "[mnist-cnn 64, fashion-mlp 32]" in " ".join(page.split())
        assert "--help-all" not in page


def test_no_line_of_help_is_wider_than_the_terminal(shown: Shown) -> None:
    for verb in (*PAGES, "data"):
        for columns in (80, 120):
            page = shown(f"{verb} --help", columns)
            page += "" if verb == "data" else shown(f"{verb} --help-all", columns)
            assert [line for line in page.splitlines() if cell_len(line) > columns] == []
            assert page.startswith(f"Usage: trainlab {verb}")


def test_a_long_name_has_its_meaning_below_and_chinese_is_broken_anywhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    rows = [("--short", "的" * 60 + "。"), ("--a-name-that-is-rather-long-indeed X", "Meaning.")]
    page = help_page("x", "Summary.", {"Title": rows}, Texts("en"), "The end.")
    assert max(map(cells, page.splitlines())) <= 60
    assert page.count("的") == 60
    assert "  --a-name-that-is-rather-long-indeed X\n           Meaning.\n" in page
    assert page.endswith("\n\nThe end.\n")


def rows_of(page: str) -> list[str]:
    """Each name with its meaning, on one line; examples apart."""
    body = re.split(r"^(?:Examples|示例)$", page, flags=re.MULTILINE)[0]
    rows = re.findall(r"^  \S.*(?:\n {3,}\S.*)*", body, re.MULTILINE)
    return [" ".join(row.split()) for row in rows]


def test_every_option_is_explained_in_chinese_and_takes_the_language(shown: Shown) -> None:
    for line in (*(f"{verb} --help-all" for verb in PAGES), "data --help"):
        page = shown(line, lang="zh")
        assert page.startswith(f"用法：trainlab {line.rpartition(' ')[0]}")
        assert [row for row in rows_of(page) if not HAN.search(row)] == []
        assert [one for one in page.splitlines() if cell_len(one) > 80] == []
        assert "--lang en|zh" in page or line == "data --help"


def test_no_chinese_help_is_left_that_nothing_shows(shown: Shown) -> None:
    pages = [shown(f"{verb} --help-all", 100) for verb in PAGES]
    words = " ".join("".join([shown(""), shown("data"), *pages]).split())
    tables = tomllib.loads((SOURCE / "words" / "help.toml").read_text(encoding="utf-8"))
    texts = [text for name, table in tables.items() if name != "frame" for text in table]
    assert [text for text in texts if text not in words] == []


def test_the_command_without_a_verb_shows_the_overview(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for line, told, code in (
        ("--help", "Usage: trainlab VERB [OPTIONS]\n\nA lab bench for", 0),
        ("", "Usage: trainlab VERB [OPTIONS]\n\nA lab bench for", 2),
        ("--help --lang zh", "  run       运行工作负载或研究，并说明由此得出的结论。\n", 0),
        ("--lang=zh", "  run       运行工作负载或研究，并说明由此得出的结论。\n", 2),
    ):
        done = called(*line.split())
        assert done.code == code
        assert told in done.stdout
        assert max(map(cells, done.stdout.splitlines())) <= 80
        assert all(f"\n  {verb} " in done.stdout for verb in VERBS)
        titles = re.findall(r"^\S[^\n.。]*(?=\n  )", done.stdout, re.MULTILINE)
        assert len(titles) == 2 + len(GROUPS), "what to begin with, the groups, options"
        assert done.stdout.index("trainlab run mnist-lab") < done.stdout.index("\n  run ")
    monkeypatch.setenv("TRAINLAB_LANG", "zh")
    assert "实验台" in called().stdout
