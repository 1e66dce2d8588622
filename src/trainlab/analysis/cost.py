"""What a step costs: time and memory of the cells side by side, where they go, and what was unstable."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from trainlab.analysis import scaling
from trainlab.analysis.charts import (
    Bars,
    Spec,
    bar_figure,
    dot,
    first_cells,
    time_chart,
)
from trainlab.analysis.document import Block, Entry, Figure, Paragraph, Section, Table
from trainlab.analysis.energy import energy_columns, energy_findings, epoch_j, sample_mj
from trainlab.analysis.evidence import Evidence, trial_confounds
from trainlab.analysis.finding import MOST_CELLS, Finding, Kind, RunData
from trainlab.analysis.measurement import (
    MODES,
    STEP_LIMIT,
    Estimate,
    Measurement,
    figures_of,
    measured_twice,
)
from trainlab.analysis.metrics import Contrast, contrasts
from trainlab.analysis.operators import operator_findings
from trainlab.analysis.roofline import step_roofline
from trainlab.analysis.tables import (
    Field,
    bullets,
    estimate,
    name,
    number,
    part_columns,
    share,
    table_of,
    value,
)
from trainlab.spec import CostSpec
from trainlab.stats.cost_ratio import CostComparison, compare_costs, excess_variance, ratio_twice
from trainlab.stats.means import Interval
from trainlab.words import Words
from trainlab.words.numbers import MIB, figure, memory, percent

STEP_DIGITS = 4
"""Digits in the table of a single measurement: on a quiet machine its intervals are that narrow."""
PER_SAMPLE = "sample_us"
COSTS = ("step_ms", PER_SAMPLE, "epoch_s", "samples_per_s")
"""Quantities of a cost summary that can be drawn over cells."""
MOST_VALUES = 24
"""Values of a chart that its alt text lists."""

MeasuredPair = tuple[Measurement, Measurement]


def ratios_in(
    evidence: Evidence, mode: str, pairs: Sequence[MeasuredPair]
) -> tuple[CostComparison, ...]:
    """Time per sample of pairs of cells of one run, decided as one family; noise is that of all cells."""
    rows = _rows(evidence, mode)
    places = {id(measurement): row for row, measurement in enumerate(rows)}
    return compare_costs(
        figures_of(rows),
        [(places[id(first)], places[id(second)]) for first, second in pairs],
        measured_twice(rows),
        evidence.study.margins.get(f"{mode}/sample_us"),
    )


def ratios_between(
    first: Evidence, second: Evidence, mode: str, pairs: Sequence[MeasuredPair]
) -> tuple[CostComparison, ...]:
    """The same cells in two runs: nothing ran in turns here, so whole times are compared, process by
    process as they come."""
    if not pairs:
        return ()
    # Each row's figures moved to the left.
    sides = [figures_of(side) for side in zip(*pairs, strict=True)]
    known = [row[np.isfinite(row)] for side in sides for row in side]
    width = max(side.shape[1] for side in sides)
    figures = np.array([np.pad(r, (0, width - len(r)), constant_values=math.nan) for r in known])
    runs = [rows for run in (first, second) if (rows := _rows(run, mode))]
    excesses = [excess_variance(figures_of(rows), measured_twice(rows)) for rows in runs]
    return compare_costs(
        figures,
        [(place, len(pairs) + place) for place in range(len(pairs))],
        [],
        first.study.margins.get(f"{mode}/sample_us"),
        max((excess for excess in excesses if excess is not None), default=None),
    )


def noise_ratio(evidence: Evidence, mode: str) -> float | None:
    """How many times as long a cell takes as itself, measured twice: the farthest from 1; None without."""
    rows = _rows(evidence, mode)
    return ratio_twice(figures_of(rows), measured_twice(rows))


def _rows(evidence: Evidence, mode: str) -> list[Measurement]:
    return [measurement for measurement in evidence.measured if measurement.summary.mode == mode]


def _cost_text(one: Finding, words: Words) -> str:
    noise = "" if one.noise is None else one.fill(words, "cost_noise")
    knows_epochs = one.epoch_s_a is not None and one.epoch_s_b is not None
    cost = one.fill(words, f"cost_of_{one.mode}" if knows_epochs else "cost_of_steps")
    verdict = words.named("mark", (one.verdict or "").replace(" ", "_"))
    if one.verdict == "equivalent":
        verdict = one.fill(words, "cost_equivalent")
    texts = [words("cost_verdict", cost=cost, verdict=verdict, noise=noise)]
    if one.verdict == "cannot tell" and one.processes_needed is not None:
        texts.append(one.fill(words, "processes_would_do"))
    if one.host_bound is not None:
        texts.append(one.fill(words, "cost_waits"))
    return words.sentences(*texts)


def _change_of_time(one: Finding, words: Words) -> dict[str, object]:
    """How many times faster or slower per sample, where that was shown; else the ratio of times."""
    if one.verdict != "different":
        within = one.interval_text(words)
        return {"change_of_time": words("time_ratio", ratio=figure(one.ratio), within=within)}
    key, ratio, interval = "time_slower", one.ratio, one.interval
    if one.ratio <= 1:
        key, ratio, interval = "time_faster", 1 / ratio, interval and interval.inverse
    within = one.interval_text(words, interval=interval)
    shown = {"times": figure(ratio), "share": percent(one.ratio), "within": within}
    return {"change_of_time": words(key, **shown)}


WIDE = 0.25
"""A ratio that may be off by more has no single figure in a headline."""


def headline(
    value: float,
    within: Interval | Estimate | None,
    measured: Iterable[Measurement | None],
    words: Words,
) -> tuple[Interval, str]:
    """A figure; where its interval is wide or a time behind it is flagged that interval, and why."""
    flags = (one.summary.unstable for one in measured if one is not None)
    worst = max(filter(None, flags), key=lambda one: one.off_by, default=None)
    if within is None or within.low is None or within.high is None:
        return Interval(value, value), ""
    if worst is None and math.sqrt(within.high / within.low) - 1 <= WIDE:
        return Interval(value, value), ""
    why = words.warning(worst.reason, worst.value) if worst else words("ratio_varies")
    return Interval(within.low, within.high), why


def _unstable_text(one: Finding, words: Words) -> str:
    parts = []
    if one.reason is not None and one.reason_value is not None:
        why = words.warning(one.reason, one.reason_value)
        parts.append(one.fill(words, "unstable_times", why=why))
    if one.worst_ratio is not None:
        parts.append(one.fill(words, "wide_ratios" if one.num_wide else "good_ratios"))
    return words.sentences(*parts)


COST = Kind(
    "cost",
    "factors",
    7,
    "cost",
    statement=_cost_text,
    phrases=_change_of_time,
    weight=lambda one: abs(math.log(one.ratio)),
    repeats_row=lambda one: one.verdict != "cannot tell",
)
"""What a change of one factor does to the time per sample; `noise` is how many times as long a cell takes
as itself, `margin` the share that would not matter; `host_bound` the setting that waits for the host where
the other waits for the GPU."""
MEMORY = Kind(
    "memory",
    "factors",
    13,
    text="memory_change",
    phrases=lambda one, words: {"memory": memory(one.mib_a, one.mib_b)},
    weight=lambda one: abs(math.log(one.ratio)),
    repeats_row=lambda one: True,
)
"""What a change of one factor does to peak memory."""
UNSTABLE = Kind("unstable", "method", statement=_unstable_text)
"""Times per batch that may be off by more than STEP_LIMIT, or ratios by more than was asked for: how many,
and by how much the worst; the likeliest reason for the least known time, as a code, and its value."""


def cost_findings(evidence: Evidence) -> Iterator[Finding]:
    """By mode: time, memory, scaling, operators, the optimizer's share; then what was unstable."""
    pairs = contrasts(evidence.cells)
    ratios: list[CostComparison] = []
    for mode in MODES:
        measured = [
            (pair, first, second)
            for pair in pairs
            if (first := evidence.measurement(pair.reference.id, mode))
            and (second := evidence.measurement(pair.other.id, mode))
        ]
        comparisons = ratios_in(evidence, mode, [(first, second) for _, first, second in measured])
        ratios += comparisons
        yield from _compared(evidence, mode, measured, comparisons)
        yield from energy_findings(evidence, mode, measured)
        yield from scaling.parallel_findings(mode, [pair for pair, _, _ in measured], comparisons)
        for series in scaling.batch_series(evidence, mode):
            yield scaling.scaling_finding(series)
            yield from operator_findings(series)
            yield from scaling.optimizer_share(series)
    yield from _unstable(evidence, ratios)


def _compared(
    evidence: Evidence,
    mode: str,
    measured: Sequence[tuple[Contrast, Measurement, Measurement]],
    comparisons: Sequence[CostComparison],
) -> Iterator[Finding]:
    noise, memory = noise_ratio(evidence, mode), []
    for (pair, first, second), comparison in zip(measured, comparisons, strict=True):
        confounds = trial_confounds(first.trial, second.trial, pair.factors)
        values: dict[str, float | str | None] = {"ratio": comparison.ratio.value, "noise": noise}
        for end, one in (("a", first), ("b", second)):
            values[f"sample_us_{end}"] = one.summary.sample_us.value
            values[f"step_ms_{end}"] = one.summary.step_ms.value
            values[f"epoch_s_{end}"] = one.summary.epoch_s.value if one.knows_epochs else None
        values["host_bound"] = None
        if {first.waits_for, second.waits_for} == {"host", "gpu"}:
            bound = first if first.waits_for == "host" else second
            values["host_bound"] = bound.trial.cell
        for field in ("p", "family", "margin", "detectable", "processes_needed"):
            values[field] = getattr(comparison, field)
        is_equivalent = comparison.verdict == "equivalent"
        yield COST(
            subject=f"{mode}/sample_us",
            n=comparison.n,
            interval=comparison.equivalence if is_equivalent else comparison.ratio.interval,
            verdict=comparison.verdict,
            confounds=confounds,
            **pair.shared,
            **values,
        )
        if first.peak_mib is not None and second.peak_mib is not None:
            peaks = {"mib_a": first.peak_mib, "mib_b": second.peak_mib}
            ratio, subject = second.peak_mib / first.peak_mib, f"{mode}/peak_bytes"
            told = {**pair.shared, **peaks, "ratio": ratio}
            memory.append(MEMORY(subject=subject, n=1, confounds=confounds, **told))
    yield from memory


def _unstable(evidence: Evidence, ratios: Sequence[CostComparison]) -> Iterator[Finding]:
    """One finding for all times and ratios that are not known well."""
    spec = evidence.study.cost or CostSpec()
    within = spec.ratio_within
    off = [(m, m.summary.unstable) for m in evidence.measured if m.summary.unstable is not None]
    widths = [one.half_width for one in ratios if one.half_width is not None]
    wide = [width for width in widths if width > within]
    if off or wide:
        worst = max((one for _, one in off), key=lambda one: one.off_by, default=None)
        first = off[0][0] if off else evidence.measured[0]
        yield UNSTABLE(
            subject=f"{first.summary.mode}/step_ms",
            cells=tuple(dict.fromkeys(measurement.trial.cell for measurement, _ in off)),
            n=len(off) + len(wide),
            num_unstable=len(off),
            num_measured=len(evidence.measured),
            worst=worst and worst.off_by,
            num_wide=len(wide),
            num_ratios=len(widths),
            worst_ratio=max(widths, default=None),
            limit=STEP_LIMIT,
            ratio_limit=within,
            # Errors fall with the root of the time; a quarter more, since they are estimates.
            minutes=math.ceil(
                1.25 * spec.budget_s / 60 * (max(widths, default=within) / within) ** 2
            ),
            reason=worst and worst.reason,
            reason_value=worst and worst.value,
        )


def cost_table(evidence: Evidence, words: Words) -> Table:
    """Each cell's cost by mode, from bare processes, with the interval of repeats."""
    # Where several batches make an update, a step is that.
    does = any(cell.settings.accumulate > 1 for cell in evidence.cells)
    does = does or any(one.accumulates for one in evidence.measured)
    notes = ("cost_table_note", "cost_table_accumulated") if does else ("cost_table_note",)
    note = words.sentences(*map(words, notes))
    limits = {"host": words("waits_host"), "gpu": words("waits_gpu"), None: ""}
    waiting: list[Field[Measurement]] = [name(words("waits_for"), lambda m: limits[m.waits_for])]
    if not any(one.waits_for for one in evidence.measured):
        waiting.clear()
    fields: list[Field[Measurement]] = [
        name(words("cell"), lambda m: measured_cell(m, words)),
        name(words("mode"), lambda m: words.mode(m.summary.mode)),
        name(words("device"), lambda m: m.device, is_extra=True),
        *waiting,
        value(words("accumulated_ms" if does else "step_ms"), lambda m: m.summary.step_ms.value),
        value(words("sample_us"), lambda m: estimate(m.summary.sample_us)),
        value(words("epoch_s"), lambda m: m.summary.epoch_s.value if m.knows_epochs else None),
        value(words("samples_per_s"), lambda m: m.summary.samples_per_s.value, is_extra=True),
        value(words("peak_mib"), lambda m: m.peak_mib),
        *energy_columns(evidence.measured, words),
    ]
    # What was measured twice comes last, and folded.
    measured = sorted(evidence.measured, key=lambda one: one.trial.again)
    shown = sum(not one.trial.again for one in measured)
    caption, cell = words("cost_table"), lambda one: one.trial.cell
    return table_of(caption, fields, measured, note, cell=cell, num_shown=shown, is_sortable=True)


def measured_cell(measurement: Measurement, words: Words) -> str:
    notes = [words("again")] if measurement.trial.again else []
    notes += [words("trained")] if measurement.is_trained else []
    return measurement.trial.cell + (f" ({words.listed(notes)})" if notes else "")


def _step_key(measurement: Measurement) -> str:
    return "accumulated_ms" if measurement.accumulates else "step_ms"


def step_table(title: str, measurement: Measurement, words: Words) -> Table:
    """One measurement per batch, per sample and per epoch, each with the interval of repeats."""

    def repeats(cost: Estimate) -> str:
        if cost.low is None or cost.high is None:
            return ""
        low, high = figure(cost.low, STEP_DIGITS), figure(cost.high, STEP_DIGITS)
        return words("range", low=low, high=high)

    summary = measurement.summary
    costs = {_step_key(measurement): summary.step_ms, "sample_us": summary.sample_us}
    if summary.mode != "train" or measurement.knows_epochs:
        costs["epoch_s" if summary.mode == "train" else "pass_s"] = summary.epoch_s
    costs["samples_per_s"] = summary.samples_per_s
    energies = {"sample_mj": sample_mj(measurement), "epoch_j": epoch_j(measurement)}
    costs |= {key: energy for key, energy in energies.items() if energy is not None}
    rows = [(words(key), cost.value, repeats(cost)) for key, cost in costs.items()]
    if (roofline := step_roofline(measurement)) is not None:
        best = words("of_best", share=percent(roofline.compute_share))
        rows.append((words("gflop_per_s"), roofline.flops_per_s / 1e9, best))
    weights = words("trained" if measurement.is_trained else "untrained")
    caption = words(
        "step_caption",
        name=title,
        step=words.step(summary.mode),
        batch=summary.batch_size,
        device=measurement.device,
        threads=measurement.trial.resolved.get("threads", "?"),
        weights=words("script_weights") if measurement.is_of_script else weights,
    )
    fields: list[Field[tuple[str, float, str]]] = [
        name(words("cost_of"), lambda row: row[0]),
        value("", lambda row: number(row[1], figure(row[1], STEP_DIGITS))),
        value(words("repeats"), lambda row: Entry(row[2])),
    ]
    return table_of(caption, fields, rows)


def method_text(measurement: Measurement, words: Words) -> str:
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


def warning_text(measurement: Measurement, words: Words) -> str | None:
    """By how much a time per batch may be off and why; None where it is known well."""
    if (unstable := measurement.summary.unstable) is None:
        return None
    why = words.warning(unstable.reason, unstable.value)
    return words("unstable_line", off_by=percent(unstable.off_by), why=why)


def cost_figure(data: RunData, words: Words, quantity: str = PER_SAMPLE) -> Figure | None:
    """One of COSTS of every cell; of the time per sample also how many times as fast as the first that is,
    as the findings have it. None where it was not measured."""
    rows: list[Spec] = []
    found_costs = [one for one in data.findings_in("factors") if one.kind == "cost"]
    ratios = {(one.mode, one.cells): one for one in found_costs if quantity == PER_SAMPLE}
    for mode in MODES:
        measured = data.evidence.measured_in(mode)
        for one in measured:
            cost: Estimate = getattr(one.summary, quantity)
            name = words.mode(mode)
            label = f"{name} {figure(cost.value)}"
            if quantity == PER_SAMPLE:
                label = words("bar_time", bar=label)
            if found := ratios.get((mode, (measured[0].trial.cell, one.trial.cell))):
                ends, _ = headline(found.ratio, found.interval, (measured[0], one), words)
                # What is not decided has no single figure.
                ends = found.interval if found.verdict == "cannot tell" and found.interval else ends
                times = ends.inverse
                label = words("bar_times", bar=label, times=times)
            row = dot(one.trial.cell, name, cost.value, (cost.low, cost.high))
            rows.append(row | {"label": label, "end": cost.high or cost.value})
    if not rows:
        return None
    rows, left_out = first_cells(rows)
    cells = [cell.id for cell in data.evidence.cells]
    notes = [words("time_note", cell=cells[0])] if ratios else []
    notes += [words("cost_dots_note")]
    notes += [words("left_out", number=left_out)] if left_out else []
    values = (f"{row['cell']}: {row['label']}" for row in rows[:MOST_VALUES])
    told = words("list_semicolon").join(values)
    return Figure(
        id=f"cost-{quantity.replace('_', '-')}",
        caption=words(f"{quantity}_caption"),
        alt=words.tidy(words("final_alt", metric=words(quantity), values=told)),
        spec=time_chart(rows, words(quantity), cells, words),
        note=words.sentences(*notes),
    )


def phase_bars(evidence: Evidence, mode: str) -> Bars:
    """Where the time of a step goes, in milliseconds."""
    measured = evidence.measured_in(mode)[:MOST_CELLS]
    return {
        m.trial.cell: m.summary.phases_ms for m in measured if any(m.summary.phases_ms.values())
    }


def phases_of_step(measurement: Measurement, words: Words) -> Table:
    """The phases of one measurement, the longest first."""
    phases = measurement.summary.phases_ms
    total_ms = sum(phases.values())
    step = words(_step_key(measurement))
    fields: list[Field[str]] = [
        name(words("phase"), words.phase),
        value(step, lambda phase: number(phases[phase], f"{phases[phase]:.4f}")),
        value(words("share"), lambda phase: share(phases[phase] / total_ms)),
    ]
    caption = words("phases_caption", step=words.step(measurement.summary.mode))
    return table_of(caption, fields, sorted(phases, key=lambda phase: -phases[phase]))


def phase_table(measured: Sequence[Measurement], mode: str, words: Words) -> Table:
    """Milliseconds of each phase and its share, a row per cell."""
    rows = [(measurement.trial.cell, measurement.summary.phases_ms) for measurement in measured]
    caption, fields = words("phase_table", step=words.step(mode)), part_columns(rows, words)
    return table_of(caption, fields, rows, cell=lambda row: row[0], is_sortable=True)


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

    def mib(num_bytes: int) -> Entry:
        return number(num_bytes / MIB, f"{num_bytes / MIB:.2f}")

    fields: list[Field[str]] = [
        name(words("what"), words.memory),
        value(words("mib_at_peak"), lambda kind: mib(at_peak.get(kind, 0))),
        value(words("share"), lambda kind: share(at_peak.get(kind, 0) / peak_bytes)),
        value(words("mib_at_most"), lambda kind: mib(most[kind]) if kind in most else None),
    ]
    caption = words("memory_table", peak=mib(peak_bytes).text, phase=words.phase(memory.peak_phase))
    return table_of(caption, fields, [*(kind for kind in most if most[kind]), "other"])


def cost_section(data: RunData, words: Words) -> Section | None:
    """What every cell costs and where the time of a step goes; folded below that, its memory and more of
    its time. None where no cost was measured."""
    evidence = data.evidence
    phases = {mode: bars for mode in MODES if (bars := phase_bars(evidence, mode))}
    if not evidence.measured or (evidence.diagnosis is not None and not phases):
        return None
    unit, axis = words("milliseconds"), words("memory_axis")
    blocks: list[Block] = [Paragraph(words("phases_intro"))] if phases else []
    more: list[Figure] = []
    if evidence.diagnosis is None:  # its changes are no settings to choose from
        blocks.append(cost_table(evidence, words))
        more += filter(None, [cost_figure(data, words)])
    blocks += (
        bar_figure(b, "phases", mode, unit, words, words.phase) for mode, b in phases.items()
    )
    if findings := data.findings_in("phases"):
        blocks.append(bullets(findings, words))
    for mode in MODES:
        held = {m.trial.cell: m.memory for m in evidence.measured_in(mode)[:MOST_CELLS] if m.memory}
        # What the memory at its peak holds, in MiB; the parts add up to the peak.
        bars = {
            cell: {kind: size / MIB for kind, size in memory.at_peak.items() if size}
            | {"other": memory.other_bytes / MIB}
            for cell, memory in held.items()
        }
        if bars:
            more.append(bar_figure(bars, "memory", mode, "MiB", words, words.memory, axis))
    tables = (phase_table(evidence.measured_in(mode), mode, words) for mode in phases)
    blocks += (replace(table, is_folded=True) for table in tables)
    blocks += (replace(figure, is_folded=True) for figure in more)
    return Section("phases", words("cost"), tuple(blocks))
