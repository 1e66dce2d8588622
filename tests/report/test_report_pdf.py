"""PDF: the same bytes each time, and texts that stay texts."""

import shutil
import subprocess
from pathlib import Path

import pytest
from rich_run import rich_report, rich_run, row, run_data

from trainlab.analysis.document import Column, Document, Entry, Paragraph, Row, Section, Table
from trainlab.report.contents import report_of
from trainlab.report.pdf import pdf_of

pytest.importorskip("vl_convert", reason="needs trainlab[report]")
pytest.importorskip("typst", reason="needs trainlab[report]")


def text_of(pdf: bytes, folder: Path) -> str:
    if shutil.which("pdftotext") is None:
        pytest.skip("needs pdftotext (Debian: poppler-utils)")
    path = folder / "report.pdf"
    path.write_bytes(pdf)
    done = subprocess.run(["pdftotext", str(path), "-"], capture_output=True, check=True)
    return done.stdout.decode()


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_same_run_gives_the_same_bytes_as_pdf(tmp_path: Path, lang: str) -> None:
    folder = rich_run(tmp_path / "run")
    first, second = (pdf_of(report_of(run_data(folder), lang)) for _ in range(2))
    assert first.startswith(b"%PDF-")
    assert first == second


def test_markup_in_a_name_is_only_text(tmp_path: Path) -> None:
    name = '#panic("x") *b* $y$ <script>'
    report = rich_report(tmp_path / "run", layers=lambda trial: [row(name, [-1])])
    told = text_of(pdf_of(report), tmp_path).replace("\u200b", "").replace("\n", " ")
    assert '#panic("x") *b* $y$ <script>' in told


def test_chinese_is_there_as_chinese(tmp_path: Path) -> None:
    told = text_of(pdf_of(rich_report(tmp_path / "run", "zh")), tmp_path)
    assert "问题与结论" in told
    assert "按因素比较" in told


def with_table_after(
    num_paragraphs: int, num_rows: int, told: str, *, is_matrix: bool = False
) -> Document:
    """A table that begins so far down the page."""
    entries = [Row((Entry(f"row{number}"), Entry(told))) for number in range(num_rows)]
    columns = (Column("heading"), Column("value"))
    found = Table("the caption", columns, tuple(entries), note="the note", is_matrix=is_matrix)
    filler = (Paragraph("filler"),) * num_paragraphs
    inner = Section("two", "Inner", (found, Paragraph("the end")))
    section = Section("one", "Section", filler, (inner,))
    return Document("Title", "", "en", "", (), (section,))


@pytest.mark.parametrize(("num_rows", "told"), [(2, "several lines " * 20), (30, "short")])
def test_a_table_never_begins_at_the_foot_of_a_page(
    tmp_path: Path, num_rows: int, told: str
) -> None:
    num_split = 0
    for num_paragraphs in range(26, 46, 3):
        pdf = pdf_of(with_table_after(num_paragraphs, num_rows, told))
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
    assert num_split > 0 or num_rows == 2, "no table was split: the test shows nothing"


def test_a_matrix_is_on_one_page(tmp_path: Path) -> None:
    """A row that is read beside its column must not be on the next page."""
    for num_paragraphs in range(26, 46, 3):
        pdf = pdf_of(with_table_after(num_paragraphs, 20, "short", is_matrix=True))
        pages = [set(page.split()) for page in text_of(pdf, tmp_path).split("\f")]
        (page,) = [page for page in pages if "row0" in page]
        assert {"caption", "row19", "note"} <= page, f"after {num_paragraphs} paragraphs"
