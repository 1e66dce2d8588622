"""trainlab report, export, check, verify: a run handed in, handed on, and checked."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from trainlab.cli.output import words_in
from trainlab.errors import RecordError

if TYPE_CHECKING:
    from trainlab.report.handed_in import Verdict
    from trainlab.words import Words

MOST_SHOWN = 5
"""Differences shown of each report."""
LONGEST_LINE = 160


def report(
    run: Path,
    *,
    formats: str = "html",
    lang: str | None = None,
    out: Path | None = None,
    author: str | None = None,
    student_id: str | None = None,
    course: str | None = None,
    notes: Path | None = None,
    draft: Path | None = None,
) -> None:
    """A run's report, written from its records alone.

    run RUN: A run folder, finished or not.
    formats --format html,md,pdf,csv: One or several, with commas between.
    out DIR: Where to write it; not given: RUN/report.
    author: Who hands it in: makes it a lab report.
    student_id --id: The author's student ID.
    course: The course it is handed in for.
    notes FILE.md: The author's own text; headings such as Method or 讨论 say where it goes.
    draft FILE.md: Write notes to fill in, with a drafted conclusion, and stop.
    """
    from trainlab.lab import open_run
    from trainlab.record.files import make_folder
    from trainlab.record.run_folder import RunFolder
    from trainlab.report.lab_report import HandIn, read_notes
    from trainlab.report.writing import TABLES, check_formats, draft_notes, write_new, write_report

    spoken = words_in(lang).lang
    names = check_formats(formats)
    text = "" if notes is None else read_notes(notes)
    own = [(part or "").strip() for part in (author, student_id, course)]
    asked = HandIn(own[0], own[1], own[2], text)
    hand_in = None if asked == HandIn() and notes is None else asked
    folder = open_run(run)
    if draft is not None:
        write_new(draft, draft_notes(folder.evidence(), spoken), "--draft")
        sys.stdout.write(f"{draft}\n")
        return
    documents = [name for name in names if name != TABLES]
    paths = []
    if documents:
        if out is None:
            make_folder(folder.report_folder)  # not a link: somebody else may have made the run
        report_folder = out or folder.report_folder
        paths += write_report(folder.evidence(), report_folder, documents, spoken, hand_in)
    if TABLES in names:
        from trainlab.analysis.results import write_results

        paths += write_results(folder if out is None else RunFolder(out), folder.evidence())
    _print_lines(paths)


def _print_lines(lines: "list[str] | list[Path]") -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")


def export(
    run: Path,
    *,
    to: str,
    out: Path | None = None,
    tracking_uri: str | None = None,
    lang: str | None = None,
) -> None:
    """A run for other programs: its files, or what has become of the runs on a server.

    run RUN: A run folder, finished or not.
    to csv|parquet|latex|mlflow|perfetto: The format.
    out DIR: Where to write files; not given: RUN/export.
    tracking_uri URI (MLFLOW_TRACKING_URI): MLflow's server, as http://HOST:5000.
    """
    from trainlab.lab import open_run

    words = words_in(lang)
    exported = open_run(run).export(to, out, lang=words.lang, tracking_uri=tracking_uri)
    if not exported.experiment:
        _print_lines(list(exported.paths))
        return
    made = words.counted("one_trial", "some_trials", exported.num_new)
    place = {"experiment": exported.experiment, "uri": exported.tracking_uri}
    lines = [words("exported_new", trials=made, **place)]
    if exported.num_there:
        lines.append(words("exported_there", number=exported.num_there))
    if exported.num_left_out:
        lines.append(words("exported_left_out", number=exported.num_left_out))
    _print_lines(lines)


def check(
    reports: list[Path],
    *,
    run: Path | None = None,
    lang: str | None = None,
) -> None:
    """Whether the numbers of handed-in reports are those of their runs; exits with 1 where not.

    reports REPORT…: Reports: HTML, Markdown or PDF.
    run RUN: The run folder; not given: the one that each report lies in.
    """
    from trainlab.lab import open_run
    from trainlab.report.handed_in import check_report

    words = words_in(lang)
    all_good = True
    for one in reports:
        verdict = check_report(one, open_run(run or _run_of(one)).evidence())
        all_good = all_good and verdict.is_the_runs
        _print_lines(_verdict_lines(verdict, words))
    raise typer.Exit(0 if all_good else 1)


def _run_of(report: Path) -> Path:
    """The nearest folder above a report that is a run."""
    for folder in report.resolve().parents:
        if (folder / "study.json").exists():
            return folder
    raise RecordError(f"{report}: lies in no run folder; name its run with --run RUN")


def _verdict_lines(verdict: "Verdict", words: "Words") -> list[str]:
    hand_in = verdict.origin.hand_in if verdict.origin is not None else None
    named = [text for text in (hand_in.author, hand_in.student_id) if text] if hand_in else []
    who = f" ({words.listed(named)})" if named else ""
    key = "check_same" if verdict.is_the_runs else "check_differs"
    head, lines = f"{verdict.path}{who}{words('colon')}{words(key)}", []
    if not verdict.has_same_records:
        lines.append(words("check_other_records"))
    if verdict.other_version and not verdict.is_same_text:
        lines.append(words("check_other_version", version=verdict.other_version))
    if not verdict.is_same_text and not verdict.differences:
        lines.append(words("check_unreadable"))
    if verdict.is_only_text and verdict.is_same_text:
        lines.append(words("check_only_text"))
    for difference in verdict.differences[:MOST_SHOWN]:
        reported, expected = (_short(t) for t in (difference.reported, difference.expected))
        lines.append(words("check_reported", text=reported or words("check_nothing")))
        lines.append(words("check_expected", text=expected or words("check_nothing")))
    if (more := len(verdict.differences) - MOST_SHOWN) > 0:
        lines.append(words("check_more", number=more))
    if verdict.own_numbers:
        lines.append(words("check_own_numbers", numbers=words.listed(verdict.own_numbers)))
    return [head, *(f"  {line}" for line in lines)]


def _short(text: str) -> str:
    """On one line of a terminal, without what could steer it."""
    printable = "".join(letter if letter.isprintable() else " " for letter in text)
    return printable if len(printable) <= LONGEST_LINE else printable[: LONGEST_LINE - 1] + "…"


def verify(
    run: Path,
    *,
    lang: str | None = None,
) -> None:
    """Whether the records of a run are as they were written; exits with 1 where one is damaged.

    run RUN: A run folder, finished or not.
    """
    from trainlab.record.run_folder import RunFolder, check_run
    from trainlab.record.run_folder import verify as verify_records
    from trainlab.words.error_lines import error_line

    words = words_in(lang)
    check_run(run)
    found = verify_records(RunFolder(run))
    text = words("verified", path=run, files=found.num_files, damaged=len(found.damaged))
    if found.num_unproven:
        text = words.sentences(text, words("unproven", number=found.num_unproven))
    _print_lines([*(error_line(reason, words.lang) for reason in found.damaged), text])
    raise typer.Exit(1 if found.damaged else 0)
