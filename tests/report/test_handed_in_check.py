"""trainlab check: a report is the run's, or it is said where it is not."""

import re
from pathlib import Path

import pytest
from rich_run import rich_run

from command import called
from trainlab.analysis.evidence import gather
from trainlab.record.run_folder import RunFolder
from trainlab.report.handed_in import check_report, origin_in
from trainlab.report.lab_report import HandIn
from trainlab.report.writing import write_report
from trainlab.words import LANGUAGES

pytest.importorskip("vl_convert", reason="needs trainlab[report]")
pytest.importorskip("typst", reason="needs trainlab[report]")

FORMATS = ("html", "md", "pdf")
NOTES = "# Discussion\nI measured 90.20% and once 12.34 s.\n"
STUDENT = HandIn("李华", "20260001", "AI <Systems>", NOTES)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """With reports in every format and language, each in a folder of its own."""
    folder = rich_run(tmp_path_factory.mktemp("check") / "run")
    for lang in LANGUAGES:
        write_report(gather(folder), folder.path / lang, FORMATS, lang, STUDENT)
    return folder


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.slow
def test_a_report_as_it_was_written_is_the_runs(run: RunFolder, lang: str, name: str) -> None:
    path = run.path / lang / f"report.{name}"
    origin = origin_in(path.suffix, path.read_bytes())
    assert origin is not None
    assert (origin.hand_in, origin.lang) == (STUDENT, lang)
    verdict = check_report(path, gather(run))
    assert verdict.is_the_runs
    assert verdict.differences == ()
    assert verdict.own_numbers == ("12.34",)


@pytest.mark.parametrize("name", ["html", "md"])
def test_a_changed_number_is_found_and_shown_beside_the_true_one(
    run: RunFolder, tmp_path: Path, name: str
) -> None:
    text = (run.path / "en" / f"report.{name}").read_text()
    before, found, results = text.rpartition("What each cell learned")
    true = re.search(r"9[0-5]\.\d\d", results)[0]  # type: ignore[index]
    path = tmp_path / f"report.{name}"
    path.write_text(before + found + results.replace(true, "99.98", 1))
    done = called("check", path, "--run", run.path)
    assert done.code == 1
    assert "NOT what the run gives" in done.stdout
    reported = next(line for line in done.stdout.splitlines() if "in the report:" in line)
    expected = next(line for line in done.stdout.splitlines() if "from the run:" in line)
    assert reported.partition(":")[2].strip() != expected.partition(":")[2].strip()
    if name == "md":
        assert "99.98" in reported
        assert true in expected


def test_her_own_text_may_be_edited_by_hand(run: RunFolder, tmp_path: Path) -> None:
    for name, before in (("html", "I measured"), ("md", "I measured")):
        text = (run.path / "en" / f"report.{name}").read_text()
        path = tmp_path / f"report.{name}"
        path.write_text(text.replace(before, "On 77.77% of days I measured"))
        verdict = check_report(path, gather(run))
        assert verdict.is_the_runs, verdict.differences
        assert verdict.own_numbers == ("77.77", "12.34")


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.slow
def test_a_report_of_another_run_is_not_this_ones(
    run: RunFolder, tmp_path: Path, name: str
) -> None:
    other = rich_run(tmp_path / "other", step_ms=lambda trial, process: 2.5 + process)
    verdict = check_report(run.path / "en" / f"report.{name}", gather(other))
    assert not verdict.has_same_records
    assert not verdict.is_the_runs
    done = called("check", run.path / "en" / f"report.{name}", "--run", other.path, "--lang", "zh")
    assert done.code == 1
    assert "报告依据的不是这些记录" in done.stdout


def test_a_record_changed_after_the_report_was_written_is_found(tmp_path: Path) -> None:
    folder = rich_run(tmp_path / "run")
    (path,) = write_report(gather(folder), folder.report_folder, ("md",), "en", STUDENT)
    assert check_report(path, gather(folder)).is_the_runs
    trial = folder.trial(folder.study().trials[0])
    trial.curve_file.write_text(trial.curve_file.read_text().replace(", ", ",  ", 1))
    verdict = check_report(path, gather(folder))
    assert not verdict.has_same_records
    assert not verdict.is_the_runs


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.slow
def test_a_report_that_was_not_made_for_handing_in_can_be_checked_too(
    run: RunFolder, tmp_path: Path, lang: str
) -> None:
    (path,) = write_report(gather(run), tmp_path, ("md",), lang)
    assert check_report(path, gather(run)).is_the_runs


def test_what_is_no_report_or_lies_in_no_run_is_told(run: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "report.md").write_text("# mine\n")
    done = called("check", tmp_path / "report.md")
    assert done.code == 2
    done = called("check", tmp_path / "report.docx", "--run", run.path)
    assert done.code == 2
    assert not check_report(tmp_path / "report.md", gather(run)).is_the_runs
