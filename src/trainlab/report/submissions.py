"""What a class has handed in, side by side: whose it is, whether it was changed, what its run came to."""

import math
import os
import re
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from operator import attrgetter
from pathlib import Path, PurePath
from typing import Any

from trainlab import __version__
from trainlab.analysis.classes import best_first
from trainlab.analysis.document import Block, Document, Entry, Paragraph, Section
from trainlab.analysis.evidence import Evidence, gather, grouped
from trainlab.analysis.measurement import MODES, Estimate
from trainlab.analysis.metrics import compared_metrics, limits_of
from trainlab.analysis.overview import shortened
from trainlab.analysis.tables import EMPTY, Field, count, estimate, mean, name, table_of, value
from trainlab.errors import RecordError, said_by
from trainlab.record.run_folder import RunFolder, run_digests, verify
from trainlab.report.handed_in import (
    FORMATS,
    Edit,
    ReportFile,
    changes_of,
    check_report,
    read_report,
)
from trainlab.report.lab_report import NAMED_BY
from trainlab.report.markdown import FOLDER
from trainlab.spec.base import plain
from trainlab.stats.means import Mean, mean_of
from trainlab.words import Words
from trainlab.words.error_lines import error_line
from trainlab.words.numbers import figure, metric_value

MOST_BYTES = 100_000_000
"""Of a file that is read."""
FEWEST_RUNS, FAR = 5, 5.2
"""From so many runs on an outlier is told: more than FAR times the median absolute deviation away from the
median, a modified z-score of 3.5 (3.5 / 0.6745)."""
LONGEST, MOST_CHANGES = 90, 8
WORD = re.compile(r"[\u4e00-\u9fff]|(?:[^\W\u4e00-\u9fff]+[.,'-]?)+")
"""A Chinese character counts as a word, as it does in word processors."""

CHANGED = ("changed", "damaged", "other_records")
STATES = (
    *(*CHANGED, "other_version", "cut_off", "unreadable"),
    *("no_run", "no_hand_in", "no_report", "whole", "unchanged"),
)
"""What can be said of a hand-in; what a lecturer looks at first."""


@dataclass(frozen=True, kw_only=True)
class Submission:
    """One hand-in: a file, or a run folder with the reports in it; and the main results of its run."""

    file: str
    """Its path in the folder of the class."""
    state: str = "unreadable"
    """One of STATES."""
    reason: str = ""
    """An error line: why it could not be read, or what of its run is damaged."""
    author: str = ""
    student_id: str = ""
    class_name: str = ""
    course: str = ""
    teacher: str = ""
    partner: str = ""
    date: str = ""
    own: tuple[str, ...] = ()
    """What its author wrote, line by line."""
    own_numbers: tuple[str, ...] = ()
    changes: tuple[Edit, ...] = ()
    is_only_text: bool = False
    records: str = ""
    """The digest of the records that it states; of a run folder without a report, of its own."""
    run: str = ""
    """Its run folder; empty where that is not here."""
    study: str = ""
    metric: str = ""
    """The one that the answer goes by; empty where nothing was trained."""
    setting: str = ""
    """The best by that metric."""
    over_seeds: Mean | None = None
    timed: str = ""
    """The first setting that was timed, and its mode: the same in all runs of a study."""
    sample_us: Estimate | None = None
    hosts: tuple[str, ...] = ()
    machine: str = ""

    @property
    def who(self) -> str:
        """Its author, or else its file."""
        return self.author or self.student_id or self.file

    @property
    def num_own_words(self) -> int:
        return sum(len(WORD.findall(line)) for line in self.own)


@dataclass(frozen=True)
class Spread:
    """One result of all runs of a study, each once, by the digests of their records."""

    study: str
    quantity: str
    """A metric, or the setting that was timed."""
    is_time: bool
    values: dict[str, float]

    @property
    def median(self) -> float:
        return statistics.median(self.values.values())

    @property
    def deviation(self) -> float:
        """The median absolute deviation from the median."""
        return statistics.median(abs(one - self.median) for one in self.values.values())

    @property
    def outliers(self) -> frozenset[str]:
        """None where runs are few, or most of them are alike to the last digit."""
        limit, is_known = FAR * self.deviation, len(self.values) >= FEWEST_RUNS
        away = {run: abs(one - self.median) for run, one in self.values.items()}
        return frozenset(run for run, one in away.items() if is_known and one > limit > 0)

    def text(self, one: float) -> str:
        return figure(one) if self.is_time else metric_value(self.quantity, one)

    def title(self, words: Words) -> str:
        own = words("class_time_of", setting=self.quantity)
        return own if self.is_time else words.metric(self.quantity)


@dataclass(frozen=True)
class ClassOverview:
    """All hand-ins in a folder, by their files."""

    folder: str
    submissions: tuple[Submission, ...]

    @property
    def is_changed(self) -> bool:
        """Whether one is not as its run gives it."""
        return any(one.state in CHANGED for one in self.submissions)

    def of_same_run(self, one: Submission) -> list[Submission]:
        others = (o for o in self.submissions if o is not one and o.records == one.records)
        return [*others] if one.records else []

    def of_same_machine(self, one: Submission) -> list[Submission]:
        """Of other runs."""
        hosts = {*one.hosts}
        return [o for o in self.submissions if hosts & {*o.hosts} and o.records != one.records]

    @cached_property
    def spreads(self) -> tuple[Spread, ...]:
        found: dict[tuple[str, str, bool], dict[str, float]] = {}
        for one in self.submissions:
            results = (one.metric, False, one.over_seeds), (one.timed, True, one.sample_us)
            for quantity, is_time, result in results:
                if result is not None:
                    of_study = found.setdefault((one.study, quantity, is_time), {})
                    of_study[one.records] = result.value
        return tuple(Spread(*key, values) for key, values in found.items())


# Reading.


def read_class(folder: Path, runs: Path | None = None) -> ClassOverview:
    """Reads the files and run folders in a folder and in the folders in it; their runs are sought there and
    under `runs`. Follows no link out of either. RecordError where one of the two is no folder."""
    known = dict[str, Path]()
    for home in dict.fromkeys((folder, runs or folder)):
        if not home.is_dir():
            found = "is a file" if home.exists() else "no such folder"
            raise RecordError(f"{home}: {found}; name the folder of the hand-ins, or of runs")
        for study in chain(*(sorted(home.glob("*/" * depth + "study.json")) for depth in range(4))):
            with suppress(RecordError, OSError):  # where it is handed in, its own row says why
                _check_readable(study.parent, home)
                known.setdefault(run_digests(RunFolder(study.parent)).all, study.parent)
    if not (read := [_submission(path, folder, known) for path in _handed_in(folder)]):
        raise RecordError(
            f"{folder}: holds no hand-ins; name the folder of the hand-ins, or of runs"
        )
    # In a student's folder, a run without a report in it belongs to the report beside it.
    place = {one.file: (PurePath(one.file).parent, one.records) for one in read}
    beside = {place[one.file] for one in read if one.state != "whole" and "/" in one.file}
    kept = (one for one in read if one.state != "whole" or place[one.file] not in beside)
    return ClassOverview(str(folder), tuple(kept))


def _handed_in(folder: Path) -> Iterator[Path]:
    """Files and run folders; of a student's folder what is in it, or itself where that is none of these."""
    for path in [folder] if _is_run(folder) else _entries(folder):
        is_student = path.is_dir() and not (_is_run(path) or path.is_symlink())
        inner = _entries(path) if is_student else []
        yield from [one for one in inner if not one.is_dir() or _is_run(one)] or [path]


def _entries(folder: Path) -> list[Path]:
    """What people put there, by name: no hidden files, no pictures of a Markdown report."""
    with suppress(OSError):
        return sorted(p for p in folder.iterdir() if p.name != FOLDER and p.name[0] not in ".~")
    return []


def _is_run(path: Path) -> bool:
    return RunFolder(path).study_file.is_file()


def _check_readable(path: Path, home: Path) -> None:
    """RecordError where it, or a file in it, leads elsewhere, is no plain file or is too large."""
    for one in (path, *(path.rglob("*") if path.is_dir() else ())):
        is_lead = one is path or one.is_symlink()
        if is_lead and not one.resolve().is_relative_to(home.resolve()):
            raise RecordError(f"{one}: is a link out of the folder; hand in the file itself")
        if not one.is_dir() and not one.is_file():
            raise RecordError(f"{one}: is no plain file")
        is_read = one is path or one.suffix.lower() in (*FORMATS, ".json", ".jsonl")
        if is_read and one.is_file() and one.stat().st_size > MOST_BYTES:
            raise RecordError(f"{one}: is larger than {MOST_BYTES // 10**6} MB")


def _submission(path: Path, folder: Path, known: Mapping[str, Path]) -> Submission:
    """One hand-in. Where it makes no sense it says so, and the others are read."""
    one = Submission(file=plain(path.relative_to(folder).as_posix()))
    try:
        _check_readable(path, folder)
        files = [path]
        if path.is_dir():
            files = sorted(chain((path / "report").glob("*"), path.glob("*")))
        reports = [read_report(f) for f in files if f.suffix.lower() in FORMATS and f.is_file()]
        reports = [report for report in reports if report.is_ours or files == [path]]
        one = _identified(one, path, reports)
        run = path if _is_run(path) else known.get(one.records)
        if run is not None and one.state != "cut_off":
            one = _checked(replace(one, run=plain(str(run))), RunFolder(run), reports)
    except Exception as error:  # noqa: BLE001  nothing that a file holds ends the whole class
        one = replace(one, state="unreadable", reason=plain(said_by(error)))
    return replace(one, reason=one.reason.replace(f"{folder}{os.sep}", ""))


def _identified(one: Submission, path: Path, reports: Sequence[ReportFile]) -> Submission:
    """With what it says of itself, whether its run is here or not."""
    own_records = run_digests(RunFolder(path)).all if _is_run(path) else ""
    if not reports or not reports[0].is_ours:
        is_cut = any(report.suffix == ".pdf" and not report.is_whole for report in reports)
        state = "whole" if own_records else "cut_off" if is_cut else "no_report"
        return replace(one, state=state, records=own_records)
    first, origin = reports[0], reports[0].origin
    names = first.shown_names if origin is None else vars(origin)
    named: dict[str, Any] = {field: plain(names.get(field, "")) for field in NAMED_BY}
    return replace(
        one,
        state="cut_off" if not first.is_whole else "no_run" if origin else "no_hand_in",
        records=origin.records if origin else own_records,
        own=tuple(map(plain, first.own_lines)),
        **named,
    )


def _checked(one: Submission, run: RunFolder, reports: Sequence[ReportFile]) -> Submission:
    """With what its run gives."""
    if damaged := verify(run).damaged:
        return replace(one, state="damaged", reason=plain(damaged[0]))
    evidence = gather(run)
    one = replace(one, **results_of(evidence))
    verdicts = [check_report(report.path, evidence) for report in reports]
    if any(verdict.differences is None for verdict in verdicts):
        raise RecordError("pdftotext is not installed")
    changes, state = tuple(chain(*(changes_of(v.differences or ()) for v in verdicts))), one.state
    if not all(verdict.has_same_records for verdict in verdicts):
        changes, state = (), "other_records"
    elif changes and any(verdict.other_version for verdict in verdicts):
        changes, state = (), "other_version"
    elif reports:
        state = "changed" if changes else "unchanged"
    return replace(
        one,
        state=state,
        changes=changes,
        own_numbers=tuple(dict.fromkeys(chain(*(verdict.own_numbers for verdict in verdicts)))),
        is_only_text=any(verdict.is_only_text for verdict in verdicts),
    )


def results_of(evidence: Evidence) -> dict[str, Any]:
    """Of the best setting, and of the first that was timed."""
    metric = next(iter(compared_metrics(evidence)), "")
    setting = best_first(evidence, metric)[0] if metric else ""
    values = [*evidence.values(setting, metric).values()]
    timed = [one for mode in MODES for one in evidence.measured_in(mode)][:1]
    machine = evidence.environment
    return {
        "study": evidence.name,
        "metric": metric,
        "setting": setting,
        "over_seeds": mean_of(values, limits_of(metric, values)),
        "timed": "".join(f"{one.trial.cell} ({one.summary.mode})" for one in timed),
        "sample_us": timed[0].summary.sample_us if timed else None,
        "hosts": tuple(sorted({one.host for one in evidence.environments.values() if one.host})),
        "machine": machine.gpus[0].name if machine.gpus else machine.cpu,
    }


# Showing.


def change_text(change: Edit, words: Words) -> str:
    """What was edited, and in which sections."""
    where = words.listed(f"“{one or words('class_top')}”" for one in change.sections)
    before, after = (
        shortened(plain(side), LONGEST) or words("check_nothing")
        for side in (change.before, change.after)
    )
    return words(change.edit, before=before, after=after, where=where)


def facts_of(one: Submission, overview: ClassOverview, words: Words) -> dict[str, Any]:
    """All that is known of a hand-in, by column of the CSV file."""
    learned = one.over_seeds or Mean(math.nan, None, None, 0)
    time = one.sample_us or Estimate(math.nan)

    def called(other: Submission) -> str:
        return other.file if other.who == one.who else other.who

    groups = {
        "same_run_as": overview.of_same_run(one),
        "same_machine_as": overview.of_same_machine(one),
    }
    outliers = (spread for spread in overview.spreads if one.records in spread.outliers)
    told = {
        "reason": error_line(one.reason, words.lang),
        "changes": words("list_semicolon").join(change_text(o, words) for o in one.changes),
        **{key: words.listed(dict.fromkeys(map(called, same))) for key, same in groups.items()},
        "value": learned.value,
        **dict(zip(("value_low", "value_high"), learned.ends, strict=True)),
        "num_seeds": learned.n,
        "sample_us": time.value,
        "sample_us_low": time.low,
        "sample_us_high": time.high,
        "hosts": words.listed(one.hosts),
        "outlier_in": words.listed(spread.title(words) for spread in outliers),
        "own_words": one.num_own_words,
        "own_first_line": "".join(one.own[:1]),
        "own_numbers": words.listed(one.own_numbers),
    }
    return {key: v for key, v in vars(one).items() if key not in ("own", "over_seeds")} | told


def _named(one: Submission) -> str:
    """Whose it is, and which file."""
    return one.file if one.who == one.file else f"{one.who} ({one.file})"


def csv_of(overview: ClassOverview, lang: str = "en") -> str:
    """A row per hand-in with every column."""
    import pandas as pd

    from trainlab.analysis import results

    rows = [facts_of(one, overview, Words(lang)) for one in overview.submissions]
    return results.csv_of(pd.DataFrame(rows)).decode()


def class_document(overview: ClassOverview, lang: str) -> Document:
    """All hand-ins, then what was changed, runs in common, results, and what the authors wrote."""
    words, submissions = Words(lang), overview.submissions
    facts = {one.file: facts_of(one, overview, words) for one in submissions}

    def remarks(one: Submission) -> str:
        told = facts[one.file]
        texts = {
            "class_same_run_as": told["same_run_as"],
            "class_same_machine_as": told["same_machine_as"],
            "class_outlier_in": told["outlier_in"],
        }
        remarks = [words(k, text=shortened(text, LONGEST)) for k, text in texts.items() if text]
        remarks += [words("check_only_text")] if one.is_only_text else []
        return words("list_semicolon").join([*filter(None, [told["reason"]]), *remarks])

    def best(one: Submission) -> Entry:
        entry = mean(one.metric, one.over_seeds, "")
        is_named = entry.text and len({o.metric for o in submissions if o.metric}) > 1
        text = f"{words.metric(one.metric)} {entry.text}"
        return replace(entry, text=text) if is_named else entry

    states = Counter(one.state for one in submissions)
    who, file = words("class_who"), words("file")
    fields: list[Field[Submission]] = [
        name(who, lambda one: one.who),
        *(
            name(words(key), attrgetter(own), is_extra=True)
            for key, own in (
                ("lab_id", "student_id"),
                ("lab_class", "class_name"),
                ("lab_course", "course"),
            )
            if any(map(attrgetter(own), submissions))
        ),
        name(file, lambda one: one.file),
        name(words("class_check"), lambda one: words(f"state_{one.state}")),
        value(words("class_best"), best),
        value(words("sample_us"), lambda one: estimate(one.sample_us) if one.sample_us else EMPTY),
        value(words("seeds"), lambda one: count(one.over_seeds.n) if one.over_seeds else EMPTY),
        name(words("class_machine"), lambda one: one.machine),
        name(words("class_remarks"), remarks),
    ]
    edits: list[Field[tuple[Submission, str]]] = [
        name(who, lambda row: row[0].who),
        name(file, lambda row: row[0].file),
        name(words("class_change"), lambda row: row[1]),
    ]
    results: list[Field[Spread]] = [
        name(words("study"), lambda one: one.study),
        name(words("class_quantity"), lambda one: one.title(words)),
        value(words("class_runs"), lambda one: count(len(one.values))),
        value(words("class_median"), lambda one: Entry(one.text(one.median))),
        value(words("class_deviation"), lambda one: Entry(one.text(one.deviation))),
        value(words("class_lowest"), lambda one: Entry(one.text(min(one.values.values())))),
        value(words("class_highest"), lambda one: Entry(one.text(max(one.values.values())))),
        name(
            words("class_outliers"),
            lambda one: words.listed(_named(o) for o in submissions if o.records in one.outliers),
        ),
    ]
    texts: list[Field[Submission]] = [
        name(who, lambda one: one.who),
        value(words("class_own_words"), lambda one: count(one.num_own_words)),
        name(words("class_first_line"), lambda one: shortened("".join(one.own[:1]), LONGEST)),
        name(words("class_own_numbers"), lambda one: words.listed(one.own_numbers)),
    ]
    told = [(states[state], words(f"state_{state}")) for state in STATES if states[state]]
    listed = words("list_semicolon").join(words("class_state", number=n, state=s) for n, s in told)
    counts = Paragraph(words("class_counts", number=len(submissions), states=listed))
    changes = [
        (one, change_text(change, words))
        for one in submissions
        for change in one.changes[:MOST_CHANGES]
    ]
    more = [(o, len(o.changes) - MOST_CHANGES) for o in submissions]
    changes += [(o, words("check_more", number=n)) for o, n in more if n > 0]
    hers = [one for one in submissions if one.own]
    far = words("class_outlier_note", limit=FAR, fewest=FEWEST_RUNS)
    parts: dict[str, list[Block]] = {
        "class_table": [
            counts,
            table_of(words("class_table_of"), fields, submissions, is_sortable=True),
        ],
        "class_changed": [
            table_of(words("class_changed_of"), edits, changes, words("class_edits"))
        ],
        "class_same": [Paragraph(text) for text in _same_texts(overview, words)],
        "class_results": [table_of(words("class_results_of"), results, overview.spreads, far)],
        "class_own": [table_of(words("class_own_of"), texts, hers)],
    }
    is_empty = {"class_changed": not changes, "class_results": not overview.spreads}
    is_empty |= {"class_own": not hers, "class_same": not parts["class_same"]}
    sections = (
        Section(key.replace("_", "-"), words(key), tuple(blocks))
        for key, blocks in parts.items()
        if not is_empty.get(key)
    )
    return Document(
        title=words("class_title"),
        subtitle=overview.folder,
        lang=lang,
        made_by=words("class_made_by", version=__version__),
        notices=(),
        sections=tuple(sections),
    )


def _same_texts(overview: ClassOverview, words: Words) -> Iterator[str]:
    """Runs that were handed in more than once, and machines of several runs."""
    for group in grouped(overview.submissions, lambda one: one.records).values():
        if len(group) > 1 and group[0].records:
            several = len({(o.author, o.student_id) for o in group if o.author or o.student_id}) > 1
            yield words(
                "class_same_run_names" if several else "class_same_run",
                who=words.listed(map(_named, group)),
            )
    for host in sorted({host for one in overview.submissions for host in one.hosts}):
        here = [one for one in overview.submissions if host in one.hosts]
        if len({one.records for one in here}) > 1:
            yield words("class_same_machine", host=host, who=words.listed(map(_named, here)))
