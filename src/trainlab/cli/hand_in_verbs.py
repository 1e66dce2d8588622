"""trainlab report, export, check, verify: a run handed in, handed on, and checked."""

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from trainlab.analysis.document import Table
from trainlab.analysis.overview import shortened
from trainlab.cli.live_progress import showing_status
from trainlab.cli.options import ForPrograms, Verb, option, word
from trainlab.cli.output import print_json, print_lines, say
from trainlab.errors import RecordError
from trainlab.lab import open_run
from trainlab.record.files import make_folder, replacing
from trainlab.record.run_folder import RunFolder, check_run, verify
from trainlab.report.terminal import print_blocks
from trainlab.spec.base import plain
from trainlab.words import Words
from trainlab.words.error_lines import error_line

if TYPE_CHECKING:
    from trainlab.report.handed_in import Verdict

MOST_SHOWN = 5
"""Differences shown of each report."""
LONGEST_LINE, LONGEST_TEXT = 160, 60


class ReportVerb(Verb):
    """A run's report, written from its records alone."""

    run: Path = word("RUN")
    """A run folder, finished or not."""
    formats: str = option("html,md,pdf,csv", "", "html", names="--format")
    """One or several, with commas between."""
    out: Path | None = option("DIR")
    """Where to write it; not given: RUN/report."""
    author: str = option("AUTHOR", "", "")
    """Who hands it in: makes it a lab report."""
    student_id: str = option("STUDENT_ID", "", "", names="--id")
    """The author's student ID."""
    class_name: str = option("CLASS", "", "", names="--class")
    """The author's class."""
    course: str = option("COURSE", "", "")
    """The course it is handed in for."""
    teacher: str = option("TEACHER", "", "")
    """Who teaches it."""
    partner: str = option("PARTNERS", "", "")
    """Who did the lab with the author."""
    date: str = option("DATE", "", "")
    """The day, as it is to stand on the cover."""
    notes: Path | None = option("FILE.md")
    """The author's own text, in Markdown; headings such as Method or 讨论 say where it goes."""
    draft: Path | None = option("FILE.md")
    """Write notes to fill in, with a drafted conclusion, and stop."""

    def __call__(self) -> None:
        from trainlab.analysis.overview import data_of
        from trainlab.report import writing
        from trainlab.report.lab_report import NAMED_BY, HandIn, drafted_notes
        from trainlab.report.notes import read_notes

        lang, names = self.words.lang, writing.check_formats(self.formats)
        text, shown, unshown = ("", {}, ()) if self.notes is None else read_notes(self.notes)
        cover = {name: getattr(self, name).strip() for name in NAMED_BY}
        asked = HandIn(**cover, notes=text, pictures=shown)
        hand_in = None if asked == HandIn() and self.notes is None else asked
        run = open_run(self.run)
        evidence = run.evidence()
        if self.draft is not None:
            text = drafted_notes(data_of(evidence), self.words)
            writing.write_new(self.draft, text, "--draft")
            print_lines([self.draft])
            return
        documents, paths = [name for name in names if name != writing.TABLES], list[Path]()
        if documents:
            if self.out is None:
                make_folder(run.report_folder)  # not a link: somebody else may have made the run
            out = self.out or run.report_folder
            paths += writing.write_report(evidence, out, documents, lang, hand_in)
        if writing.TABLES in names:
            from trainlab.analysis.results import write_results

            paths += write_results(run if self.out is None else RunFolder(self.out), evidence)
        print_lines(paths)
        for one in unshown:
            why = self.words(one.key, text=shortened(plain(one.text), LONGEST_TEXT))
            say(Console(stderr=True), f"{self.notes}:{one.line}{self.words('colon')}{why}")


class ExportVerb(Verb):
    """A run for other programs: its files, or what has become of the runs on a server."""

    run: Path = word("RUN")
    """A run folder, finished or not."""
    to: str = option("csv,parquet,latex,mlflow,perfetto", "", ...)
    """One or several, with commas between."""
    out: Path | None = option("DIR")
    """Where to write files; not given: RUN/export."""
    tracking_uri: str | None = option("URI", shown="MLFLOW_TRACKING_URI")
    """MLflow's server, as http://HOST:5000."""

    def __call__(self) -> None:
        from trainlab.export.formats import formats_of

        words, run = self.words, open_run(self.run)
        for to in formats_of(self.to):
            done = run.export(to, self.out, lang=words.lang, tracking_uri=self.tracking_uri)
            print_lines(done.paths)
            if done.experiment:
                made = words.counted("one_trial", "some_trials", done.num_new)
                place = {"experiment": done.experiment, "uri": done.tracking_uri}
                lines = [words("exported_new", trials=made, **place)]
                others = {"exported_there": done.num_there, "exported_left_out": done.num_left_out}
                print_lines([*lines, *(words(key, number=n) for key, n in others.items() if n)])


class CheckVerb(Verb):
    """Whether the numbers of handed-in reports are those of their runs; exits with 1 where not."""

    reports: list[Path] = word("REPORT…")
    """Reports: HTML, Markdown or PDF."""
    run: Path | None = option("RUN")
    """The run folder; not given: the one that each report lies in."""

    def __call__(self) -> None:
        from trainlab.report.handed_in import check_report

        code = 0
        for path in self.reports:
            above = (f for f in path.resolve().parents if (f / "study.json").exists())
            if (run := self.run or next(above, None)) is None:
                raise RecordError(f"{path}: lies in no run folder; name its run with --run RUN")
            verdict = check_report(path, open_run(run).evidence())
            code = code if verdict.is_the_runs else 1
            print_lines(_verdict_lines(verdict, self.words))
        raise SystemExit(code)


def _verdict_lines(verdict: "Verdict", words: Words) -> list[str]:
    hers, differences = verdict.origin, verdict.differences or ()
    named = [text for text in (hers.author, hers.student_id) if text] if hers else []
    who = f" ({words.listed(named)})" if named else ""
    key = "check_same" if verdict.is_the_runs else "check_differs"
    head, lines = f"{verdict.path}{who}{words('colon')}{words(key)}", []
    if not verdict.has_same_records:
        lines.append(words("check_other_records"))
    if verdict.other_version and verdict.differences != ():
        lines.append(words("check_other_version", version=verdict.other_version))
    if verdict.differences is None:
        lines.append(words("check_unreadable"))
    if verdict.is_only_text and verdict.differences == ():
        lines.append(words("check_only_text"))
    for difference in differences[:MOST_SHOWN]:
        sides = {"check_reported": difference.reported, "check_expected": difference.expected}
        for side, text in sides.items():
            line = plain(" ".join(text.split()))
            shown = line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 1]}…"
            lines.append(words(side, text=shown or words("check_nothing")))
    if (more := len(differences) - MOST_SHOWN) > 0:
        lines.append(words("check_more", number=more))
    if verdict.own_numbers:
        lines.append(words("check_own_numbers", numbers=words.listed(verdict.own_numbers)))
    return [head, *(f"  {line}" for line in lines)]


class ClassVerb(ForPrograms):
    """The hand-ins of a class side by side; exits with 1 where one was changed."""

    folder: Path = word("HANDED_IN")
    """The folder with the hand-ins, or a folder for each student: reports (HTML, Markdown, PDF) and run
    folders. Exits with 1 where one was changed."""
    runs: Path | None = option("RUNS")
    """Where to look for their runs, too; not given: among the hand-ins alone."""
    csv: Path | None = option("FILE")
    """Also write a table with every column."""

    def __call__(self) -> None:
        from trainlab.report import submissions

        words, console = self.words, Console()
        with showing_status(Console(stderr=True), "reading_records", words):
            overview = submissions.read_class(self.folder, self.runs)
        if self.csv is not None:
            make_folder(self.csv.parent)
            with replacing(self.csv) as part:
                part.write_text(submissions.csv_of(overview, words.lang), encoding="utf-8")
        if self.as_json:
            rows = [submissions.facts_of(o, overview, words) for o in overview.submissions]
            print_json({"changed": overview.is_changed, "hand_ins": rows})
        else:
            for section in submissions.class_document(overview, words.lang).sections:
                if not any(
                    isinstance(block, Table) for block in section.blocks
                ):  # those are titled
                    console.print(Text(section.title, "italic"))
                print_blocks(console, section.blocks, words)
                console.print()
            if self.csv is not None:
                say(console, words("class_csv_at", path=self.csv))
        raise SystemExit(1 if overview.is_changed else 0)


class VerifyVerb(Verb):
    """Whether the records of a run are as they were written; exits with 1 where one is damaged."""

    run: Path = word("RUN")
    """A run folder, finished or not."""

    def __call__(self) -> None:
        words = self.words
        check_run(self.run)
        found = verify(RunFolder(self.run))
        text = words("verified", path=self.run, files=found.num_files, damaged=len(found.damaged))
        if found.num_unproven:
            text = words.sentences(text, words("unproven", number=found.num_unproven))
        print_lines([*(error_line(reason, words.lang) for reason in found.damaged), text])
        raise SystemExit(1 if found.damaged else 0)
