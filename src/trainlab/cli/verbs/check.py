"""trainlab check: whether the numbers of handed-in reports are those of their runs."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainlab.cli.language import words_in
from trainlab.cli.options import LangOption
from trainlab.errors import RecordError

if TYPE_CHECKING:
    from trainlab.report.handed_in import Verdict
    from trainlab.words import Words

MOST_SHOWN = 5
"""Differences shown of each report."""
LONGEST_LINE = 160


def command(
    reports: Annotated[
        list[Path], typer.Argument(metavar="REPORT…", help="Reports: HTML, Markdown or PDF.")
    ],
    run: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN", help="The run folder; not given: the one that each report lies in."
        ),
    ] = None,
    lang: LangOption = None,
) -> None:
    """Exits with 1 where a report is not its run's."""
    from trainlab.lab import open_run
    from trainlab.report.handed_in import check_report

    words = words_in(lang)
    all_good = True
    for report in reports:
        folder = open_run(run if run is not None else _run_of(report))
        verdict = check_report(report, folder.evidence())
        all_good = all_good and verdict.is_the_runs
        for line in _lines(verdict, words):
            sys.stdout.write(f"{line}\n")
    raise typer.Exit(0 if all_good else 1)


def _run_of(report: Path) -> Path:
    """The nearest folder above a report that is a run."""
    for folder in report.resolve().parents:
        if (folder / "study.json").exists():
            return folder
    raise RecordError(f"{report}: lies in no run folder; name its run with --run RUN")


def _lines(verdict: "Verdict", words: "Words") -> list[str]:
    hand_in = verdict.origin.hand_in if verdict.origin is not None else None
    named = [text for text in (hand_in.author, hand_in.student_id) if text] if hand_in else []
    who = f" ({words.listed(named)})" if named else ""
    key = "check_same" if verdict.is_the_runs else "check_differs"
    lines = [f"{verdict.path}{who}{words('colon')}{words(key)}"]
    if not verdict.has_same_records:
        lines.append("  " + words("check_other_records"))
    if verdict.other_version and not verdict.is_same_text:
        lines.append("  " + words("check_other_version", version=verdict.other_version))
    if not verdict.is_same_text and not verdict.differences:
        lines.append("  " + words("check_unreadable"))
    if verdict.is_only_text and verdict.is_same_text:
        lines.append("  " + words("check_only_text"))
    for difference in verdict.differences[:MOST_SHOWN]:
        reported, expected = (_short(t) for t in (difference.reported, difference.expected))
        nothing = words("check_nothing")
        lines.append("  " + words("check_reported", text=reported or nothing))
        lines.append("  " + words("check_expected", text=expected or nothing))
    if (more := len(verdict.differences) - MOST_SHOWN) > 0:
        lines.append("  " + words("check_more", number=more))
    if verdict.own_numbers:
        numbers = words.listed(verdict.own_numbers)
        lines.append("  " + words("check_own_numbers", numbers=numbers))
    return lines


def _short(text: str) -> str:
    """On one line of a terminal, without what could steer it."""
    printable = "".join(letter if letter.isprintable() else " " for letter in text)
    return printable if len(printable) <= LONGEST_LINE else printable[: LONGEST_LINE - 1] + "…"
