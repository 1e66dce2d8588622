"""Help: the basic options on a page, all of them on another, nothing wider than the terminal."""

import re
import sys
import tomllib
from pathlib import Path

import pytest
from rich.cells import cell_len

import trainlab
from torchless import Torchless
from trainlab.cli import VERBS, main, overview
from trainlab.cli.help_pages import help_page
from trainlab.report.wrapping import cells
from trainlab.spec import CostSpec
from trainlab.spec.settings import OF_WORKLOADS

SOURCE = Path(trainlab.__file__).parent
PAGES = [*(verb for verb in VERBS if verb != "data"), "data", "data list", "data fetch"]


@pytest.mark.parametrize("verb", ["run", "profile"])
def test_help_is_one_page_of_groups_that_ends_with_how_to_see_the_rest(
    verb: str, torchless: Torchless, tmp_path: Path
) -> None:
    shown = torchless.ask([verb, "--help"], tmp_path, COLUMNS="80").stdout
    lines = shown.splitlines()
    assert len(lines) <= 42, shown
    titles = [line for line in lines if re.match(r"[A-Z].*[^.]$", line) and "Usage" not in line]
    assert [title.partition(" (")[0] for title in titles] == [
        *("What to run", "Settings people change most", "Measuring", "Output", "Examples"),
    ]
    assert re.fullmatch(
        rf"`trainlab {verb} --help-all` shows the other \d\d options too\.", lines[-1]
    )
    for option in ("--epochs", "--batch-size", "--lr", "--optimizer", "--device", "--data"):
        assert f"  {option} " in shown
    assert ("--seeds" in shown) == ("--vary" in shown) == (verb == "run")
    assert "--allocator" not in shown


@pytest.mark.parametrize("verb", ["run", "profile"])
def test_help_all_has_every_setting_once(verb: str, torchless: Torchless, tmp_path: Path) -> None:
    shown = torchless.ask([verb, "--help-all"], tmp_path, COLUMNS="80").stdout
    for name in (*OF_WORKLOADS, *CostSpec.model_fields):
        option = f"--{name.replace('_', '-')}"
        assert len(re.findall(rf"^  {option}\b(?!-)", shown, re.MULTILINE)) == 1, option
    assert "--script" not in shown
    assert "--change" not in shown
    assert "[mnist-cnn 64, fashion-mlp 32]" in " ".join(shown.split())
    assert "--help-all" not in shown


@pytest.mark.parametrize("columns", ["80", "120"])
@pytest.mark.parametrize("verb", PAGES)
def test_no_line_of_help_is_wider_than_the_terminal(
    verb: str, columns: str, torchless: Torchless, tmp_path: Path
) -> None:
    for option in ("--help", "--help-all"):
        if verb == "data" and option == "--help-all":
            continue
        answer = torchless.ask([*verb.split(), option], tmp_path, COLUMNS=columns)
        assert answer.code == 0, answer
        assert [line for line in answer.stdout.splitlines() if cell_len(line) > int(columns)] == []
        assert answer.stdout.startswith(f"Usage: trainlab {verb}")


def test_a_long_name_has_its_meaning_below_and_chinese_is_broken_anywhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    rows = [("--short", "的" * 60 + "。"), ("--a-name-that-is-rather-long-indeed X", "Meaning.")]
    page = help_page("Usage: x", "Summary.", {"Title": rows}, "The end.")
    assert max(map(cells, page.splitlines())) <= 60
    assert page.count("的") == 60
    assert "  --a-name-that-is-rather-long-indeed X\n           Meaning.\n" in page
    assert page.endswith("\n\nThe end.\n")


def rows_of(page: str) -> list[str]:
    """Each name with its meaning, on one line; examples apart."""
    body = re.split(r"^(?:Examples|示例)$", page, flags=re.MULTILINE)[0]
    rows = re.findall(r"^  \S.*(?:\n {3,}\S.*)*", body, re.MULTILINE)
    return [" ".join(row.split()) for row in rows]


@pytest.mark.parametrize("verb", PAGES)
def test_every_option_is_explained_in_chinese(
    verb: str, torchless: Torchless, tmp_path: Path
) -> None:
    option = "--help" if verb == "data" else "--help-all"
    page = torchless.ask([*verb.split(), option], tmp_path, TRAINLAB_LANG="zh", COLUMNS="80").stdout
    assert page.startswith(f"用法：trainlab {verb}")
    assert [row for row in rows_of(page) if not re.search(r"[\u4e00-\u9fff]", row)] == []
    assert [line for line in page.splitlines() if cell_len(line) > 80] == []


def test_no_chinese_help_is_left_that_nothing_shows(torchless: Torchless, tmp_path: Path) -> None:
    shown = overview()
    for verb in (*PAGES, "data verify"):
        option = "--help" if verb == "data" else "--help-all"
        shown += torchless.ask([*verb.split(), option], tmp_path, COLUMNS="100").stdout
    words, file = " ".join(shown.split()), SOURCE / "words" / "help.toml"
    tables = tomllib.loads(file.read_text(encoding="utf-8"))
    texts = [text for name, table in tables.items() if name != "frame" for text in table]
    assert [text for text in texts if text not in words] == []


@pytest.mark.parametrize(
    ("line", "told", "code"),
    [
        ("--help", "A lab bench", 0),
        ("", "A lab bench", 2),
        ("--help --lang zh", "实验台", 0),
        ("--lang=zh", "实验台", 2),
    ],
)
def test_the_command_without_a_verb_shows_the_overview(
    line: str,
    told: str,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["trainlab", *line.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == code
    assert told in capsys.readouterr().out


def test_the_overview_is_in_the_language_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert overview().startswith("Usage: trainlab VERB [OPTIONS]\n\nA lab bench for")
    monkeypatch.setenv("TRAINLAB_LANG", "zh")
    page = overview()
    assert "  run        运行工作负载或研究，并说明由此得出的结论。" in page
    assert max(map(cells, page.splitlines())) <= 80
    assert all(f"\n  {verb} " in page for verb in VERBS)
