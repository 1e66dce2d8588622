"""PDF: the same bytes each time, and texts that stay texts."""

import shutil
import subprocess
from pathlib import Path

import pytest
from rich_run import rich_report, rich_run, row

from trainlab.report.contents import report_of
from trainlab.report.material import read_material
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
    first, second = (pdf_of(report_of(read_material(folder), lang)) for _ in range(2))
    assert first.startswith(b"%PDF-")
    assert first == second


def test_markup_in_a_name_is_only_text(tmp_path: Path) -> None:
    name = '#panic("x") *b* $y$ <script>'
    report = rich_report(tmp_path / "run", layers=lambda trial: [row(name, [-1])])
    told = text_of(pdf_of(report), tmp_path).replace("\u200b", "").replace("\n", " ")
    assert '#panic("x") *b* $y$ <script>' in told


def test_chinese_is_there_as_chinese(tmp_path: Path) -> None:
    told = text_of(pdf_of(rich_report(tmp_path / "run", "zh")), tmp_path)
    assert "问题与回答" in told
    assert "按因素比较" in told
