"""What a step costs: phases, memory, scaling, limits, the cold start."""

from collections.abc import Callable, Iterator

from trainlab.analyse.cost.cold_start import ColdStart, Pair, cold_start
from trainlab.analyse.cost.efficiency import step_reach
from trainlab.analyse.cost.measurement import Measurement
from trainlab.analyse.findings.cost import MODES
from trainlab.analyse.findings.finding import Finding
from trainlab.report.document import (
    Block,
    Entry,
    Figure,
    Notice,
    Paragraph,
    Row,
    Section,
    Table,
    table,
)
from trainlab.report.entries import number, points, share, text
from trainlab.report.figures.bars import Bars, memory_bars, phase_bars
from trainlab.report.figures.charts import bar_chart
from trainlab.report.figures.first_steps import first_steps
from trainlab.report.figures.line_charts import first_steps_chart, scaling_chart
from trainlab.report.figures.scaling import scaling_lines
from trainlab.report.material import Material
from trainlab.words import Words
from trainlab.words.numbers import MIB, figure, percent

Naming = Callable[[str], str]


SHOWN = 20


def _has_rows(found: Measurement) -> bool:
    return found.layers is not None and bool(found.layers.rows)


def phase_section(material: Material, words: Words) -> Section | None:
    """Where the time and the memory of a step go; None where no cost was measured."""
    phases = [bars for mode in MODES if (bars := phase_bars(material, mode)) is not None]
    memory = [bars for mode in MODES if (bars := memory_bars(material, mode)) is not None]
    if not phases:
        return None
    unit = words("milliseconds")
    blocks: list[Block] = [
        *(bar_figure(bars, "phases", unit, words, words.phase) for bars in phases),
        *(phase_table(material, bars.mode, words) for bars in phases),
        *(bar_figure(bars, "memory", "MiB", words, words.memory) for bars in memory),
    ]
    found = [one for one in material.findings if one.kind == "optimizer_share"]
    if found:
        blocks.append(points(found, words))
    return Section("phases", words("phases"), (Paragraph(words("phases_intro")), *blocks))


def phase_table(material: Material, mode: str, words: Words) -> Table:
    """Milliseconds of each phase and its share."""
    found = material.measured(mode)
    names = list(dict.fromkeys(name for one in found for name in one.summary.phases_ms))
    rows = []
    for one in found:
        phases = one.summary.phases_ms
        whole = sum(phases.values()) or 1.0
        told = (
            Entry(f"{figure(phases[name])} ({percent(phases[name] / whole)})", phases[name])
            if name in phases
            else Entry("")
            for name in names
        )
        rows.append(Row((text(one.trial.cell), *told), cell=one.trial.cell))
    return table(
        words("phase_table", step=words(f"step_{mode}")),
        ((words("cell"), False), *((words.phase(name), True) for name in names)),
        rows,
        is_sortable=True,
        num_shown=SHOWN if len(rows) > SHOWN else None,
        is_code=True,
    )


def bar_figure(bars: Bars, kind: str, unit: str, words: Words, name: Naming) -> Figure:
    """Shares of a whole, a bar per cell."""
    first = bars.parts[0].cell
    mine = sorted((p for p in bars.parts if p.cell == first), key=lambda part: -part.value)[:3]
    told = words("list_comma").join(f"{name(p.name) or '…'} {percent(p.share)}" for p in mine)
    return Figure(
        id=f"{kind}-{bars.mode}",
        caption=words(f"{kind}_caption", step=words(f"step_{bars.mode}")),
        alt=words("bars_alt", caption=words(f"{kind}_caption", step=words(f"step_{bars.mode}")))
        + words("bars_alt_first", cell=first, parts=told),
        spec=bar_chart(bars, unit, words, name),
        note=words(f"{kind}_note"),
    )


def scaling_section(material: Material, words: Words) -> Section | None:
    """How the time of a batch grows with its size; None below two sizes."""
    blocks: list[Block] = []
    told: list[Finding] = []
    for mode in MODES:
        lines = scaling_lines(material, mode)
        if not lines:
            continue
        caption = words("scaling_caption", step=words(f"step_{mode}"))
        ends = words("list_comma").join(
            f"{size}: {figure(time)}" for _, size, time in lines[0].measured
        )
        blocks.append(
            Figure(
                id=f"scaling-{mode}",
                caption=caption,
                alt=words("scaling_alt", caption=caption, values=ends),
                spec=scaling_chart(lines, words),
                note=words("scaling_note"),
            )
        )
        told += [
            one
            for one in material.findings
            if one.kind == "scaling" and one.subject == f"{mode}/step_ms"
        ]
    if not blocks:
        return None
    blocks.append(points(told, words))
    return Section("scaling", words("scaling"), (Paragraph(words("scaling_intro")), *blocks))


def limits_section(material: Material, words: Words) -> Section | None:
    """How near each step came to what its machine can do; None where no limits were measured."""
    rows = []
    for mode in MODES:
        for found in material.measured(mode):
            reach = step_reach(found)
            if reach is None or not _has_rows(found):
                continue
            entries = (
                text(found.trial.cell),
                text(words(f"mode_{mode}")),
                text(found.trial.resolved.get("device_name", "")),
                number(found.summary.sample_us.value),
                number(reach.flops_per_s / 1e9),
                share(reach.compute_share),
                number(reach.bytes_per_s / 1e9),
                share(reach.memory_share),
                text(words(f"near_{reach.near}")),
            )
            rows.append(Row(entries, cell=found.trial.cell))
    if not rows:
        return None
    headings = (
        (words("cell"), False),
        (words("mode"), False),
        (words("device"), False),
        (words("sample_us"), True),
        (words("gflop_per_s"), True),
        (words("of_best_compute"), True),
        (words("gb_per_s"), True),
        (words("of_best_memory"), True),
        (words("near"), False),
    )
    found_table = table(
        words("limits_table"),
        headings,
        rows,
        note=words("limits_note"),
        is_sortable=True,
        num_shown=SHOWN if len(rows) > SHOWN else None,
        is_code=True,
    )
    return Section("hardware", words("hardware"), (Paragraph(words("hardware_intro")), found_table))


def cold_section(material: Material, words: Words) -> Section | None:
    """Why the first step takes longer; None where no warm-up step was kept."""
    blocks: list[Block] = []
    tables: list[Block] = []
    for mode in MODES:
        steps = first_steps(material, mode)
        cold = next((c for one in material.measured(mode) if (c := _cold(one))), None)
        if steps is not None and len(steps.points) > 1:
            caption = words("cold_caption", step=words(f"step_{mode}"))
            told = words("list_comma").join(
                f"{cell} {figure(times)}" for cell, step, times in steps.points[:200] if step == 1
            )
            blocks.append(
                Figure(
                    id=f"cold-{mode}",
                    caption=caption,
                    alt=words("cold_alt", caption=caption, values=told),
                    spec=first_steps_chart(steps, words),
                )
            )
        if cold is not None:
            tables.append(cold_table(cold[1], mode, cold[0], words))
    if not blocks and not tables:
        return None
    return Section("cold", words("cold"), (Paragraph(words("cold_intro")), *blocks, *tables))


def _cold(found: Measurement) -> tuple[str, ColdStart] | None:
    cold = cold_start(found.costs, found.layers)
    return None if cold is None else (found.trial.cell, cold)


def cold_table(cold: ColdStart, mode: str, cell: str, words: Words) -> Table:
    """The first step of a process beside a settled one."""
    rows = [_pair_row(label, pair) for label, pair in _cold_rows(cold, words)]
    headings = (
        (words("what"), False),
        (words("first_step"), True),
        (words("settled"), True),
        (words("ratio"), True),
    )
    caption = words("cold_table", step=words(f"step_{mode}"), cell=cell)
    return table(caption, headings, rows, note=words("cold_note"))


def _cold_rows(cold: ColdStart, words: Words) -> Iterator[tuple[str, Pair]]:
    yield words("whole_step_ms"), cold.step_ms
    for pair in cold.phases_ms:
        if pair.first > 0.05 * cold.step_ms.first:
            yield words("phase_ms", phase=words.phase(pair.name)), pair
    for pair in cold.layers_ms[:3]:
        yield words("layer_forward_ms", layer=pair.name), pair
    for pair in cold.evidence:
        if pair.first:
            yield words.counted(pair.name), pair


def _pair_row(label: str, pair: Pair) -> Row:
    ratio = pair.ratio
    return Row((text(label), number(pair.first), number(pair.settled), number(ratio)))


def unstable_notice(material: Material, words: Words) -> Notice | None:
    """Told at the top where a measurement cannot be trusted."""
    shaky = [one for one in material.findings if one.kind == "unstable"]
    if not shaky:
        return None
    numbers = shaky[0].numbers
    return Notice(
        words("unstable_notice", some=numbers["num_unstable"], all=numbers["num_measured"])
    )


def memory_told(found: Measurement) -> Entry:
    """MiB at the peak; empty where it was not watched."""
    return number(None if found.memory is None else found.memory.peak_bytes / MIB)
