"""Markdown: a golden file, and texts that cannot break out of their place.

Accept a change of wording with: TRAINLAB_ACCEPT=1 python -m pytest tests/report/test_report_markdown.py
"""

import re
from html import unescape
from pathlib import Path

import pytest
from accepted import assert_accepted
from markdown_it import MarkdownIt
from rich_run import rich_report, row

from trainlab import __version__
from trainlab.analysis.document import figure_id
from trainlab.report.markdown import code, escaped, figure_files, markdown_of

NASTY = (
    "<script>alert(1)</script>",
    "a|b",
    "*bold* _it_ `code`",
    "[x](javascript:alert(1))",
    "# heading",
    "- item",
    "1. item",
    "$math$ ~~gone~~ &amp; <b>",
    "![x](http://example.invalid/x.png)",
    "\\|",
)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_markdown_reads_as_accepted(tmp_path: Path, lang: str) -> None:
    made = markdown_of(rich_report(tmp_path / "run", lang)).replace(__version__, "VERSION")
    assert_accepted(f"report.{lang}.md", made)


def test_every_figure_it_names_is_a_file_beside_it(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert", reason="needs trainlab[report]")
    for lang, start in (("en", b"<svg"), ("zh", b"\x89PNG")):
        report = rich_report(tmp_path / lang, lang)
        files = figure_files(report)
        named = re.findall(r"\]\((figures/[^)]+)\)", markdown_of(report))
        assert sorted(named) == sorted(files)
        assert all(content.startswith(start) for content in files.values())


def test_text_stays_text_and_code_in_a_table_in_its_field() -> None:
    for text in NASTY:
        told = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(escaped(text))
        assert unescape(re.sub(r"<[^>]+>", "", told)).strip() == text
        assert set(re.findall(r"<(\w+)", told)) == {"p"}
        lines = f"| a | b |\n|---|---|\n| {code(text)} | {escaped(text)} |\n"
        table = MarkdownIt("commonmark").enable("table").render(lines)
        assert table.count("<td>") == 2
        assert "<script" not in table


def test_a_script_in_a_layers_name_is_only_text(tmp_path: Path) -> None:
    name = "<script>alert(1)</script>|x`y"
    report = rich_report(tmp_path / "run", layers=lambda trial: [row(name, [-1])])
    told = MarkdownIt("commonmark").enable("table").render(markdown_of(report))
    assert "<script" not in told
    assert "&lt;script&gt;" in told


def test_a_metric_of_any_name_has_a_figure_of_a_plain_name() -> None:
    ids = [
        figure_id("trend", name) for name in ("test/f1", "test/<b>x</b>", "test/../../y", "z" * 999)
    ]
    assert ids[0] == "trend-test-f1"
    assert len(set(ids)) == 4
    assert all(re.fullmatch(r"trend-[\w.-]{1,100}", one) for one in ids)
    assert not any("/" in one for one in ids)
