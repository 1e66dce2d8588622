"""A report as HTML, Markdown and PDF: whole, the same bytes each time, and texts that stay texts.

Accept a change of wording with: TRAINLAB_ACCEPT=1 python -m pytest tests/report/test_formats.py
"""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from accepted import assert_accepted
from markdown_it import MarkdownIt
from rich_run import rich_run, rich_study, row, run_data

from command import called
from fabricate import Fabricated, made_study, operator
from trainlab import __version__
from trainlab.analysis.comparison import comparison_of, side_by_side
from trainlab.analysis.document import (
    Column,
    Document,
    Entry,
    Paragraph,
    Row,
    Section,
    Table,
    figure_id,
)
from trainlab.analysis.finding import RunData
from trainlab.errors import SpecError
from trainlab.extras import MissingExtraError, import_extra
from trainlab.record.run_folder import RunFolder
from trainlab.record.schema import note
from trainlab.report.contents import report_of
from trainlab.report.html import html_of
from trainlab.report.markdown import code, escaped, figure_files, markdown_of
from trainlab.report.pdf import pdf_of
from trainlab.report.writing import check_formats, write_comparison

pytest.importorskip("vl_convert", reason="needs trainlab[report]")
pytest.importorskip("typst", reason="needs trainlab[report]")
Reports = dict[str, Document]
NASTY = ("<script>alert(1)</script>", "a|b", "*bold* _it_ `code`", "[x](y)", "# heading", "\\|")
SCRIPT = '<script>window.hacked = 1</script>|x`y #panic("x") *b* $y$'


class Tags(HTMLParser):
    """Every tag with its attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def charts_of(page: str) -> dict[str, object]:
    (found,) = re.findall(r'<script id="charts" type="application/json">(.*?)</script>', page, re.S)
    return dict(json.loads(found)["charts"])


def text_of(pdf: bytes, folder: Path) -> str:
    if shutil.which("pdftotext") is None:
        pytest.skip("needs pdftotext (Debian: poppler-utils)")
    path = folder / "report.pdf"
    path.write_bytes(pdf)
    done = subprocess.run(["pdftotext", str(path), "-"], capture_output=True, check=True)
    return done.stdout.decode()


def test_the_page_is_whole_and_asks_for_nothing(reports: Reports) -> None:
    report = reports["en"]
    page = html_of(report)
    tags = Tags(page).tags
    for tag, attributes in tags:
        for name in ("src", "href"):
            told = attributes.get(name) or ""
            assert told.startswith(("#", "data:")) or not told, f"<{tag} {name}={told}>"
    assert "@import" not in page
    assert "default-src 'none'" in page
    ids = [attributes.get("id") for _, attributes in tags if attributes.get("id")]
    assert len(ids) == len(set(ids))
    assert set(charts_of(page)) == {f"chart-{figure.id}" for figure in report.figures()} <= set(ids)
    captions = re.findall(r"<caption><b>(.*?)</b> (.*?)</caption>", unescape(page))
    tables = [block for block in report.all_blocks() if isinstance(block, Table)]
    assert captions == [(f"Table {n}", table.caption) for n, table in enumerate(tables, start=1)]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_markdown_reads_as_accepted(reports: Reports, lang: str) -> None:
    made = markdown_of(reports[lang]).replace(__version__, "VERSION")
    assert_accepted(f"report.{lang}.md", made)


def test_every_figure_it_names_is_a_file_beside_it(reports: Reports) -> None:
    for lang, start in (("en", b"<svg"), ("zh", b"\x89PNG")):
        # A few charts: pixels take their time.
        report = replace(reports[lang], sections=reports[lang].sections[:6])
        files = figure_files(report)
        named = re.findall(r"\]\((figures/[^)]+)\)", markdown_of(report))
        assert sorted(named) == sorted(files)
        assert all(content.startswith(start) for content in files.values())


def test_the_same_run_gives_the_same_bytes(reports: Reports, rich_folder: RunFolder) -> None:
    report, again = reports["zh"], report_of(run_data(rich_folder), "zh")
    assert html_of(report) == html_of(again)
    first = pdf_of(report)
    assert first.startswith(b"%PDF-")
    assert first == pdf_of(again)


def test_nothing_from_the_data_becomes_a_tag_or_markup(tmp_path: Path) -> None:
    study = rich_study(title=SCRIPT)
    folder = rich_run(
        tmp_path / "run",
        study=study,
        layers=lambda trial: [row(SCRIPT, [-1], type=SCRIPT)],
        rows=lambda trial: [operator(SCRIPT, 400.0)],
        resolved=lambda trial: {"device_name": SCRIPT},
    )
    for trial in folder.trials():
        noted = {"notes": (note("text", text=SCRIPT),)}
        folder.trial(trial.id).write(trial.model_copy(update=noted))
    report = report_of(run_data(folder))
    page = html_of(report)
    assert SCRIPT not in page
    assert len([tag for tag, _ in Tags(page).tags if tag == "script"]) == 3
    assert "&lt;script&gt;window.hacked" in page
    told = MarkdownIt("commonmark").enable("table").render(markdown_of(report))
    assert "<script" not in told
    assert "&lt;script&gt;" in told
    told = text_of(pdf_of(report), tmp_path).replace("\u200b", "").replace("\n", " ")
    assert '#panic("x") *b* $y$' in told
    assert re.fullmatch(r"trend-[\w.-]+", figure_id("trend", "test/<b>x</b>"))


def test_text_stays_text_and_code_in_a_table_in_its_field() -> None:
    for text in NASTY:
        told = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(escaped(text))
        assert unescape(re.sub(r"<[^>]+>", "", told)).strip() == text
        assert set(re.findall(r"<(\w+)", told)) == {"p"}
        lines = f"| a | b |\n|---|---|\n| {code(text)} | {escaped(text)} |\n"
        table = MarkdownIt("commonmark").enable("table").render(lines)
        assert table.count("<td>") == 2
        assert "<script" not in table


def with_table_after(num_paragraphs: int, num_rows: int, told: str, *, is_matrix: bool) -> Document:
    """A table that begins so far down the page."""
    entries = [Row((Entry(f"row{number}"), Entry(told))) for number in range(num_rows)]
    columns = (Column("heading"), Column("value"))
    found = Table("the caption", columns, tuple(entries), note="the note", is_matrix=is_matrix)
    filler = (Paragraph("filler"),) * num_paragraphs
    inner = Section("two", "Inner", (found, Paragraph("the end")))
    section = Section("one", "Section", filler, (inner,))
    return Document("Title", "", "en", "", (), (section,))


@pytest.mark.parametrize(
    ("num_rows", "told", "is_matrix"),
    [(2, "several lines " * 20, False), (30, "short", False), (20, "short", True)],
)
def test_a_table_never_begins_at_the_foot_of_a_page_and_a_matrix_is_on_one(
    tmp_path: Path, num_rows: int, told: str, is_matrix: bool
) -> None:
    """A row of a matrix is read beside its column: it must not be on the next page."""
    num_split = 0
    for num_paragraphs in range(26, 46, 3):
        pdf = pdf_of(with_table_after(num_paragraphs, num_rows, told, is_matrix=is_matrix))
        pages = [page.split() for page in text_of(pdf, tmp_path).split("\f")]
        where = f"after {num_paragraphs} paragraphs"
        (first,) = [page for page in pages if "caption" in page]
        assert {"Inner", "heading", "row0", "row1"} <= set(first), where
        for page in pages:
            has_rows = any(word.startswith("row") for word in page)
            assert has_rows == ("heading" in page), f"a heading without rows {where}"
        (last,) = [page for page in pages if f"row{num_rows - 1}" in page]
        assert "note" in last, f"the note is apart from the table {where}"
        num_split += any("row0" not in page and "heading" in page for page in pages)
    assert (num_split > 0) == (num_rows == 30), "the long one alone is split"


def test_a_run_without_charts_brings_no_chart_code(tmp_path: Path) -> None:
    study = made_study(seeds=1)
    folder = Fabricated(state=lambda trial: "pending").write(tmp_path / "run", study)
    page = html_of(report_of(run_data(folder)))
    assert len(page) < 100_000  # no code that draws any
    assert charts_of(page) == {}


def test_two_runs_side_by_side_are_one_file(tmp_path: Path, rich: RunData) -> None:
    second = run_data(rich_run(tmp_path / "b", step_ms=lambda trial, n: 9 + 0.01 * n))
    found = side_by_side(rich.evidence, second.evidence)
    report = comparison_of(rich, second, found, "en")
    assert len(charts_of(html_of(report))) == 2
    ids = [section.id for section in report.sections]
    assert ids == ["differs", "answer", "costs", "learning"]
    path = tmp_path / "deep" / "both.html"
    write_comparison(rich.evidence, second.evidence, path, "zh")
    assert "其他不同之处" in path.read_text()


def test_formats_and_packages_that_are_not_there_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_formats("html, pdf,html") == ("html", "pdf")
    with pytest.raises(SpecError, match="--format: got 'word', must be of html, md, pdf"):
        check_formats("word")
    monkeypatch.setitem(sys.modules, "typst", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'trainlab\[report\]'"):
        import_extra("typst", "a PDF report")


def test_all_formats_are_written_and_told(rich_folder: RunFolder, tmp_path: Path) -> None:
    out = tmp_path / "out"
    asked = (rich_folder.path, "--format", "html,md,pdf", "--lang", "en", "--out", out)
    paths = list(map(Path, called("report", *asked).stdout.splitlines()))
    assert paths == [out / f"report.{name}" for name in ("html", "md", "pdf")]
    assert all(path.stat().st_size > 1000 for path in paths)
    assert (out / "figures" / "flow.svg").exists()
    assert called("report", rich_folder.path, "--lang", "fr").code == 2
