"""A report that is handed in: the parts of a lab report, and whose text is whose, in every format.

Accept a change of wording with: TRAINLAB_ACCEPT=1 python -m pytest tests/report/test_lab_report.py
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from accepted import assert_accepted
from markdown_it import MarkdownIt
from rich_run import rich_run, run_data

from command import called
from trainlab import __version__
from trainlab.analysis.document import Document, OwnText, Paragraph, Section, Statements
from trainlab.errors import RecordError, SpecError
from trainlab.record.run_folder import RunFolder
from trainlab.report.contents import report_of
from trainlab.report.html import html_of
from trainlab.report.lab_report import (
    HandIn,
    answer_sentences,
    lab_report_of,
    part_named,
    read_notes,
    read_origin,
)
from trainlab.report.markdown import markdown_of
from trainlab.report.pdf import pdf_of
from trainlab.words import LANGUAGES, Words

NOTES = """Before any heading.

# 1. Purpose
I want to see **what** the `batch size` does.

## 实验步骤
### A detail
- first
- second, see [the page](https://example.invalid/p)

# 四、讨论：
批大小越大，
每个样本越快。

# Something of my own
```
x = 1
```
"""
STUDENT = HandIn("Li Hua", "20260001", "AI Systems", NOTES)
PARTS = ["purpose", "environment", "method", "results", "discussion", "conclusion", "appendix"]


def lab_report(folder: RunFolder, lang: str = "en", hand_in: HandIn = STUDENT) -> Document:
    data = run_data(folder)
    return lab_report_of(report_of(data, lang), data, hand_in)


def part(report: Document, name: str) -> Section:
    return next(section for section in report.sections if section.id == f"lab-{name}")


def own_texts(section: Section) -> list[str]:
    return [p.text for b in section.all_blocks() if isinstance(b, OwnText) for p in b.parts]


@pytest.fixture
def folder(rich_folder: RunFolder) -> RunFolder:
    return rich_folder


def test_the_parts_come_in_the_order_of_a_lab_report(folder: RunFolder) -> None:
    report = lab_report(folder, "zh")
    assert [section.id for section in report.sections] == [f"lab-{name}" for name in PARTS]
    ids = [inner.id for section in report.sections for inner in (section, *section.sections)]
    assert len(ids) == len(set(ids))


def test_nothing_of_the_runs_report_is_lost(folder: RunFolder) -> None:
    plain, handed_in = report_of(run_data(folder)), lab_report(folder)
    kept = list(handed_in.all_blocks())
    lost = [block for block in plain.all_blocks() if block not in kept]
    # Links lead to the parts that their sections have become.
    assert [type(block) for block in lost] == [Statements]
    texts = {item.text for block in kept if isinstance(block, Statements) for item in block.items}
    assert all(item.text in texts for block in lost for item in block.items)  # type: ignore[union-attr]


def test_notes_go_to_the_parts_their_headings_name_in_either_language(folder: RunFolder) -> None:
    report = lab_report(folder)
    assert own_texts(part(report, "purpose")) == ["I want to see what the batch size does."]
    assert own_texts(part(report, "method")) == [
        *("A detail", "first", "second, see the page (https://example.invalid/p)"),
    ]
    assert own_texts(part(report, "discussion")) == [
        *("Before any heading.", "批大小越大，每个样本越快。", "Something of my own", "x = 1"),
    ]
    for name in ("environment", "results", "conclusion", "appendix"):
        assert own_texts(part(report, name)) == []


def test_headings_are_known_numbered_or_not() -> None:
    for heading, name in {
        "Purpose": "purpose",
        "2) METHODS": "method",
        "结论": "conclusion",
        "1.": None,
        "（三）实验环境": "environment",
        "第四部分 实验结果": "results",
        "My thoughts": None,
        "Conclusions:": "conclusion",
        "实验总结": "conclusion",
        "Purposeful": None,
    }.items():
        assert part_named(heading) == name, heading


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_conclusion_is_drafted_from_the_answer_until_she_writes_one(
    folder: RunFolder, lang: str
) -> None:
    drafted = part(lab_report(folder, lang), "conclusion").blocks
    sentences = answer_sentences(run_data(folder), Words(lang))
    assert len(sentences) > 1
    assert [block.text for block in drafted[1:] if isinstance(block, Paragraph)] == sentences
    hers = HandIn("Li Hua", notes="# Conclusion\nLarger is faster.\n")
    (own,) = part(lab_report(folder, lang, hers), "conclusion").blocks
    assert isinstance(own, OwnText)
    assert "Li Hua" in own.label
    assert [piece.text for piece in own.parts] == ["Larger is faster."]


def test_the_draft_of_notes_gives_each_text_its_place_again(
    folder: RunFolder, tmp_path: Path
) -> None:
    path = tmp_path / "notes.md"
    assert called("report", folder.path, "--draft", path, "--lang", "zh").code == 0
    hand_in = HandIn("王喆", notes=read_notes(path))
    report = lab_report(folder, "zh", hand_in)
    sentences = answer_sentences(run_data(folder), Words("zh"))
    assert own_texts(part(report, "conclusion")) == sentences
    assert own_texts(part(report, "discussion")) == []
    assert called("report", folder.path, "--draft", path).code == 2
    assert read_notes(path) == hand_in.notes


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_lab_report_reads_as_accepted(tmp_path: Path, lang: str) -> None:
    made = markdown_of(lab_report(rich_run(tmp_path / "run"), lang))
    made = re.sub(r"<!-- handed-in .* -->", "<!-- handed-in ORIGIN -->", made)
    made = re.sub(r"\b[0-9a-f]{64}\b", "DIGEST", made.replace(__version__, "VERSION"))
    assert_accepted(f"lab_report.{lang}.md", made)


HERS = ("I want to see what the batch size does.", "批大小越大，每个样本越快。", "x = 1")


@pytest.mark.parametrize("lang", LANGUAGES)
def test_what_she_wrote_is_marked_as_hers_in_html(folder: RunFolder, lang: str) -> None:
    pytest.importorskip("vl_convert", reason="needs trainlab[report]")
    page = re.sub(r"<(script|style).*?</\1>", "", html_of(lab_report(folder, lang)), flags=re.S)
    own = r'<div class="own">.*?</div>'
    inside, outside = "".join(re.findall(own, page, re.S)), re.sub(own, "", page, flags=re.S)
    assert inside.count("Li Hua") == 3
    assert [text for text in HERS if text not in inside or text in outside] == []
    assert "20260001" in outside
    assert "SHA-256" in outside


def test_what_she_wrote_is_marked_as_hers_in_markdown(folder: RunFolder) -> None:
    told = MarkdownIt("commonmark").enable("table").render(markdown_of(lab_report(folder)))
    quotes = re.findall(r"<blockquote>.*?</blockquote>", told, re.DOTALL)
    rest = re.sub(r"<blockquote>.*?</blockquote>", "", told, flags=re.DOTALL)
    hers = [quote for quote in quotes if "Li Hua" in quote]
    assert len(hers) == 3
    for text in HERS:
        assert any(text in quote for quote in hers)
        assert text not in rest


@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="needs pdftotext")
@pytest.mark.parametrize("lang", LANGUAGES)
def test_what_she_wrote_stands_under_her_name_in_the_pdf(
    folder: RunFolder, lang: str, tmp_path: Path
) -> None:
    pytest.importorskip("typst", reason="needs trainlab[report]")
    path = tmp_path / "report.pdf"
    path.write_bytes(pdf_of(lab_report(folder, lang)))
    done = subprocess.run(["pdftotext", str(path), "-"], capture_output=True, check=True)
    told = done.stdout.decode()
    label = Words(lang)("lab_written_by", author="Li Hua")
    assert told.count(label) == 3
    for text in HERS:
        assert text in told.replace("\n", " ") or text in told.replace("\n", "")
    first = told.index(label)
    assert first < told.index("I want to see") < told.index(Words(lang)("lab_environment"), first)


def test_nested_sections_are_in_every_format(folder: RunFolder) -> None:
    """The comparison has a section for each factor, which stands a level deeper here."""
    report = lab_report(folder)
    comparison = next(s for s in part(report, "results").sections if s.id == "comparison")
    (deepest,) = comparison.sections
    assert f'<h4 id="{deepest.id}">{deepest.title}</h4>' in html_of(report)
    assert f"#### {deepest.title}" in markdown_of(report)


def test_a_name_that_the_bundled_font_lacks_does_not_stop_the_pdf(folder: RunFolder) -> None:
    pytest.importorskip("typst", reason="needs trainlab[report]")
    assert pdf_of(lab_report(folder, "zh", HandIn("王喆 😀"))).startswith(b"%PDF")


def test_the_origin_is_read_back_and_nothing_else_is_taken_for_one() -> None:
    origin = read_origin(STUDENT.origin("zh", "ab" * 32))
    assert origin.hand_in == STUDENT
    assert (origin.lang, origin.records, origin.trainlab) == ("zh", "ab" * 32, __version__)
    for text in ("[]", "{}", '{"lang": "en"}'):
        with pytest.raises(ValueError, match="not the origin of a report"):
            read_origin(text)


def test_notes_that_are_missing_or_no_text_are_told(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"none\.md: no such file"):
        read_notes(tmp_path / "none.md")
    (tmp_path / "gbk.md").write_bytes("实验目的".encode("gbk"))
    with pytest.raises(SpecError, match=r"--notes: .*gbk\.md is not UTF-8 text; save it as UTF-8"):
        read_notes(tmp_path / "gbk.md")
