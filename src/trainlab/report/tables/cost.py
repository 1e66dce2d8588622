"""What a step costs, as tables: of all cells side by side, and of one."""

from collections.abc import Iterator, Sequence
from functools import partial

from trainlab.analysis.cost import ColdStart, Overhead, Pair, cold_start, overheads
from trainlab.analysis.document import Entry, Table
from trainlab.analysis.evidence import Evidence
from trainlab.analysis.measurement import MODES, Estimate, Measurement
from trainlab.analysis.roofline import Roofline, counts_optimizer, step_roofline
from trainlab.analysis.tables import (
    EMPTY,
    count,
    estimate,
    name,
    number,
    share,
    table_of,
    value,
)
from trainlab.words import Words
from trainlab.words.numbers import MIB, figure, percent

MOST_WARNINGS = 50
"""Rows shown at first; the files have them all."""
SMALL_PHASE = 0.05
"""A phase that takes a smaller share of the first step explains nothing and is left out."""
COLD_LAYERS = 3
STEP_DIGITS = 4
"""Digits in the table of a single measurement: on a quiet machine its intervals are that narrow."""


def cost_table(evidence: Evidence, words: Words) -> Table:
    """Each cell's cost by mode, from bare processes, with the interval of repeats."""

    def peak_mib(measurement: Measurement) -> float | None:
        return None if measurement.memory is None else measurement.memory.peak_bytes / MIB

    return table_of(
        words("cost_table"),
        [
            name(words("cell"), lambda m: measured_cell(m, words)),
            name(words("mode"), lambda m: words.mode(m.summary.mode)),
            name(words("device"), _device, is_extra=True),
            value(words(step_heading(evidence)), lambda m: m.summary.step_ms.value),
            value(words("sample_us"), lambda m: estimate(m.summary.sample_us)),
            value(words("epoch_s"), lambda m: m.summary.epoch_s.value if m.knows_epochs else None),
            value(words("samples_per_s"), lambda m: m.summary.samples_per_s.value, is_extra=True),
            value(words("peak_mib"), peak_mib),
        ],
        evidence.measured,
        words.sentences(words("cost_table_note"), _accumulated(evidence, words)),
        cell=_cell,
        is_sortable=True,
    )


def step_heading(evidence: Evidence) -> str:
    """The key of what a step is called: a batch, but not where several batches make an update."""
    does = any(cell.settings.accumulate > 1 for cell in evidence.cells)
    does = does or any(one.accumulates for one in evidence.measured)
    return "accumulated_ms" if does else "step_ms"


def _accumulated(evidence: Evidence, words: Words) -> str:
    """What a step is where several batches make an update."""
    does = step_heading(evidence) == "accumulated_ms"
    return words("cost_table_accumulated") if does else ""


def _step_key(measurement: Measurement) -> str:
    return "accumulated_ms" if measurement.accumulates else "step_ms"


def step_table(title: str, measurement: Measurement, words: Words) -> Table:
    """One measurement per batch, per sample and per epoch, each with the interval of repeats."""
    summary = measurement.summary
    costs = {
        _step_key(measurement): summary.step_ms,
        "sample_us": summary.sample_us,
        "epoch_s" if summary.mode == "train" else "pass_s": summary.epoch_s,
        "samples_per_s": summary.samples_per_s,
    }
    if not measurement.knows_epochs:
        costs.pop("epoch_s", None)
    rows = []
    for key, cost in costs.items():
        rows.append((words(key), cost.value, _repeats(cost, words)))
    if (roofline := step_roofline(measurement)) is not None:
        best = words("of_best", share=percent(roofline.compute_share))
        rows.append((words("gflop_per_s"), roofline.flops_per_s / 1e9, best))
    caption = words(
        "step_caption",
        name=title,
        step=words.step(summary.mode),
        batch=summary.batch_size,
        device=_device(measurement),
        threads=measurement.trial.resolved.get("threads", "?"),
        weights=_weights(measurement, words),
    )
    return table_of(
        caption,
        [
            name(words("cost_of"), lambda row: row[0]),
            value("", lambda row: number(row[1], figure(row[1], STEP_DIGITS))),
            value(words("repeats"), lambda row: Entry(row[2])),
        ],
        rows,
    )


def _weights(measurement: Measurement, words: Words) -> str:
    if measurement.is_of_script:
        return words("script_weights")
    return words("trained" if measurement.is_trained else "untrained")


def _repeats(cost: Estimate, words: Words) -> str:
    if cost.low is None or cost.high is None:
        return ""
    low, high = figure(cost.low, STEP_DIGITS), figure(cost.high, STEP_DIGITS)
    return words("range", low=low, high=high)


def method_text(measurement: Measurement, words: Words) -> str:
    """How a measurement was made, in a sentence."""
    summary = measurement.summary
    return words(
        "step_method",
        processes=summary.num_processes,
        warmups=summary.num_warmup_steps,
        first=figure(summary.first_step_ms, STEP_DIGITS),
        steps=f"{summary.num_steps:,}",
        low=figure(summary.low_step_ms, STEP_DIGITS),
        p95=figure(summary.p95_step_ms, STEP_DIGITS),
    )


def phases_of_step(measurement: Measurement, words: Words) -> Table:
    """The phases of one measurement, the longest first."""
    phases = measurement.summary.phases_ms
    total_ms = sum(phases.values())
    unit = words(_step_key(measurement))
    return table_of(
        words("phases_caption", step=words.step(measurement.summary.mode)),
        [
            name(words("phase"), words.phase),
            value(unit, lambda phase: number(phases[phase], f"{phases[phase]:.4f}")),
            value(words("share"), lambda phase: share(phases[phase] / total_ms)),
        ],
        sorted(phases, key=lambda phase: -phases[phase]),
    )


def phase_table(measured: Sequence[Measurement], mode: str, words: Words) -> Table:
    """Milliseconds of each phase and its share, a row per cell."""

    def entry(phase: str, measurement: Measurement) -> Entry:
        phases = measurement.summary.phases_ms
        if phase not in phases:
            return EMPTY
        phase_ms, total_ms = phases[phase], sum(phases.values()) or 1.0
        return Entry(f"{figure(phase_ms)} ({percent(phase_ms / total_ms)})", phase_ms)

    phases = dict.fromkeys(phase for m in measured for phase in m.summary.phases_ms)
    return table_of(
        words("phase_table", step=words.step(mode)),
        [
            name(words("cell"), _cell),
            *(value(words.phase(phase), partial(entry, phase)) for phase in phases),
        ],
        measured,
        cell=_cell,
        is_sortable=True,
    )


def memory_table(measurement: Measurement, words: Words) -> Table | None:
    """Where the memory of a step goes: at its peak, and the most that each kind takes at any time."""
    memory = measurement.memory
    if memory is None:
        return None
    peak_bytes, at_peak = memory.peak_bytes, memory.at_peak | {"other": memory.other_bytes}
    most = {
        "parameters": memory.parameter_bytes,
        "buffers": memory.buffer_bytes,
        "gradients": memory.gradient_bytes,
        "optimizer": memory.optimizer_bytes,
        "input": memory.input_bytes,
        "activations": memory.activation_bytes,
    }

    def mib(num_bytes: int | None) -> Entry:
        return EMPTY if num_bytes is None else number(num_bytes / MIB, f"{num_bytes / MIB:.2f}")

    return table_of(
        words("memory_table", peak=mib(peak_bytes).text, phase=words.phase(memory.peak_phase)),
        [
            name(words("what"), words.memory),
            value(words("mib_at_peak"), lambda kind: mib(at_peak.get(kind, 0))),
            value(words("share"), lambda kind: share(at_peak.get(kind, 0) / peak_bytes)),
            value(words("mib_at_most"), lambda kind: mib(most.get(kind))),
        ],
        [*(kind for kind, num_bytes in most.items() if num_bytes), "other"],
    )


def limits_table(evidence: Evidence, words: Words) -> Table | None:
    """How near each step came to what its machine can do; None where no limits were measured."""
    rows: list[tuple[Measurement, Roofline]] = [
        (measurement, roofline)
        for mode in MODES
        for measurement in evidence.measured_in(mode)
        if measurement.layers is not None
        and measurement.layers.rows
        and (roofline := step_roofline(measurement))
    ]
    if not rows:
        return None
    return table_of(
        words("limits_table"),
        [
            name(words("cell"), lambda row: _cell(row[0])),
            name(words("mode"), lambda row: words.mode(row[0].summary.mode)),
            name(words("device"), lambda row: _device(row[0])),
            value(words("sample_us"), lambda row: row[0].summary.sample_us.value),
            value(words("gflop_per_s"), lambda row: row[1].flops_per_s / 1e9),
            value(words("of_best_compute"), lambda row: share(row[1].compute_share)),
            value(words("gb_per_s"), lambda row: row[1].bytes_per_s / 1e9),
            value(words("of_best_memory"), lambda row: share(row[1].memory_share)),
            name(words("near"), lambda row: words(f"near_{row[1].near}")),
        ],
        rows,
        words.sentences(*_limits_notes(rows, words)),
        cell=lambda row: _cell(row[0]),
        is_sortable=True,
    )


def _limits_notes(rows: Sequence[tuple[Measurement, Roofline]], words: Words) -> Iterator[str]:
    counted = all(counts_optimizer(measurement) for measurement, _ in rows)
    yield words("limits_note" if counted else "limits_note_layers")
    if any("+" in roofline.precision for _, roofline in rows):
        yield words("limits_kinds")
    if any(roofline.memory_share > 1 for _, roofline in rows):
        yield words("above_memory")


def cold_table(measurement: Measurement, words: Words) -> Table | None:
    """The first step of a process beside a settled one; None where no warm-up step was kept."""
    cold = cold_start(measurement.costs, measurement.layers)
    if cold is None:
        return None
    step = words.step(measurement.summary.mode)
    return table_of(
        words("cold_table", step=step, cell=measurement.trial.cell),
        [
            name(words("what"), lambda row: row[0]),
            value(words("first_step"), lambda row: row[1].first),
            value(words("settled"), lambda row: row[1].settled),
            value(words("ratio"), lambda row: row[1].ratio),
        ],
        list(_cold_rows(cold, words)),
        words("cold_note"),
    )


def _cold_rows(cold: ColdStart, words: Words) -> Iterator[tuple[str, Pair]]:
    yield words("whole_step_ms"), cold.step_ms
    for pair in cold.phases_ms:
        if pair.first > SMALL_PHASE * cold.step_ms.first:
            yield words("phase_ms", phase=words.phase(pair.name)), pair
    for pair in cold.layers_ms[:COLD_LAYERS]:
        yield words("layer_forward_ms", layer=pair.name), pair
    for pair in cold.evidence:
        if pair.first:
            yield words.named("counted", pair.name), pair


def overhead_table(measured: Sequence[Measurement], words: Words) -> Table:
    """What each instrument added to a step."""
    return table_of(
        words("overhead_table", cell=measured[0].trial.cell if measured else ""),
        [
            name(words("instrument"), lambda row: words.named("instrument", row[1].instrument)),
            name(words("mode"), lambda row: words.mode(row[0].summary.mode)),
            value(words("added"), lambda row: Entry(_signed(row[1].added), row[1].added)),
            value(words("interval"), lambda row: Entry(_added_interval(row[1], words))),
            value(words("pairs"), lambda row: count(row[1].num_pairs)),
        ],
        [(m, overhead) for m in measured for overhead in overheads(m)],
        words("overhead_note"),
    )


def overhead_text(added: Sequence[Overhead], words: Words) -> str:
    """What each instrument added to a step, in a sentence."""
    parts = (
        f"{words.named('instrument', o.instrument)} {_signed(o.added)} [{_added_interval(o, words)}]"
        for o in added
    )
    return words("overhead_text", parts=words("list_semicolon").join(parts))


def warning_table(evidence: Evidence, words: Words) -> Table | None:
    """Every measurement whose time per batch is not known well, by how much it may be off, and why."""
    unstable = [(m, m.summary.unstable) for m in evidence.measured if m.summary.unstable]
    if not unstable:
        return None
    return table_of(
        words("warning_table"),
        [
            name(words("cell"), lambda row: measured_cell(row[0], words)),
            name(words("mode"), lambda row: words.mode(row[0].summary.mode)),
            value(words("off_by"), lambda row: Entry(f"±{percent(row[1].off_by)}", row[1].off_by)),
            name(words("why"), lambda row: words.warning(row[1].reason, row[1].value)),
        ],
        unstable,
        cell=lambda row: _cell(row[0]),
        num_shown=MOST_WARNINGS,
        is_sortable=True,
    )


def warning_text(measurement: Measurement, words: Words) -> str | None:
    """By how much a time per batch may be off and why; None where it is known well."""
    unstable = measurement.summary.unstable
    if unstable is None:
        return None
    why = words.warning(unstable.reason, unstable.value)
    return words("unstable_line", off_by=percent(unstable.off_by), why=why)


def _cell(measurement: Measurement) -> str:
    return measurement.trial.cell


def measured_cell(measurement: Measurement, words: Words) -> str:
    """The cell, with which of its measurements it is."""
    notes = [words("again")] if measurement.trial.again else []
    notes += [words("trained")] if measurement.is_trained else []
    return _cell(measurement) + (f" ({words.listed(notes)})" if notes else "")


def _device(measurement: Measurement) -> str:
    resolved = measurement.trial.resolved
    return str(resolved.get("device_name", resolved.get("device", "")))


def _signed(share: float) -> str:
    return f"{100 * share:+.1f}%"


def _added_interval(overhead: Overhead, words: Words) -> str:
    low, high = _signed(overhead.low), _signed(overhead.high)
    return words("added_range" if overhead.is_range else "added_interval", low=low, high=high)
