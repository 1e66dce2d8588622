"""What a page shows of runs, read in a process of its own: it may take long, need much memory, or die of a
folder that somebody else has made."""

import asyncio
import math
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from trainlab.analysis import comparison, overview
from trainlab.analysis.answer import answer
from trainlab.analysis.document import Document, Figure, Notice, Section
from trainlab.analysis.evidence import UNFINISHED, Evidence, gather, grouped
from trainlab.analysis.finding import RunData
from trainlab.analysis.learning import curves_beside
from trainlab.analysis.overview import data_of
from trainlab.analysis.tables import estimate, mean
from trainlab.errors import RecordError, TrainlabError
from trainlab.execute.planned_run import code_of, has_trust
from trainlab.lab.run_progress import RunProgress, end_text, progress_line, running_lines
from trainlab.machine.processes import go_last
from trainlab.record.run_folder import RunFolder
from trainlab.record.trial_record import TrialRecord
from trainlab.report.contents import report_of
from trainlab.report.html import Part, bundle, environment, html_of, parts_of
from trainlab.report.submissions import class_document, read_class, results_of
from trainlab.words import LANGUAGES, Words
from trainlab.words.error_lines import error_line

P = ParamSpec("P")
T = TypeVar("T")

NICENESS = 12
"""What runs beside it goes first: where all cores are busy, a twentieth of one is left."""
MOST_SQUARES = 1000
"""Trials drawn one by one; of more those that have not ended well, and how many there are."""
LARGE_BYTES = 256_000
"""Of study.json, from some 2,000 trials on: such a run is read whole in a process of its own, which keeps
nobody waiting, and gives back its memory as it ends."""
MOST_KEPT = 8
"""Runs whose progress is remembered from one look to the next."""
LOG_BYTES = 200_000
LONGEST_ANSWER = 240


class Reader:
    """The process that reads, and who waits for it; the most urgent first."""

    def __init__(self) -> None:
        self._pool = _new_pool(_begin)
        self._later, self._apart = asyncio.Lock(), asyncio.Lock()

    async def call(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What a function of this module gives, in the other process; RecordError where that died."""
        return await self._done_in(self._pool, work, *args)

    async def call_later(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The same, one by one, so that what is urgent waits for one at most; of large runs apart."""
        if not is_large(str(args[0])):
            async with self._later:
                return await self.call(work, *args, **kwargs)
        async with self._apart:
            pool = _new_pool(go_last)
            try:
                return await self._done_in(pool, work, *args)
            finally:
                pool.shutdown(wait=False)

    async def _done_in(self, pool: ProcessPoolExecutor, work: Callable[..., T], *args: Any) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, work, *args)
        except BrokenProcessPool as error:
            if pool is self._pool:
                self._pool = _new_pool(_begin)
            raise RecordError(f"{args[0]}: reading it ended the process") from error

    def close(self) -> None:
        """Whatever is being read."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for one in active_children():
            one.kill()


def _new_pool(begin: Callable[[int, int], None], niceness: int = NICENESS) -> ProcessPoolExecutor:
    given = os.getpid(), niceness
    return ProcessPoolExecutor(1, get_context("spawn"), initializer=begin, initargs=given)


def _begin(parent: int, niceness: int) -> None:
    # Only after all imports of this module: who opens a page beside a training waits for them.
    go_last(parent, niceness)


def is_large(path: str) -> bool:
    """Whether reading a run whole takes long."""
    with suppress(OSError):
        return (Path(path) / "study.json").stat().st_size > LARGE_BYTES
    return False


def vega() -> str:
    """What draws charts. Making it takes 100 MB: in a process that ends afterwards."""
    with _new_pool(go_last, niceness=0) as pool:
        return pool.submit(bundle).result()


# What the other process does.


@cache
def templates() -> Any:
    """Those of this room and of reports."""
    return environment("page", "report")


def told(error: Exception, lang: str) -> str:
    """What went wrong, in a line."""
    text = str(error) if isinstance(error, TrainlabError) else f"{type(error).__name__}: {error}"
    return error_line(text, lang)


def pieces(words: Words) -> Any:
    """The macros of the pieces of pages, in a language."""
    return templates().get_template("pieces.html.j2").make_module({"words": words})


_progress: dict[str, RunProgress] = {}


@dataclass(frozen=True)
class Look:
    """How far a run is."""

    parts: tuple[Part, ...]
    mark: tuple[Any, ...]
    """Another one where its report may have changed."""
    is_driven: bool
    is_timing: bool
    """Whether costs are being measured: little else should happen meanwhile."""


def checked_folder(path: str) -> RunFolder:
    """A run whose records lie in its folder: RecordError where some are links, which may lead anywhere, or
    pipes, which may never end."""
    folder = RunFolder(Path(path))
    inside = [folder.path, folder.trials_folder, folder.environments_folder]
    inside += [folder.events_folder, folder.drivers_folder, folder.logs_folder]
    with suppress(FileNotFoundError):
        inside += [Path(one) for one in os.scandir(folder.trials_folder) if one.is_dir()]
    for place in inside:
        with suppress(FileNotFoundError):
            for one in os.scandir(place):
                is_plain = one.is_file(follow_symlinks=False) or one.is_dir(follow_symlinks=False)
                if not is_plain and not one.name.startswith("."):
                    name = Path(one).relative_to(folder.path)
                    raise RecordError(f"{name}: is a link or a pipe; copy the run whole")
    return folder


def look(path: str, run_id: str, lang: str, is_read_only: bool) -> Look:
    """How far it is, and what can be done with it."""
    run, words = checked_folder(path), Words(lang)
    progress = _progress.pop(path, None) or RunProgress(run)
    _progress[path] = progress.look()
    for old in [*_progress][:-MOST_KEPT]:
        del _progress[old]
    running = list(progress.running.values())
    order = {one["id"]: place for place, one in enumerate(run.study().study["cells"])}
    trials = sorted(progress.trials.values(), key=lambda one: order.get(one.cell, -1))
    curves = [run.trial(one.id).curve_file for group in running for one in group.trials]
    sizes = tuple(file.stat().st_size for file in curves if file.exists())
    counts = progress.counts()
    mark: tuple[Any, ...] = (
        tuple(sorted(counts.items())),
        len(trials),
        sizes,
        run.diagnosis.exists(),
    )
    mark += (progress.is_driven, run.results_csv.exists())
    state = state_of(progress)
    status = pieces(words).status(
        state=state,
        lines=[progress_line(progress, words), *running_lines(progress, words)],
        run_id=run_id,
        may_cancel=progress.is_driven and not is_read_only,
        may_resume=state in ("interrupted", "waiting", "failed") and not is_read_only,
        needs_trust=bool(code_of(run)) and not has_trust(run),
        command=shlex.join(["trainlab", "resume", path, "--trust"]),
    )
    parts = (Part("status", status), Part("trials", _grid(trials, progress, run_id, words)))
    is_timing = any(group.trials[0].kind == "cost" for group in running)
    return Look(parts, mark, progress.is_driven, is_timing)


def state_of(progress: RunProgress) -> str:
    """A run in one word."""
    counts = progress.counts()
    if progress.is_driven:
        return "running"
    if counts["interrupted"] or counts["pending"]:
        return "interrupted" if len(counts) > 1 or counts["interrupted"] else "waiting"
    return "failed" if counts["failed"] else "done"


def _grid(trials: Sequence[TrialRecord], progress: RunProgress, run_id: str, words: Words) -> str:
    """A square per trial, a row per setting: those that train, then those that measure."""
    states = {one.id: state for state in progress.counts() for one in progress.in_state(state)}
    shown, more = trials, 0
    if len(trials) > MOST_SQUARES:
        notable = [one for one in trials if states[one.id] not in ("done", "pending")]
        shown = notable[:MOST_SQUARES]
        more = len(trials) - len(shown)
    rows = [
        (cell, [(one, states[one.id], _square_label(one, states[one.id], words)) for one in group])
        for cell, group in grouped(shown, lambda one: one.cell).items()
    ]
    counts = [
        (state, number, words(f"page_state_{state}"))
        for state, number in sorted(progress.counts().items())
    ]
    grid: str = pieces(words).grid(
        rows=rows, more=more, counts=counts, run_id=run_id, is_over=progress.is_finished
    )
    return grid


def _square_label(trial: TrialRecord, state: str, words: Words) -> str:
    if trial.kind == "learn":
        name = f"{words('seed')} {trial.seed}"
    else:
        name = words(
            "trial_measured",
            name=words.mode(trial.mode or ""),
            watch=words(f"watch_{trial.watch or 'steps'}"),
        )
    return words.listed([name, words(f"page_state_{state}")])


def report_parts(
    path: str, run_id: str, lang: str, is_read_only: bool, is_driven: bool
) -> tuple[Part, ...]:
    """The report so far, piece by piece, after buttons for what would settle its open points."""
    run, words = checked_folder(path), Words(lang)
    data = _data(run, is_driven)
    commands = [] if is_driven else settling(data, words)
    may = not is_read_only and _may_start(run)
    following = pieces(words).following(commands=commands, run_id=run_id, may=may)
    return (*parts_of(report_of(data, lang)), Part("following", following))


def _data(run: RunFolder, is_driven: bool) -> RunData:
    evidence = gather(run)
    return data_of(replace(evidence, is_running=is_driven and not evidence.is_complete))


def settling(data: RunData, words: Words) -> list[tuple[str, str]]:
    """The commands that would settle what is open, each once, and how long they take."""
    points = answer(data.evidence, data.findings, words).open_points
    told = {one.command: one.remark for one in points if one.command}
    return [(c, remark) for c, remark in told.items() if c.startswith("trainlab run ")]


def _may_start(run: RunFolder) -> bool:
    """Whether the command of its records may be started: that of a run which this user has started, and
    whose code is found from any folder."""
    code = code_of(run)
    return has_trust(run) and (not code or Path(code).is_absolute())


def settling_command(path: str, number: int) -> list[str]:
    """The words of one of them, made again from the run's records."""
    run = checked_folder(path)
    if not _may_start(run):
        raise RecordError("you have not started this run from here: type the command in a terminal")
    commands = settling(_data(run, is_driven=False), Words("en"))
    if not 0 <= number < len(commands):
        raise RecordError("the run has changed meanwhile: reload the page")
    return shlex.split(commands[number][0])[1:]


def report_file(path: str, lang: str) -> str:
    """The report as one file."""
    return html_of(report_of(data_of(gather(checked_folder(path))), lang))


def trial_page(path: str, run_id: str, trial_id: str, lang: str) -> tuple[str, bool]:
    """A trial: how it ended, and what its process and its script have printed; and whether it has ended.
    KeyError where the run has no such trial."""
    run, words = checked_folder(path), Words(lang)
    if trial_id not in run.study().trials:
        raise KeyError(trial_id)
    files = run.trial(trial_id)
    record = files.read()
    texts = [
        (words("page_output"), _tail(files.output_file)),
        (words("page_log"), _tail(run.log_file(trial_id))),
    ]
    if record.error is not None:
        texts.insert(0, (words("page_error"), record.error.traceback or record.error.message))
    page: str = pieces(words).trial(
        trial=record,
        state=words(f"page_state_{record.state}"),
        ended=end_text(record, words),
        texts=[(title, text) for title, text in texts if text.strip()],
        run_id=run_id,
    )
    return page, record.state not in UNFINISHED


def _tail(path: Path) -> str:
    """The last of a text file; empty where there is none. Links are not followed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    with os.fdopen(descriptor, "rb") as stream:
        stream.seek(max(0, stream.seek(0, os.SEEK_END) - LOG_BYTES))
        return stream.read().decode("utf-8", "replace")


@dataclass(frozen=True)
class Outcome:
    """What the list of runs says of one beyond what was asked."""

    state: str
    num_ended: int
    num_trials: int
    answer: dict[str, str]
    """By language."""
    metric: str = ""
    """The one that the answer goes by."""
    best: str = ""
    best_value: float | None = None
    sample: str = ""
    """The time per sample."""
    sample_us: float | None = None
    machine: str = ""


def damaged(error: Exception) -> Outcome:
    """Of a run that cannot be read: why."""
    return Outcome("damaged", 0, 0, {one: told(error, one)[:LONGEST_ANSWER] for one in LANGUAGES})


def summary_of(path: str) -> Outcome:
    """Of one run; what cannot be read is said in place of its answer."""
    try:
        run = checked_folder(path)
        progress = RunProgress(run).look()
        evidence = gather(run)
    except Exception as error:  # noqa: BLE001  somebody else's folder; the list goes on
        return damaged(error)
    ended = sum(trial.is_finished for trial in progress.trials.values())
    summary = Outcome(state_of(progress), ended, len(progress.trials), {})
    with suppress(Exception):
        summary = replace(summary, **_results(evidence))
    return replace(summary, answer=_answers(evidence))


def _answers(evidence: Evidence) -> dict[str, str]:
    try:
        data = data_of(evidence)
        found = {lang: answer(evidence, data.findings, Words(lang)).sentences for lang in LANGUAGES}
    except Exception as error:  # noqa: BLE001  records that make no sense
        return damaged(error).answer
    return {
        lang: sentences[0].text[:LONGEST_ANSWER] if sentences else ""
        for lang, sentences in found.items()
    }


def _results(evidence: Evidence) -> dict[str, Any]:
    """The best setting's metric with its interval over seeds, the least time per sample, the machine."""
    results: dict[str, Any] = {"machine": evidence.environment.host}
    found = results_of(evidence)
    if (best := found["over_seeds"]) is not None and not math.isnan(best.value):
        metric = found["metric"]
        results |= {"metric": metric, "best": mean(metric, best, "").text, "best_value": best.value}
    measured = evidence.measured_in("train") or evidence.measured_in("inference")
    if costs := [one.summary.sample_us for one in measured]:
        least = min(costs, key=lambda one: one.value)
        results |= {"sample": f"{estimate(least).text} µs", "sample_us": least.value}
    return results


# Several runs.


def compared(paths: Sequence[str], lang: str) -> tuple[Part, ...]:
    """The first run against each of the others; what cannot be compared says why."""
    words, folders = Words(lang), [checked_folder(path) for path in paths]
    data = [data_of(gather(folder)) for folder in folders]
    labels = comparison.labels_of([one.evidence for one in data], [one.path for one in folders])
    notices = [
        replace(notice, text=f"{label}{words('colon')}{notice.text}")
        for one, label in zip(data, labels, strict=True)
        for notice in overview.notices(one, words)
    ]
    alike, pairs = {labels[0]: data[0]}, list[Section]()
    for number, (other, label) in enumerate(zip(data[1:], labels[1:], strict=True), 1):
        if other.evidence.study.workload != data[0].evidence.study.workload:
            notices.append(Notice(words("page_other_workload", first=labels[0], other=label)))
            continue
        alike[label] = other
        try:
            beside = comparison.side_by_side(data[0].evidence, other.evidence)
        except RecordError as error:
            notices.append(Notice(error_line(str(error), lang)))
            continue
        found = comparison.comparison_of(data[0], other, beside, lang, (labels[0], label))
        title = words("page_against", first=labels[0], second=label)
        pair = Section(f"pair-{number}", title, (), found.sections)
        pairs.append(_renumbered(pair, f"p{number}-"))
    if figures := tuple(_laid_over(alike, words)):
        pairs.insert(0, Section("curves", words("page_curves"), figures))
    title = words("page_compared", names=words.listed(labels))
    return parts_of(Document(title, "", lang, "", tuple(notices), tuple(pairs)))


def class_parts(folder: str, runs: str, lang: str) -> tuple[Part, ...]:
    """What was handed in, side by side; `runs`: where else its runs may be."""
    return parts_of(class_document(read_class(Path(folder), Path(runs)), lang))


def _renumbered(section: Section, prefix: str) -> Section:
    """With ids of its own for all that is in it."""
    blocks = tuple(
        replace(block, id=prefix + block.id) if isinstance(block, Figure) else block
        for block in section.blocks
    )
    inner = tuple(_renumbered(one, prefix) for one in section.sections)
    return replace(section, id=prefix + section.id, blocks=blocks, sections=inner)


def _laid_over(runs: Mapping[str, RunData], words: Words) -> Iterator[Figure]:
    """The curves of the metrics that all runs have, in one chart each; none of one run alone."""
    first, *others = (one.evidence.metrics for one in runs.values())
    for metric in first if others else ():
        if all(metric in one for one in others):
            figure = curves_beside([*runs.values()], [*runs], metric, words)
            yield from () if figure is None else (figure,)
