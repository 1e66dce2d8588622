"""Operators: what ran inside a profiled step, ranked, and how it grows with the batch."""

import math
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter
from typing import Literal

from trainlab.analysis.charts import OUTSIDE, REST, Bars, bar_figure
from trainlab.analysis.document import Block, Figure, Paragraph, Section, Table
from trainlab.analysis.evidence import Evidence
from trainlab.analysis.finding import MOST_CELLS, Finding, Kind, RunData
from trainlab.analysis.measurement import MODES, Measurement
from trainlab.analysis.scaling import BatchSeries
from trainlab.analysis.tables import Field, bullets, count, name, number, share, table_of, value
from trainlab.record.cost_record import OperatorRow, OperatorsRecord
from trainlab.words import Words
from trainlab.words.numbers import bare_operator, percent

Sort = Literal["self", "total", "calls", "memory"]

DOMINATES = 0.5
"""An operator that takes at least this share dominates; below it, it only comes first."""
FORWARD = ("forward", "loss")
PER_SAMPLE = (*FORWARD, "backward")
"""The phases whose work grows with the batch; that of an optimizer depends on the parameters alone."""
SMALL_PHASE = 0.05
"""A phase whose operators take a smaller share of the step changes no other's share by much."""
TOP = 10
MOST_OPERATORS = 9
"""Operators with a part of their own in a chart of shares; all others are one part."""
MOST_TABLES = 12
"""Operator tables of one mode; the files have them all."""


FAR, PROFILER_MS = 1.5, 0.005
"""What takes so many times as long as bare steps and the profiler explain was held up; what that adds to a
call at most (0.002 to 0.004 where it was measured)."""


@dataclass(frozen=True)
class Operator:
    """One operator over all phases. Times are of profiled steps: shares and ratios, not speeds."""

    name: str
    shapes: str
    """Of its inputs, where the profile was taken by shape and shapes are kept apart."""
    calls: int
    """Of a whole pass over the test set, or of all profiled training steps."""
    calls_per_step: float
    self_us: float
    """Per step, on the CPU or, where the step ran on a GPU, on the device."""
    share: float
    """Of the profiled step's wall time (CPU), or of all kernel time (GPU)."""
    total_us: float
    average_us: float
    """Total time of one call."""
    memory_bytes: int
    """Allocated less freed, per step."""
    outermost_calls_per_step: float
    """Calls that no other operator made; 0 in records that do not tell."""


def ranked(
    record: OperatorsRecord,
    sort: Sort = "self",
    *,
    by_shape: bool = True,
    phases: Collection[str] | None = None,
) -> list[Operator]:
    """Operators, the costliest first; by self time, so that wrappers do not count twice. Not `by_shape`:
    the calls of all shapes together. `phases`: what ran in these alone."""
    place, num_steps = "device" if is_on_device(record) else "cpu", record.num_steps
    whole_us = record.profiled_step_us if place == "cpu" else device_us(record)
    groups: dict[tuple[str, str], list[OperatorRow]] = {}
    for row in record.rows:
        if row.kind == "operator" and (phases is None or row.phase in phases):
            groups.setdefault((row.name, row.shapes if by_shape else ""), []).append(row)
    operators, of_place = [], (f"self_{place}_us", f"total_{place}_us", f"self_{place}_bytes")
    summed = ("calls", *of_place, "outermost_calls")
    for (operator, shapes), rows in groups.items():
        calls, self_us, total_us, num_bytes, outermost_calls = (
            float(sum(getattr(row, field) for row in rows) / num_steps) for field in summed
        )
        operators.append(
            Operator(
                name=operator,
                shapes=shapes,
                calls=round(calls * num_steps * record.whole),
                calls_per_step=calls,
                self_us=self_us,
                share=self_us / whole_us if whole_us else 0.0,
                total_us=total_us,
                average_us=total_us / calls,
                memory_bytes=round(num_bytes),
                outermost_calls_per_step=outermost_calls,
            )
        )
    fields = {"self": "self_us", "total": "total_us", "calls": "calls", "memory": "memory_bytes"}
    return sorted(operators, key=attrgetter(fields[sort]), reverse=True)


def is_on_device(record: OperatorsRecord) -> bool:
    """Whether operators ran kernels on a GPU: their times and shares are then those of the device."""
    return any(row.self_device_us for row in record.rows)


def device_us(record: OperatorsRecord) -> float:
    """Time of all kernels of a step, by the operators that launched them."""
    return sum(r.self_device_us for r in record.rows if r.kind == "operator") / record.num_steps


def outside_us(record: OperatorsRecord) -> float:
    """Wall time of a profiled step, on the host, that no operator accounts for: Python, the profiler."""
    inside = sum(row.self_cpu_us for row in record.rows if row.kind == "operator")
    return record.profiled_step_us - inside / record.num_steps


def held_up(record: OperatorsRecord) -> int:
    """How many profiled steps took far longer than bare ones and the profiler explain."""
    usual_ms = statistics.median(record.bare_ms or [math.inf])
    usual_ms += PROFILER_MS * sum(op.calls_per_step for op in ranked(record))
    return sum(ms > FAR * usual_ms for ms in record.profiled_ms)


def phases_apart(measurement: Measurement) -> dict[str, float]:
    """Milliseconds of operators, by phase, where they add up to far more than the phase and the profiler
    explain: a machine that was slower then was so before the profiler began."""
    record, summary, found = measurement.operators, measurement.summary, dict[str, float]()
    if record is not None and record.bare_ms:
        slower = max(1.0, statistics.median(record.bare_ms) / summary.step_ms.value)
        for phase, ms in summary.phases_ms.items():
            inside = ranked(record, phases=(phase,))
            own_ms = sum(op.self_us for op in inside) / 1e3
            usual_ms = slower * ms + PROFILER_MS * sum(op.calls_per_step for op in inside)
            if own_ms > max(FAR * usual_ms, SMALL_PHASE * summary.step_ms.value):
                found[phase] = own_ms
    return found


def classic_table(record: OperatorsRecord, top: int = 10) -> str:
    """The seven columns people know from PyTorch, to compare with an old report."""

    def time(us: float) -> str:
        if us >= 1e6:
            return f"{us / 1e6:.3f}s"
        return f"{us / 1e3:.3f}ms" if us >= 1e3 else f"{us:.3f}us"

    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for row in record.rows:
        if row.kind == "operator":
            for place, number in enumerate((row.self_cpu_us, row.total_cpu_us, row.calls)):
                sums[row.name][place] += number * record.whole
    all_us = sum(self_us for self_us, _, _ in sums.values()) or 1.0
    ranks = sorted(sums.items(), key=lambda item: -item[1][0])[:top]
    width = max([4, *(len(one) for one, _ in ranks)])
    headings = ("Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg", "# of Calls")
    rows: list[tuple[str, Sequence[str]]] = [("Name", headings)]
    for operator, (self_us, total_us, calls) in ranks:
        shares = (f"{self_us / all_us:.2%}", time(self_us), f"{total_us / all_us:.2%}")
        rows.append((operator, (*shares, time(total_us), time(total_us / calls), f"{calls:.0f}")))
    lines = [
        f"{first:>{width}}  " + "  ".join(f"{cell:>12}" for cell in row) for first, row in rows
    ]
    return "\n".join([*lines, f"Self CPU time total: {time(all_us)}"])


def _phrases(one: Finding, words: Words) -> dict[str, object]:
    whole = words.named("share_of", one.numbers.get("share_of", ""))
    operator = bare_operator(one.subject)
    return {"mode_word": words.mode(one.of_mode), "operator": operator, "whole": whole}


def _top_text(one: Finding, words: Words) -> str:
    key = "dominates" if min(one.share_a, one.share_b) >= DOMINATES else "first_at_both"
    key = key if one.first_a == one.subject else "first_at_one"
    return one.fill(words, key, other=bare_operator(one.first_a))


TOP_OPERATOR = Kind(
    "top_operator",
    "operators",
    8,
    statement=_top_text,
    phrases=_phrases,
    brief=lambda one: "answer_operator" if one.of_mode == "train" else None,
    weight=lambda one: float(one.of_mode == "train"),
)
"""The operator that takes most of the step at the largest batch, and its share at the smallest."""
OPERATOR_GROWTH = Kind(
    "operator_growth",
    "operators",
    text="growth",
    phrases=_phrases,
    weight=lambda one: float(one.of_mode == "train"),
)
"""How many times longer one call takes from one batch size to the next."""


def operator_findings(series: BatchSeries) -> Iterator[Finding]:
    """Where two or more of the batch sizes were profiled and their shares can be trusted."""
    known = {size: m for size, m in series.by_size.items() if not phases_apart(m)}
    by_size = {size: m.operators for size, m in known.items() if m.operators is not None}
    if len(by_size) < 2:
        return
    smallest, largest = min(by_size), max(by_size)
    small, large = (ranked(by_size[size], by_shape=False) for size in (smallest, largest))
    top = large[0]
    shared = {"factor": "batch_size", "cells": series.cells, "n": 1, "of_mode": series.mode}
    yield TOP_OPERATOR(
        subject=top.name,
        levels=(smallest, largest),
        share_a=next((op.share for op in small if op.name == top.name), 0.0),
        share_b=top.share,
        first_a=small[0].name,
        first_share_a=small[0].share,
        share_of="device" if is_on_device(by_size[largest]) else "step",
        **shared,
    )
    # Each size is one process: one that was disturbed would pass for growth.
    calm = {n for n, r in by_size.items() if not (known[n].summary.unstable or held_up(r))}
    for (less, a), (more, b) in pairwise(_compared_calls(by_size).items()):
        if a.average_us > 0 and {less, more} <= calm:
            numbers = {"average_us_a": a.average_us, "average_us_b": b.average_us}
            numbers |= {"time": b.average_us / a.average_us, "samples": more / less}
            yield OPERATOR_GROWTH(subject=a.name, levels=(less, more), **shared, **numbers)


def _compared_calls(by_size: Mapping[int, OperatorsRecord]) -> dict[int, Operator]:
    """One operator at every size: that which takes most of the forward and backward pass at the largest, if
    it is called equally often at all. Else, as torch may run a layer by other operators at another size,
    that which the model's code called itself and that takes most; nothing where those calls differ, too."""
    inner = {size: ranked(r, by_shape=False, phases=PER_SAMPLE) for size, r in by_size.items()}
    written = {}
    for size, record in by_size.items():
        ops = ranked(record, "total", by_shape=False, phases=FORWARD)
        written[size] = [op for op in ops if op.outermost_calls_per_step == op.calls_per_step]
    for ranks in (inner, written):
        first = next((op.name for op in ranks[max(ranks)]), None)
        found = {size: op for size, ops in ranks.items() for op in ops if op.name == first}
        calls = {op.calls_per_step for op in found.values()}
        if len(found) == len(ranks) and len(calls) == 1:
            return found
    return {}


def operator_table(
    measurement: Measurement, words: Words, *, sort: Sort = "self", top: int = TOP
) -> Table:
    """All operators, of which `top` are shown at first."""
    record, cell = measurement.operators, measurement.trial.cell
    assert record is not None
    caption = words(
        "operator_table",
        cell=cell,
        step=words.step(measurement.summary.mode),
        device=measurement.trial.resolved.get("device_name", ""),
    )
    rows = ranked(record, sort)
    # One that has the same name without torch's prefix keeps it: `aten::detach` calls `detach`.
    names = {op.name for op in rows}
    shown = {one: one if {bare_operator(one)} < names else bare_operator(one) for one in names}
    fields: list[Field[Operator]] = [
        name(words("operator"), lambda op: shown[op.name]),
        name(words("shapes"), lambda op: op.shapes),
        value(words("share"), lambda op: share(op.share)),
        value(words("self_us"), lambda op: number(op.self_us, f"{op.self_us:,.1f}")),
        value(words("total_us"), lambda op: number(op.total_us, f"{op.total_us:,.1f}")),
        value(words("average_us"), lambda op: number(op.average_us, f"{op.average_us:,.1f}")),
        value(words("calls"), lambda op: op.calls_per_step),
        value(words("memory_kib"), lambda op: count(round(op.memory_bytes / 1024))),
    ]
    if not any(row.shapes for row in record.rows):
        del fields[1]
    outside, step_us = outside_us(record), record.profiled_step_us
    note = words("outside_note", time=f"{outside:,.1f}", share=percent(outside / step_us))
    if is_on_device(record):
        # The table has times of the device, which what no operator accounts for is not.
        device, time, wall = (f"{us:,.1f}" for us in (device_us(record), outside, step_us))
        note = words("device_note", device=device, time=time, wall=wall)
    notes = [note] if record.calls_are_equal else [note, words("calls_differ")]
    notes += [words("operator_medians")] if record.are_medians else []
    if some := held_up(record):
        notes.append(words("steps_held_up", some=some, all=len(record.profiled_ms)))
    for phase, ms in phases_apart(measurement).items():
        bare = {"phase": words.phase(phase), "bare": measurement.summary.phases_ms[phase]}
        notes.append(words("operators_apart", operators=ms, **bare))
    note = words.sentences(*notes)
    return table_of(
        caption, fields, rows, note, cell=lambda op: cell, num_shown=top, is_sortable=True
    )


def operator_bars(evidence: Evidence, mode: str) -> Bars:
    """What share of a profiled step each operator takes, in per cent; the small ones together."""
    shares: dict[str, dict[str, float]] = {}
    largest: dict[str, float] = defaultdict(float)
    for measurement in evidence.measured_in(mode)[:MOST_CELLS]:
        if (record := measurement.operators) is not None:
            own: dict[str, float] = defaultdict(float)
            for op in ranked(record):
                own[bare_operator(op.name)] += 100 * op.share
            for operator, part in own.items():
                largest[operator] = max(part, largest[operator])
            if not is_on_device(record):
                own[OUTSIDE] = 100 * max(0.0, outside_us(record) / record.profiled_step_us)
            shares[measurement.trial.cell] = own
    top = sorted(largest, key=lambda operator: -largest[operator])[:MOST_OPERATORS]
    bars = {}
    for cell, own in shares.items():
        parts = {operator: own.pop(operator, 0.0) for operator in top}
        outside = {OUTSIDE: own.pop(OUTSIDE)} if OUTSIDE in own else {}
        bars[cell] = parts | {REST: sum(own.values())} | outside
    return {cell: parts for cell, parts in bars.items() if sum(parts.values())}


def operator_figure(data: RunData, mode: str, words: Words) -> Figure | None:
    """The largest shares of every cell's step; None where nothing was profiled."""
    drawn = {one: bars for one in MODES if (bars := operator_bars(data.evidence, one))}
    among = [name for bars in drawn.values() for parts in bars.values() for name in parts]
    per_cent = words("per_cent")
    if mode not in drawn:
        return None
    return bar_figure(drawn[mode], "operators", mode, per_cent, words, str, among=among)


def operator_section(data: RunData, words: Words) -> Section | None:
    """Beside the shares of all cells the top ten of the first; those of the others and of a second mode are
    folded. None where nothing was profiled."""
    sections: list[Section] = []
    for mode in MODES:
        profiled = data.profiled(mode)
        if not profiled:
            continue
        figure = operator_figure(data, mode, words)
        first, *others = (operator_table(one, words) for one in profiled[:MOST_TABLES])
        blocks: list[Block] = [first] if figure is None else [figure, first]
        if found := [one for one in data.findings_in("operators") if one.of_mode == mode]:
            blocks.append(bullets(found, words))
        blocks += [replace(table, is_folded=True) for table in others]
        if (num_left_out := len(profiled) - MOST_TABLES) > 0:
            blocks.append(Paragraph(words("operators_left_out", number=num_left_out)))
        title = words.capital(words.mode(mode))
        own = Section(f"operators-{mode}", title, tuple(blocks), is_folded=bool(sections))
        sections.append(own)
    if not sections:
        return None
    intro = Paragraph(words("operators_intro"))
    return Section("operators", words("operators"), (intro,), tuple(sections))
