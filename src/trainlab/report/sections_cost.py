"""What a step costs: layers, operators, phases, memory, scaling, the cold start."""

from collections.abc import Iterator

from trainlab.analyse.cold import ColdStart, Pair, cold_start
from trainlab.analyse.cost_findings import MODES
from trainlab.analyse.layers import between_ms, layer_times
from trainlab.analyse.limits import Reach
from trainlab.analyse.measurement import Measurement
from trainlab.analyse.operators import outside_us, ranked
from trainlab.analyse.reach import layer_reach, step_reach
from trainlab.report.charts import bar_chart, first_steps_chart, scaling_chart
from trainlab.report.document import (
    Block,
    Drawing,
    Entry,
    Figure,
    Notice,
    Paragraph,
    Row,
    Section,
    Table,
    table,
)
from trainlab.report.entries import count, number, points, share, text
from trainlab.report.figures import (
    MIB,
    Bars,
    first_steps,
    memory_bars,
    operator_bars,
    phase_bars,
    scaling_lines,
)
from trainlab.report.graph import draw, network
from trainlab.report.material import Material
from trainlab.report.numbers import bare_operator, figure, percent
from trainlab.report.words import Words

TOP = 10
MOST_TABLES = 12
"""Operator tables of one mode; the files have them all."""
SHOWN = 20


def network_section(material: Material, words: Words) -> Section | None:
    """The network as it was called, with each layer's share of a step; None where no step was watched."""
    found = next((one for mode in MODES for one in material.measured(mode) if _has_rows(one)), None)
    if found is None or found.layers is None:
        return None
    layers = layer_times(found.layers, found.summary.phases_ms)
    whole = sum(found.summary.phases_ms.values())
    graph = network(layers, whole)
    parameters = sum(layer.row.num_parameters for layer in layers)
    where = words(
        "network_where",
        step=words(f"step_{found.summary.mode}"),
        cell=found.trial.cell,
        batch=found.summary.batch_size,
    )
    told = words(
        "network_alt",
        number=len(layers),
        parameters=f"{parameters:,}",
        chain=" → ".join(node.name for node in graph.nodes),
    )
    notes = [words("network_note")]
    if graph.is_collapsed:
        notes.append(words("network_collapsed"))
    blocks: list[Block] = [
        Paragraph(words("network_intro", number=len(layers), parameters=f"{parameters:,}") + where),
        Drawing(
            id="network",
            caption=words("network_caption"),
            alt=told,
            svg=draw(graph, words),
            note=words.sentences(*notes),
        ),
        layer_table(found, words),
    ]
    return Section("network", words("network"), tuple(blocks))


def _has_rows(found: Measurement) -> bool:
    return found.layers is not None and bool(found.layers.rows)


def layer_table(found: Measurement, words: Words) -> Table:
    """Each call as the user wrote it."""
    assert found.layers is not None
    layers = layer_times(found.layers, found.summary.phases_ms)
    whole = sum(found.summary.phases_ms.values())
    trains = found.summary.mode == "train"
    rows = []
    for layer in layers:
        row = layer.row
        again = f" ({row.call})" if row.call > 1 else ""
        entries = (
            text(row.name + again),
            text(row.type),
            text(" ".join("×".join(map(str, shape)) for shape in row.output_shapes)),
            count(row.num_parameters) if row.num_parameters else Entry("", 0.0),
            number(row.forward_flops / 1e6 if row.forward_flops else None),
            number(layer.forward_ms),
            *((number(layer.backward_ms),) if trains else ()),
            share(layer.total_ms / whole),
            text(_near(layer_reach(found, layer), words)),
        )
        rows.append(Row(entries))
    rest = between_ms(layers, found.summary.phases_ms)
    blanks = [Entry("")] * 4
    rows.append(
        Row(
            (
                text(words("between_layers")),
                *blanks,
                number(rest),
                *((Entry(""),) if trains else ()),
                share(rest / whole),
                Entry(""),
            )
        )
    )
    headings = (
        (words("layer"), False),
        (words("type"), False),
        (words("output"), False),
        (words("parameters"), True),
        (words("forward_mflop"), True),
        (words("forward_ms"), True),
        *(((words("backward_ms"), True),) if trains else ()),
        (words("share"), True),
        (words("near"), False),
    )
    note = words("layers_note")
    if found.layers.uncounted:
        told = words("list_comma").join(found.layers.uncounted)
        note = words.sentences(note, words("uncounted", names=told))
    return table(
        words("layer_table", cell=found.trial.cell),
        headings,
        rows,
        note=note,
        is_sortable=True,
        num_shown=30 if len(rows) > 30 else None,
        is_code=True,
    )


def _near(reach: Reach | None, words: Words) -> str:
    """`compute 45 %`: the nearer limit and how much of it was reached."""
    if reach is None:
        return ""
    if reach.near == "neither":
        return words("near_neither")
    reached = reach.compute_share if reach.near == "compute" else reach.memory_share
    return f"{words(f'near_{reach.near}')} {100 * reached:.0f} %"


def operator_section(material: Material, words: Words) -> Section | None:
    """The top ten of every cell, by mode and device; None where nothing was profiled."""
    sections = []
    for mode in MODES:
        found = [one for one in material.measured(mode) if one.operators is not None]
        if not found:
            continue
        blocks: list[Block] = []
        bars = operator_bars(material, mode)
        if bars is not None:
            blocks.append(
                bar_figure(bars, "operators", words("share_of_step"), words, plain)
            )
        told = [one for one in material.findings if one.kind in ("dominates", "growth")]
        mine = [one for one in told if one.numbers["mode"] == mode]
        if mine:
            blocks.append(points(mine, words))
        blocks += [operator_table(one, words) for one in found[:MOST_TABLES]]
        if len(found) > MOST_TABLES:
            left = len(found) - MOST_TABLES
            blocks.append(Paragraph(words("operators_left_out", number=left)))
        sections.append(Section(f"operators-{mode}", words(f"mode_{mode}"), tuple(blocks)))
    if not sections:
        return None
    intro = Paragraph(words("operators_intro"))
    return Section("operators", words("operators"), (intro,), tuple(sections))


def operator_table(found: Measurement, words: Words) -> Table:
    """All operators, the costliest first; ten are shown."""
    record = found.operators
    assert record is not None
    by_shape = any(row.shapes for row in record.rows)
    rows = []
    for one in ranked(record):
        entries = (
            text(bare_operator(one.name)),
            *((text(one.shapes),) if by_shape else ()),
            share(one.share),
            number(one.self_us, f"{one.self_us:,.1f}"),
            number(one.total_us, f"{one.total_us:,.1f}"),
            number(one.average_us, f"{one.average_us:,.1f}"),
            number(one.calls_per_step),
            number(one.memory_bytes / 1024, f"{one.memory_bytes / 1024:,.0f}"),
        )
        rows.append(Row(entries, cell=found.trial.cell))
    headings = (
        (words("operator"), False),
        *(((words("shapes"), False),) if by_shape else ()),
        (words("share"), True),
        (words("self_us"), True),
        (words("total_us"), True),
        (words("average_us"), True),
        (words("calls"), True),
        (words("memory_kib"), True),
    )
    outside = outside_us(record)
    notes = [
        words(
            "outside_note",
            time=f"{outside:,.1f}",
            share=percent(outside / record.profiled_step_us),
        )
    ]
    if not record.calls_are_equal:
        notes.append(words("calls_differ"))
    return table(
        words(
            "operator_table",
            cell=found.trial.cell,
            step=words(f"step_{found.summary.mode}"),
            device=found.trial.resolved.get("device_name", ""),
        ),
        headings,
        rows,
        note=words.sentences(*notes),
        is_sortable=True,
        num_shown=TOP,
        is_code=True,
    )


def phase_section(material: Material, words: Words) -> Section | None:
    """Where the time and the memory of a step go; None where no cost was measured."""
    blocks: list[Block] = []
    for mode in MODES:
        bars = phase_bars(material, mode)
        if bars is None:
            continue
        blocks.append(bar_figure(bars, "phases", words("milliseconds"), words, words.phase))
        blocks.append(phase_table(material, mode, words))
    for mode in MODES:
        bars = memory_bars(material, mode)
        if bars is not None:
            blocks.append(bar_figure(bars, "memory", "MiB", words, words.memory))
    if not blocks:
        return None
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


def plain(name: str) -> str:
    """A name as it is."""
    return name


def bar_figure(bars: Bars, kind: str, unit: str, words: Words, name: "Naming") -> Figure:
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
        found = [
            one
            for one in material.findings
            if one.kind == "scaling" and one.subject == f"{mode}/step_ms"
        ]
        blocks.append(points(found, words))
    if not blocks:
        return None
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
            blocks.append(cold_table(cold[1], mode, cold[0], words))
    if not blocks:
        return None
    return Section("cold", words("cold"), (Paragraph(words("cold_intro")), *blocks))


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
