"""What watching a script has shown: where its time goes, what grows, what its loader does."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from trainlab.analysis.evidence import Evidence
from trainlab.analysis.findings.finding import Finding
from trainlab.analysis.scripts.times import (
    EVALUATION,
    STARTUP,
    Cut,
    ScriptTimes,
    Spread,
    first_step_ms,
    grown,
    script_times,
    step_share,
    steps_ms,
)
from trainlab.record.scripts.watched import LoaderRow, WatchedRecord
from trainlab.words import Words
from trainlab.words.numbers import MIB, figure, percent

NOTABLE_OF_RUN = 0.2
"""From this share of a run on, evaluation is worth a sentence."""
NOTABLE_START = 0.3
NOTABLE_OF_STEP = 0.25
"""From this share of a step on, a part other than the passes themselves is worth a sentence."""
HOST_PARTS = ("data", "transfer", "prepare", "other")
"""Parts whose time is that of the host, on any device."""
COUNTED_PARTS = (*HOST_PARTS, "zero_grad", "loss", "optimizer")
IN_ORDER = "in order"
WHOLE: dict[Cut, str] = {
    "": "script_time",
    "interrupted": "script_time_interrupted",
    "failed": "script_time_failed",
}
"""The sentence about all time, by how the runs ended."""


@dataclass(frozen=True, kw_only=True)
class ScriptFinding(Finding):
    """What the findings about a script share."""

    section = "script"

    num_cells: int
    """Of the study: one cell needs no name."""

    def phrases(self, words: Words) -> dict[str, object]:
        is_all = len(self.cells) == self.num_cells
        where = "" if is_all else words("script_where", cell=words.listed(self.cells))
        return super().phrases(words) | {"where": where}

    def ranged(self, words: Words, low: str, high: str) -> str:
        """The range over the seeds, where there are several."""
        return words("script_range", low=low, high=high, seeds=self.n) if self.n > 1 else ""


@dataclass(frozen=True, kw_only=True)
class ScriptTime(ScriptFinding):
    """How long the script ran, what of it was training, and what watching took."""

    kind = "script_time"
    rank = 3

    wall_s: float
    low_s: float
    high_s: float
    startup_share: float
    training_share: float
    evaluation_share: float
    step_ms: float | None
    """The median after the first."""
    first_step_ms: float | None
    overhead_s: float
    overhead_share: float
    instruments_s: float
    """Beside the whole."""
    num_updates: int
    cut: Cut

    def statement(self, words: Words) -> str:
        steps = "" if self.step_ms is None else self.fill(words, "script_steps")
        own = self.fill(words, "script_instruments") if self.instruments_s else ""
        watching = self.fill(words, "script_watching")
        return words.sentences(self.whole(words), steps, watching, own)

    def whole(self, words: Words) -> str:
        """The first sentence alone."""
        range_text = self.ranged(words, figure(self.low_s), figure(self.high_s))
        if not self.cut and not self.training_share and self.first_step_ms is None:
            return self.fill(words, "script_time_no_updates", range=range_text)
        parts = [words("script_starting", share=percent(self.startup_share))]
        parts.append(words("script_training", share=percent(self.training_share)))
        if self.evaluation_share:
            parts.append(words("script_testing", share=percent(self.evaluation_share)))
        return self.fill(words, WHOLE[self.cut], range=range_text, parts=words.listed(parts))

    @property
    def weight(self) -> float:
        return self.wall_s


@dataclass(frozen=True, kw_only=True)
class ScriptPart(ScriptFinding):
    """A part that takes a large share of the run or of its steps."""

    kind = "script_part"
    rank = 4

    of: str
    """`run` or `step`."""
    share: float
    low: float
    high: float
    time: float
    """Seconds of the run, or milliseconds of a typical step."""

    def statement(self, words: Words) -> str:
        range_text = self.ranged(words, percent(self.low), percent(self.high))
        part = words.phase(self.subject)
        key = f"script_part_{self.subject}" if self.of == "run" else "script_part_step"
        if self.of == "step" and self.subject in ("data", "optimizer", "other"):
            key = f"script_step_{self.subject}"
        return self.fill(words, key, range=range_text, part=words.capital(part))

    @property
    def weight(self) -> float:
        return self.share


@dataclass(frozen=True, kw_only=True)
class ScriptMemory(ScriptFinding):
    """Memory that keeps growing with the updates."""

    kind = "script_memory"
    rank = 2

    mib_per_update: float
    first_mib: float
    last_mib: float
    num_updates: int

    def statement(self, words: Words) -> str:
        return self.fill(words, "script_memory_seeds" if self.n > 1 else "script_memory")

    @property
    def weight(self) -> float:
        return self.last_mib - self.first_mib


@dataclass(frozen=True, kw_only=True)
class ScriptOrder(ScriptFinding):
    """Training data that come in the same order in every pass."""

    kind = "script_order"
    rank = 5

    num_passes: int
    shuffles: bool
    """Whether its loader shuffles, and begins every pass alike all the same."""

    def statement(self, words: Words) -> str:
        if self.shuffles:
            return self.fill(words, "script_order_alike")
        return self.fill(words, "script_order" if self.num_passes > 1 else "script_order_once")


def script_findings(evidence: Evidence) -> Iterator[Finding]:
    """Of each cell, in the order asked."""
    all_times = script_times(evidence)
    for times in all_times:
        yield _time(times, len(evidence.cells))
        yield from _parts(times, len(evidence.cells))
        yield from _memory(times, len(evidence.cells))
    yield from _orders(all_times, len(evidence.cells))


def _time(times: ScriptTimes, num_cells: int) -> Finding:
    wall = times.over_runs(lambda run: run.wall_s)
    steps = [statistics.median(found) for run in times.runs if (found := steps_ms(run))]
    firsts = [first for run in times.runs if (first := first_step_ms(run)) is not None]

    return ScriptTime(
        subject="script",
        cells=(times.cell,),
        n=len(times.runs),
        num_cells=num_cells,
        wall_s=wall.value,
        low_s=wall.low,
        high_s=wall.high,
        startup_share=times.over_runs(partial(_run_share, STARTUP)).value,
        training_share=times.over_runs(lambda run: run.trained_s / (run.wall_s or 1.0)).value,
        evaluation_share=times.over_runs(partial(_run_share, EVALUATION)).value,
        step_ms=statistics.median(steps) if steps else None,
        first_step_ms=statistics.median(firsts) if firsts else None,
        overhead_s=times.over_runs(lambda run: run.overhead_s).value,
        overhead_share=times.over_runs(lambda run: run.overhead_s / (run.wall_s or 1.0)).value,
        instruments_s=times.over_runs(lambda run: run.instruments_s).value,
        num_updates=round(times.over_runs(lambda run: run.num_steps).value),
        cut=times.cut,
    )


def _parts(times: ScriptTimes, num_cells: int) -> Iterator[Finding]:
    # Of a run that was cut short these say when that was.
    of_run = () if times.cut else ((EVALUATION, NOTABLE_OF_RUN), (STARTUP, NOTABLE_START))
    for part, least in of_run:
        share = times.over_runs(partial(_run_share, part))
        if share.value >= least:
            spent = times.over_runs(partial(_run_s, part))
            yield _part(times, num_cells, part, "run", share, spent.value)
    in_steps = times.step_parts_ms
    for part in COUNTED_PARTS if times.is_on_cpu else HOST_PARTS:
        share = times.over_runs(partial(_step_share, part))
        if part in in_steps and share.value >= NOTABLE_OF_STEP:
            yield _part(times, num_cells, part, "step", share, in_steps[part])


def _part(
    times: ScriptTimes, num_cells: int, part: str, of: str, share: Spread, time: float
) -> Finding:
    return ScriptPart(
        subject=part,
        cells=(times.cell,),
        n=len(times.runs),
        num_cells=num_cells,
        of=of,
        share=share.value,
        low=share.low,
        high=share.high,
        time=time,
    )


def _run_s(part: str, run: WatchedRecord) -> float:
    return run.parts_s.get(part, 0.0)


def _run_share(part: str, run: WatchedRecord) -> float:
    return _run_s(part, run) / run.wall_s if run.wall_s else 0.0


def _step_share(part: str, run: WatchedRecord) -> float:
    return step_share(run, part)


def _memory(times: ScriptTimes, num_cells: int) -> Iterator[Finding]:
    """Where it grew in every run."""
    found = list(grown(times))
    if found and len(found) == len(times.runs):
        middle = sorted(found, key=lambda one: one.bytes_per_update)[len(found) // 2]
        yield ScriptMemory(
            subject="memory",
            cells=(times.cell,),
            n=len(found),
            num_cells=num_cells,
            mib_per_update=middle.bytes_per_update / MIB,
            first_mib=middle.first_bytes / MIB,
            last_mib=middle.last_bytes / MIB,
            num_updates=middle.last_step - middle.first_step,
        )


def _orders(all_times: Sequence[ScriptTimes], num_cells: int) -> Iterator[Finding]:
    """Cells whose loaders do not shuffle, those with as many passes together."""
    by_passes: dict[tuple[int, bool], list[ScriptTimes]] = {}
    for times in all_times:
        trained = [[one for one in run.loaders if one.is_trained_on] for run in times.runs]
        if all(loaders and all(map(_is_alike, loaders)) for loaders in trained):
            passes = max(one.num_passes for loaders in trained for one in loaders)
            shuffles = any(one.order != IN_ORDER for loaders in trained for one in loaders)
            by_passes.setdefault((passes, shuffles), []).append(times)
    for (passes, shuffles), found in by_passes.items():
        yield ScriptOrder(
            subject="order",
            cells=tuple(times.cell for times in found),
            n=sum(len(times.runs) for times in found),
            num_cells=num_cells,
            num_passes=passes,
            shuffles=shuffles,
        )


def _is_alike(loader: LoaderRow) -> bool:
    """Whether every pass has the same order, as far as was seen: a data set may shuffle by itself, and a
    loader that shuffles may be seeded anew before every pass."""
    if loader.order == IN_ORDER:
        return loader.begins_alike is not False
    return loader.begins_alike is True
