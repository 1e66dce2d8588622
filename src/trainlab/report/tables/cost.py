"""What a step costs, as tables: of all cells side by side, and of one."""

from collections.abc import Callable, Iterator, Sequence

from trainlab.analyse.cost.cold_start import ColdStart, Pair, cold_start
from trainlab.analyse.cost.measurement import MODES, Measurement
from trainlab.analyse.cost.overhead import Overhead, overheads
from trainlab.analyse.cost.roofline import Roofline, step_roofline
from trainlab.analyse.evidence import Evidence
from trainlab.report.document import Entry, Table
from trainlab.report.tables.columns import (
    EMPTY,
    MANY_ROWS,
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
"""Shown at first; the files have them all."""
SMALL_PHASE = 0.05
"""A phase of a cold step below this share of it explains nothing."""
COLD_LAYERS = 3
PRECISE = 4
"""Digits of the one measurement that was asked for: on a quiet machine intervals are that narrow."""


def cost_table(evidence: Evidence, words: Words) -> Table:
    """Each cell's cost by mode, from bare processes, with the interval of repeats."""

    def cell(one: Measurement) -> str:
        notes = [words("again")] if one.trial.again else []
        notes += [words("trained")] if one.is_trained else []
        return one.trial.cell + (f" ({words.listed(notes)})" if notes else "")

    def peak_mib(one: Measurement) -> float | None:
        return None if one.memory is None else one.memory.peak_bytes / MIB

    return table_of(
        words("cost_table"),
        [
            name(words("cell"), cell),
            name(words("mode"), lambda one: words.mode(one.summary.mode)),
            name(words("device"), _device, is_extra=True),
            value(words("step_ms"), lambda one: one.summary.step_ms.value),
            value(words("sample_us"), lambda one: estimate(one.summary.sample_us)),
            value(words("epoch_s"), lambda one: one.summary.epoch_s.value),
            value(
                words("samples_per_s"), lambda one: one.summary.samples_per_s.value, is_extra=True
            ),
            value(words("peak_mib"), peak_mib),
        ],
        evidence.measured,
        words("cost_table_note"),
        cell=_cell,
        num_shown=MANY_ROWS,
        is_sortable=True,
    )


def step_table(title: str, measurement: Measurement, words: Words) -> Table:
    """One measurement per batch, per sample and per epoch, each with the interval of repeats."""
    summary, used = measurement.summary, measurement.trial.resolved
    whole = "epoch_s" if summary.mode == "train" else "pass_s"
    rows = []
    for key, found in {
        "step_ms": summary.step_ms,
        "sample_us": summary.sample_us,
        whole: summary.epoch_s,
        "samples_per_s": summary.samples_per_s,
    }.items():
        low, high = (figure(end, PRECISE) for end in (found.low, found.high))
        rows.append((words(key), found.value, words("range", low=low, high=high)))
    if (roofline := step_roofline(measurement)) is not None:
        best = words("of_best", share=percent(roofline.compute_share))
        rows.append((words("gflop_per_s"), roofline.flops_per_s / 1e9, best))
    caption = words(
        "step_caption",
        name=title,
        step=words.step(summary.mode),
        batch=summary.batch_size,
        device=_device(measurement),
        threads=used.get("threads", "?"),
        weights=words("trained" if measurement.is_trained else "untrained"),
    )
    return table_of(
        caption,
        [
            name(words("cost_of"), lambda row: row[0]),
            value("", lambda row: number(row[1], figure(row[1], PRECISE))),
            value(words("repeats"), lambda row: Entry(row[2])),
        ],
        rows,
    )


def method_text(measurement: Measurement, words: Words) -> str:
    """How a measurement was made, in a sentence."""
    summary = measurement.summary
    return words(
        "step_method",
        processes=summary.num_processes,
        warmups=summary.num_warmup_steps,
        first=figure(summary.first_step_ms, PRECISE),
        steps=f"{summary.num_steps:,}",
        p95=figure(summary.p95_step_ms, PRECISE),
    )


def phases_of_step(measurement: Measurement, words: Words) -> Table:
    """The phases of one measurement, the longest first."""
    phases = measurement.summary.phases_ms
    whole = sum(phases.values())
    return table_of(
        words("phases_caption", step=words.step(measurement.summary.mode)),
        [
            name(words("phase"), words.phase),
            value(words("step_ms"), lambda phase: number(phases[phase], f"{phases[phase]:.4f}")),
            value(words("share"), lambda phase: share(phases[phase] / whole)),
        ],
        sorted(phases, key=lambda phase: -phases[phase]),
    )


def phase_table(measured: Sequence[Measurement], mode: str, words: Words) -> Table:
    """Milliseconds of each phase and its share, a row per cell."""

    def phase(key: str) -> Callable[[Measurement], Entry]:
        def read(one: Measurement) -> Entry:
            phases = one.summary.phases_ms
            if key not in phases:
                return EMPTY
            whole = sum(phases.values()) or 1.0
            return Entry(f"{figure(phases[key])} ({percent(phases[key] / whole)})", phases[key])

        return read

    names = dict.fromkeys(key for one in measured for key in one.summary.phases_ms)
    return table_of(
        words("phase_table", step=words.step(mode)),
        [name(words("cell"), _cell), *(value(words.phase(key), phase(key)) for key in names)],
        measured,
        cell=_cell,
        num_shown=MANY_ROWS,
        is_sortable=True,
    )


def memory_table(measurement: Measurement, words: Words) -> Table | None:
    """Where the memory of a step goes: at its peak, and each kind at its fullest."""
    memory = measurement.memory
    if memory is None:
        return None
    peak_bytes, at_peak = memory.peak_bytes, memory.at_peak | {"other": memory.other_bytes}
    fullest = {
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
            value(words("mib_at_most"), lambda kind: mib(fullest.get(kind))),
        ],
        [*(kind for kind, most in fullest.items() if most), "other"],
    )


def limits_table(evidence: Evidence, words: Words) -> Table | None:
    """How near each step came to what its machine can do; None where no limits were measured."""
    reached: list[tuple[Measurement, Roofline]] = [
        (one, roofline)
        for mode in MODES
        for one in evidence.measured_in(mode)
        if one.layers is not None and one.layers.rows and (roofline := step_roofline(one))
    ]
    if not reached:
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
        reached,
        words("limits_note"),
        cell=lambda row: _cell(row[0]),
        num_shown=MANY_ROWS,
        is_sortable=True,
    )


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
        words("ledger_table", cell=measured[0].trial.cell if measured else ""),
        [
            name(words("instrument"), lambda row: words.named("instrument", row[1].instrument)),
            name(words("mode"), lambda row: words.mode(row[0].summary.mode)),
            value(words("added"), lambda row: Entry(_added(row[1].added), row[1].added)),
            value(words("interval"), lambda row: Entry(_added_within(row[1]))),
            value(words("pairs"), lambda row: count(row[1].num_pairs)),
        ],
        [(one, overhead) for one in measured for overhead in overheads(one)],
        words("ledger_note"),
    )


def overhead_text(found: Sequence[Overhead], words: Words) -> str:
    """The same in a sentence."""
    parts = []
    for one in found:
        instrument = words.named("instrument", one.instrument)
        parts.append(f"{instrument} {_added(one.added)} [{_added_within(one)}]")
    return words("overhead_text", parts=words("list_semicolon").join(parts))


def warning_table(evidence: Evidence, words: Words) -> Table | None:
    """Every measurement that was unstable, and why."""
    unstable = [one for one in evidence.measured if one.summary.warnings]
    if not unstable:
        return None
    again = f" ({words('again')})"
    return table_of(
        words("warning_table"),
        [
            name(words("cell"), lambda one: _cell(one) + (again if one.trial.again else "")),
            name(words("mode"), lambda one: words.mode(one.summary.mode)),
            name(words("why"), lambda one: words("list_semicolon").join(warning_texts(one, words))),
        ],
        unstable,
        cell=_cell,
        num_shown=MOST_WARNINGS,
        is_sortable=True,
    )


def warning_texts(measurement: Measurement, words: Words) -> list[str]:
    """What a measurement says about its own stability."""
    return [words.warning(one.code, one.value) for one in measurement.summary.warnings]


def _cell(measurement: Measurement) -> str:
    return measurement.trial.cell


def _device(measurement: Measurement) -> str:
    return str(measurement.trial.resolved.get("device_name", ""))


def _added(given: float) -> str:
    return f"{100 * given:+.1f} %"


def _added_within(one: Overhead) -> str:
    return f"{_added(one.low)}, {_added(one.high)}"
