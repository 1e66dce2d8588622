"""A report that is handed in: the parts of a lab report, whose text is whose, and whether it is the run's.

Accept a change of wording with: TRAINLAB_ACCEPT=1 python -m pytest tests/report/test_lab_report.py
"""

import re
import shutil
import subprocess
from base64 import b64encode
from dataclasses import replace
from pathlib import Path

import pytest
from accepted import assert_accepted
from markdown_it import MarkdownIt
from PIL import Image
from rich_run import rich_run

from command import called
from fabricate import Fabricated, made_study
from trainlab import __version__
from trainlab.analysis.document import Document, OwnPicture, OwnText, Paragraph, Section, Statements
from trainlab.analysis.evidence import gather
from trainlab.analysis.finding import RunData
from trainlab.errors import RecordError, SpecError
from trainlab.record.run_folder import RunFolder
from trainlab.report.contents import report_of
from trainlab.report.handed_in import changes_of, check_report, origin_in, read_report
from trainlab.report.html import html_of
from trainlab.report.lab_report import NAMED_BY, HandIn, answer_sentences, lab_report_of
from trainlab.report.markdown import markdown_of
from trainlab.report.notes import part_named, read_notes
from trainlab.report.pdf import pdf_of
from trainlab.report.pictures import compressed
from trainlab.report.writing import write_report
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
STUDENT = HandIn("Li Hua", "20260001", course="AI Systems", notes=NOTES)
HERS = ("I want to see what the batch size does.", "批大小越大，每个样本越快。", "x = 1")
PARTS = ["conclusion", "purpose", "environment", "method", "results", "discussion", "appendix"]


def with_notes(rich: RunData, lang: str = "en", hand_in: HandIn = STUDENT) -> Document:
    return lab_report_of(report_of(rich, lang), rich, hand_in)


@pytest.fixture(scope="module")
def lab_reports(rich: RunData) -> dict[str, Document]:
    return {lang: with_notes(rich, lang) for lang in LANGUAGES}


def part(report: Document, name: str) -> Section:
    return next(section for section in report.sections if section.id == f"lab-{name}")


def own_texts(section: Section) -> list[str]:
    return [line for b in section.all_blocks() if isinstance(b, OwnText) for line in b.lines()]


def test_the_parts_come_in_order_and_nothing_of_the_runs_report_is_lost(
    reports: dict[str, Document], lab_reports: dict[str, Document]
) -> None:
    report = lab_reports["en"]
    assert [section.id for section in report.sections] == [f"lab-{name}" for name in PARTS]
    ids = [inner.id for section in report.sections for inner in (section, *section.sections)]
    assert len(ids) == len(set(ids))
    kept = list(report.all_blocks())
    lost = [block for block in reports["en"].all_blocks() if block not in kept]
    # Links lead to the parts that their sections have become.
    assert [type(block) for block in lost] == [Statements]
    texts = {item.text for block in kept if isinstance(block, Statements) for item in block.items}
    assert all(item.text in texts for block in lost for item in block.items)  # type: ignore[union-attr]


def test_notes_go_to_the_parts_their_headings_name_in_either_language(
    lab_reports: dict[str, Document],
) -> None:
    expected = {
        "purpose": [HERS[0]],
        "method": ["A detail", "first", "second, see the page (https://example.invalid/p)"],
        "discussion": ["Before any heading.", HERS[1], "Something of my own", "x = 1"],
    }
    for name in PARTS:
        assert own_texts(part(lab_reports["en"], name)) == expected.get(name, [])
    for named, headings in {
        "purpose": ("Purpose",),
        "method": ("2) METHODS",),
        "environment": ("（三）实验环境",),
        "results": ("第四部分 实验结果",),
        "conclusion": ("结论", "Conclusions:", "实验总结"),
        None: ("1.", "My thoughts", "Purposeful"),
    }.items():
        assert [part_named(heading) for heading in headings] == [named] * len(headings)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_conclusion_is_drafted_from_the_answer_until_she_writes_one(
    rich: RunData, lab_reports: dict[str, Document], lang: str, tmp_path: Path
) -> None:
    drafted = part(lab_reports[lang], "conclusion").blocks
    sentences = answer_sentences(rich, Words(lang))
    assert len(sentences) > 1
    assert [block.text for block in drafted[1:] if isinstance(block, Paragraph)] == sentences
    hers = HandIn("Li Hua", notes="# Conclusion\nLarger is faster.\n")
    (own,) = part(with_notes(rich, lang, hers), "conclusion").blocks
    assert isinstance(own, OwnText)
    assert "Li Hua" in own.label
    assert own.lines() == ["Larger is faster."]
    # A draft of notes gives each text its place again, and is never overwritten.
    path, run = tmp_path / "notes.md", rich.evidence.folder.path
    assert called("report", run, "--draft", path, "--lang", lang).code == 0
    notes, _, unshown = read_notes(path)
    assert not unshown
    report = with_notes(rich, lang, HandIn("王喆", notes=notes))
    assert own_texts(part(report, "conclusion")) == sentences
    assert own_texts(part(report, "discussion")) == []
    assert called("report", run, "--draft", path).code == 2
    assert read_notes(path)[0] == notes


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_lab_report_reads_as_accepted(lab_reports: dict[str, Document], lang: str) -> None:
    made = markdown_of(lab_reports[lang])
    made = re.sub(r"<!-- handed-in .* -->", "<!-- handed-in ORIGIN -->", made)
    made = re.sub(r"\b[0-9a-f]{64}\b", "DIGEST", made.replace(__version__, "VERSION"))
    assert_accepted(f"lab_report.{lang}.md", made)


def test_what_she_wrote_is_marked_as_hers_in_html_and_markdown(
    lab_reports: dict[str, Document],
) -> None:
    pytest.importorskip("vl_convert", reason="needs trainlab[report]")
    report = lab_reports["en"]
    page = html_of(report)
    told = MarkdownIt("commonmark").enable("table").render(markdown_of(report))
    for text, own in (
        (re.sub(r"<(script|style).*?</\1>", "", page, flags=re.S), r'<div class="own">.*?</div>'),
        (told, r"<blockquote>.*?</blockquote>"),
    ):
        text = re.sub(r"</?(?:strong|code)>", "", text)
        hers = [quote for quote in re.findall(own, text, re.S) if "Li Hua" in quote]
        rest = re.sub(own, "", text, flags=re.S)
        assert len(hers) == 3
        assert [one for one in HERS if one not in "".join(hers) or one in rest] == []
        assert "20260001" in rest
        assert "SHA-256" in rest
    # The comparison has a section for each factor, which stands a level deeper here.
    comparison = next(s for s in part(report, "results").sections if s.id == "comparison")
    (deepest,) = comparison.sections
    assert f'<h4 id="{deepest.id}-title">{deepest.title}</h4>' in page
    assert f"#### {deepest.title}" in markdown_of(report)


@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="needs pdftotext")
def test_what_she_wrote_stands_under_her_name_in_the_pdf(
    rich: RunData, lab_reports: dict[str, Document], tmp_path: Path
) -> None:
    pytest.importorskip("typst", reason="needs trainlab[report]")
    path, words = tmp_path / "report.pdf", Words("zh")
    path.write_bytes(pdf_of(lab_reports["zh"]))
    # A name that the bundled font lacks does not stop it.
    assert pdf_of(with_notes(rich, "zh", HandIn("王喆 😀"))).startswith(b"%PDF")
    done = subprocess.run(["pdftotext", str(path), "-"], capture_output=True, check=True)
    told = done.stdout.decode()
    label = words("lab_written_by", author="Li Hua")
    assert told.count(label) == 3
    for text in HERS:
        assert text in told.replace("\n", " ") or text in told.replace("\n", "")
    first = told.index(label)
    assert first < told.index("I want to see") < told.index(words("lab_environment"), first)


def test_the_origin_is_read_back_and_nothing_else_is_taken_for_one(
    lab_reports: dict[str, Document],
) -> None:
    for made in (markdown_of, html_of, pdf_of):
        written = made(lab_reports["zh"])
        origin = origin_in(written if isinstance(written, bytes) else written.encode())
        assert origin is not None, made
        assert vars(STUDENT).items() <= vars(origin).items()
        assert (origin.lang, len(origin.records), origin.trainlab) == ("zh", 64, __version__)
    for text in ("[]", "{}", '{"lang": "en"}'):
        assert origin_in(f'<script id="handed-in">{text}</script>'.encode()) is None


def test_notes_that_are_missing_or_no_text_are_told(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"none\.md: no such file"):
        read_notes(tmp_path / "none.md")
    (tmp_path / "gbk.md").write_bytes("实验目的".encode("gbk"))
    with pytest.raises(SpecError, match=r"--notes: .*gbk\.md is not UTF-8 text; save it as UTF-8"):
        read_notes(tmp_path / "gbk.md")


# trainlab check: a report is the run's, or it is said where it is not.

DISCUSSION = (
    "# Discussion\nI measured 90.20% and once 12.34 s, of $\\eta^2$.\n\n![my desk](desk.png)\n"
)
COVER = {"class_name": "二班", "teacher": "Wang", "partner": "喆, 堃", "date": "2026-11-19"}
MEASURED = HandIn("李华", "20260001", course="AI <Systems>", notes=DISCUSSION, **COVER)


def with_picture() -> HandIn:
    content = b64encode(compressed(Image.effect_noise((700, 400), 40), "png")).decode()
    return replace(MEASURED, pictures={"desk.png": OwnPicture(700, 400, "png", content)})


@pytest.fixture(scope="module")
def handed_in(rich_folder: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a report as HTML and as Markdown."""
    pytest.importorskip("vl_convert", reason="needs trainlab[report]")
    out = tmp_path_factory.mktemp("handed-in")
    write_report(gather(rich_folder), out, ("html", "md"), "en", with_picture())
    return out


@pytest.mark.slow
def test_a_report_as_it_was_written_is_the_runs_and_not_another_ones(
    rich_folder: RunFolder, tmp_path: Path
) -> None:
    pytest.importorskip("vl_convert", reason="needs trainlab[report]")
    pytest.importorskip("typst", reason="needs trainlab[report]")
    other = rich_run(tmp_path / "other", step_ms=lambda trial, process: 2.5 + process)
    formats = ("html", "md", "pdf")
    for path in write_report(gather(rich_folder), tmp_path, formats, "zh", with_picture()):
        report = read_report(path)
        assert report.origin is not None
        # How large the picture is, not the picture: the lines around it stand where they stood.
        assert report.origin.pictures == {"desk.png": OwnPicture(700, 400, "png")}
        assert "12.34" in " ".join(report.own_lines)
        if path.suffix != ".pdf":
            assert report.shown_names.keys() == NAMED_BY.keys()
            assert COVER.items() <= report.shown_names.items()
        verdict = check_report(path, gather(rich_folder))
        assert verdict.is_the_runs
        assert verdict.differences == ()
        assert verdict.own_numbers == ("12.34",)
        assert verdict.is_only_text == (path.suffix == ".pdf")
        done = called("check", path, "--run", other.path, "--lang", "zh")
        assert done.code == 1
        assert "报告依据的不是这些记录" in done.stdout
    # One that was not made for handing in can be checked too.
    (path,) = write_report(gather(rich_folder), tmp_path / "plain", ("md",), "zh")
    assert check_report(path, gather(rich_folder)).is_the_runs


@pytest.mark.parametrize("name", ["html", "md"])
def test_a_changed_number_is_shown_beside_the_true_one_and_her_own_text_may_be_edited(
    rich_folder: RunFolder, handed_in: Path, tmp_path: Path, name: str
) -> None:
    text = (handed_in / f"report.{name}").read_text()
    true = re.search(r"9[0-5]\.\d\d", text)[0]  # type: ignore[index]
    path = tmp_path / f"report.{name}"
    path.write_text(text.replace(true, "99.98", 1))
    done = called("check", path, "--run", rich_folder.path)
    assert done.code == 1
    assert "NOT what the run gives" in done.stdout
    reported = next(line for line in done.stdout.splitlines() if "in the report:" in line)
    expected = next(line for line in done.stdout.splitlines() if "from the run:" in line)
    assert reported.partition(":")[2].strip() != expected.partition(":")[2].strip()
    if name == "md":
        assert "99.98" in reported
        assert true in expected
    path.write_text(text.replace("I measured", "On 77.77% of days I measured"))
    verdict = check_report(path, gather(rich_folder))
    assert verdict.is_the_runs, verdict.differences
    assert verdict.own_numbers == ("77.77", "12.34")


def test_a_name_on_the_cover_that_was_edited_is_told_by_its_field(
    rich_folder: RunFolder, handed_in: Path, tmp_path: Path
) -> None:
    for name in ("html", "md"):
        path = tmp_path / f"report.{name}"
        text = (handed_in / path.name).read_text()
        path.write_text(re.sub("(Partner: 喆|Date: 2026)", r"\1x", text))
        found = changes_of(check_report(path, gather(rich_folder)).differences or ())
        edits = [(one.edit, one.before, one.after) for one in found]
        assert edits == [
            ("edited_partner", "喆, 堃", "喆x, 堃"),
            ("edited_date", "2026-11-19", "2026x-11-19"),
        ]


def test_what_is_not_shown_is_said_when_the_report_is_written(
    rich_folder: RunFolder, tmp_path: Path
) -> None:
    (tmp_path / "notes.md").write_text(
        "# 结论\n\n<u>快</u>\n\n![图](http://example.invalid/a.png)\n"
    )
    asked = ("report", rich_folder.path, "--notes", tmp_path / "notes.md", "--out", tmp_path)
    done = called(*asked, "--class", "2", "--format", "md")
    assert done.code == 0
    lines = [line.removeprefix(f"{tmp_path}/") for line in done.stderr.splitlines()]
    assert [line.partition(": ")[0] for line in lines] == ["notes.md:3", "notes.md:5"]
    text = (tmp_path / "report.md").read_text()
    assert "**Class: 2**" in text
    assert "> &lt;u&gt;快&lt;/u&gt;" in text


def test_a_record_changed_after_the_report_was_written_is_found(tmp_path: Path) -> None:
    folder = Fabricated().write(tmp_path / "run", made_study())
    (path,) = write_report(gather(folder), folder.report_folder, ("md",), "en", STUDENT)
    assert check_report(path, gather(folder)).is_the_runs
    trial = folder.trial(folder.study().trials[0])
    trial.curve_file.write_text(trial.curve_file.read_text().replace(", ", ",  ", 1))
    verdict = check_report(path, gather(folder))
    assert not verdict.has_same_records
    assert not verdict.is_the_runs
    # What is no report, or lies in no run, is told.
    (tmp_path / "report.md").write_text("# mine\n")
    assert called("check", tmp_path / "report.md").code == 2
    assert called("check", tmp_path / "report.docx", "--run", folder.path).code == 2
    assert not check_report(tmp_path / "report.md", gather(folder)).is_the_runs
