"""What a person or a program is shown when a run has ended: what it came to, and a study's report."""

import shlex
import sys
from typing import TYPE_CHECKING

from rich.console import Console

from trainlab.cli.options import print_json
from trainlab.cli.progress.heartbeat import showing_status
from trainlab.errors import MissingExtraError
from trainlab.lab import Run
from trainlab.words import Words
from trainlab.words.error_lines import error_line

if TYPE_CHECKING:
    from trainlab.analysis.finding import RunData


def show_outcome(run: Run, words: Words, *, as_json: bool, quiet: bool, report: bool) -> None:
    """Prints what the run came to; a study also gets its report, whatever is printed."""
    from trainlab.analysis.overview import data_of
    from trainlab.cli.summary import print_summary, run_json, say

    data = data_of(run.evidence())
    if as_json:
        print_json(run_json(run, data.evidence))
    elif quiet:
        sys.stdout.write(f"{run.path}\n")
    else:
        print_summary(Console(), run, data, words)
    if report and data.evidence.study.cells:
        _write_report(run, data, words, Console(quiet=as_json or quiet))
    elif report and data.evidence.learned:
        command = shlex.join(["trainlab", "report", str(run.path)])
        say(Console(quiet=as_json or quiet), words("report_with", command=command))


def _write_report(run: Run, data: "RunData", words: Words, console: Console) -> None:
    from trainlab.cli.summary import say
    from trainlab.report.contents import report_of
    from trainlab.report.writing import write_document

    try:
        with showing_status(Console(stderr=True, quiet=console.quiet), "writing_report", words):
            document = report_of(data, words.lang)
            (path,) = write_document(document, ("html",), run.report_folder)
    except MissingExtraError as error:
        say(console, words("no_report", why=error_line(str(error), words.lang)))
    else:
        say(console, words("report_at", path=path), "bold")
