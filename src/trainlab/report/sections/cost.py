"""What a step costs: phases, memory, scaling, limits, the cold start."""

from collections.abc import Callable

from trainlab.analysis.charts import Bars, bar_chart, part_labels
from trainlab.analysis.document import Block, Figure, Paragraph, Section
from trainlab.analysis.finding import RunData
from trainlab.analysis.measurement import MODES
from trainlab.analysis.tables import bullets
from trainlab.report.figures.bars import memory_bars, phase_bars
from trainlab.report.figures.first_steps import first_steps, first_steps_chart
from trainlab.report.figures.scaling import scaling_chart, scaling_lines
from trainlab.report.tables.cost import cold_table, limits_table, phase_table
from trainlab.words import Words
from trainlab.words.numbers import figure, percent


def phase_section(data: RunData, words: Words) -> Section | None:
    """Where the time and the memory of a step go; None where no cost was measured."""
    evidence = data.evidence
    phases = [bars for mode in MODES if (bars := phase_bars(evidence, mode))]
    memory = [bars for mode in MODES if (bars := memory_bars(evidence, mode))]
    if not phases:
        return None
    unit, axis = words("milliseconds"), words("memory_axis")
    blocks: list[Block] = [
        *(bar_figure(bars, "phases", unit, words, words.phase) for bars in phases),
        *(phase_table(evidence.measured_in(bars.mode), bars.mode, words) for bars in phases),
        *(bar_figure(bars, "memory", "MiB", words, words.memory, axis) for bars in memory),
    ]
    if findings := data.findings_in("phases"):
        blocks.append(bullets(findings, words))
    return Section("phases", words("phases"), (Paragraph(words("phases_intro")), *blocks))


def bar_figure(
    bars: Bars,
    kind: str,
    unit: str,
    words: Words,
    part_name: Callable[[str], str],
    value_axis: str | None = None,
) -> Figure:
    """A bar per cell, made of its parts: of shares, or with `value_axis`, its title, of values. The three
    largest parts of the first cell are in the alt text."""
    first = bars.parts[0].cell
    parts = sorted((p for p in bars.parts if p.cell == first), key=lambda part: -part.value)[:3]
    sizes = (f"{figure(p.value)} {unit}" if value_axis else percent(p.share) for p in parts)
    labels = part_labels(bars, words, part_name)
    names = (labels[part.name] for part in parts)
    largest = words.listed(map(" ".join, zip(names, sizes, strict=True)))
    caption = words(f"{kind}_caption", step=words.step(bars.mode))
    return Figure(
        id=f"{kind}-{bars.mode}",
        caption=caption,
        alt=words("bars_alt", caption=caption) + words("bars_alt_first", cell=first, parts=largest),
        spec=bar_chart(bars, unit, words, part_name, value_axis),
        note=words(f"{kind}_note"),
    )


def scaling_section(data: RunData, words: Words) -> Section | None:
    """How the time of a batch grows with its size; None below two sizes."""
    blocks: list[Block] = []
    for mode in MODES:
        lines = scaling_lines(data.evidence, mode)
        if not lines:
            continue
        caption = words("scaling_caption", step=words.step(mode))
        values = words.listed(f"{size}: {figure(time)}" for _, size, time in lines[0].measured)
        blocks.append(
            Figure(
                id=f"scaling-{mode}",
                caption=caption,
                alt=words("scaling_alt", caption=caption, values=values),
                spec=scaling_chart(lines, words),
                note=words("scaling_note"),
            )
        )
    if not blocks:
        return None
    blocks.append(bullets(data.findings_in("scaling"), words))
    return Section("scaling", words("scaling"), (Paragraph(words("scaling_intro")), *blocks))


def limits_section(data: RunData, words: Words) -> Section | None:
    """How near each step came to what its machine can do; None where no limits were measured."""
    table = limits_table(data.evidence, words)
    if table is None:
        return None
    return Section("hardware", words("hardware"), (Paragraph(words("hardware_intro")), table))


def cold_section(data: RunData, words: Words) -> Section | None:
    """Why the first step takes longer; None where no warm-up step was kept."""
    figures: list[Block] = []
    tables: list[Block] = []
    for mode in MODES:
        measured = data.evidence.measured_in(mode)
        steps = first_steps(measured, mode)
        if steps is not None and len(steps.points) > 1:
            caption = words("cold_caption", step=words.step(mode))
            values = words.listed(
                f"{cell} {figure(times)}" for cell, step, times in steps.points[:200] if step == 1
            )
            figures.append(
                Figure(
                    id=f"cold-{mode}",
                    caption=caption,
                    alt=words("cold_alt", caption=caption, values=values),
                    spec=first_steps_chart(steps, words),
                    note=words("settled_note"),
                )
            )
        # One cell shows as well as any other why the first step is slow.
        tables += [table for m in measured if (table := cold_table(m, words))][:1]
    if not figures and not tables:
        return None
    return Section("cold", words("cold"), (Paragraph(words("cold_intro")), *figures, *tables))
