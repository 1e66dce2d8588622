"""Inside the network: what the probes saw, by depth, over training and in words."""

from collections.abc import Iterator, Sequence
from itertools import accumulate

from trainlab.analysis.document import Block, Column, Entry, Figure, Paragraph, Row, Section, Table
from trainlab.analysis.run_data import RunData
from trainlab.analysis.tables import first_bullets, within
from trainlab.report.figures.curves import curve_rows
from trainlab.report.figures.probe_charts import depth_chart, depth_rows, probe_axis, time_chart
from trainlab.report.figures.probed_quantities import (
    FIRST,
    LAST,
    MIDDLE,
    DepthPoint,
    ProbedQuantity,
    probed_quantities,
)
from trainlab.words import Words
from trainlab.words.numbers import figure

MOST_FIGURES = 12
"""Charts of probes; the data files have every value."""
MOST_SETTINGS = 3
"""Settings of which all layers are drawn over training; the chart by depth has all settings."""
MOST_DASHED = 3
"""Up to so many settings, the chart by depth has the first period as well as the last."""
MOST_PROBES = 2
"""Named in a caption."""


def probe_section(data: RunData, words: Words) -> Section | None:
    """None where no trial was probed."""
    quantities, findings = probed_quantities(data), data.findings_in("probes")
    if not quantities and not findings:
        return None
    blocks: list[Block] = [Paragraph(words("probes_intro")), *first_bullets(findings, words)]
    drawn = [one for one in quantities if len(one.targets) > 1 or one.has_several_moments]
    if single := [one for one in quantities if one not in drawn]:
        blocks.append(_single_values(single, words))
    figures, num_left_out = _bounded(drawn, words)
    blocks += figures
    if num_left_out:
        blocks.append(Paragraph(words("probes_left_out", number=num_left_out)))
    return Section("probes", words("probes"), tuple(blocks))


def _bounded(quantities: Sequence[ProbedQuantity], words: Words) -> tuple[list[Figure], int]:
    """At most MOST_FIGURES: of many quantities fewer settings each, then the first quantities alone; and
    how many quantities that leaves out."""
    for num_settings in range(MOST_SETTINGS, 0, -1):
        groups = [
            probe_figures(one, words, f"probe-{number}", num_settings)
            for number, one in enumerate(quantities, start=1)
        ]
        if sum(map(len, groups)) <= MOST_FIGURES:
            break
    totals = accumulate(map(len, groups))
    kept = [group for group, total in zip(groups, totals, strict=True) if total <= MOST_FIGURES]
    return [figure for group in kept for figure in group], len(groups) - len(kept)


def probe_figures(
    one: ProbedQuantity, words: Words, place: str, num_settings: int = MOST_SETTINGS
) -> list[Figure]:
    """By depth where there are several layers, over training where there are several periods."""
    figures = [_depth_figure(one, words, place)] if len(one.targets) > 1 else []
    if one.has_several_moments and len(one.targets) == 1:
        figures.append(_only_layer(one, words, place))
    elif one.has_several_moments:
        figures += _layers_over_time(one, words, place, num_settings)
    return figures


def _single_values(quantities: Sequence[ProbedQuantity], words: Words) -> Table:
    """What has one layer and one period is a number, not a chart."""
    columns = [Column(words("layer")), Column(words("probe_asked")), Column(words("cell"))]
    columns += [Column(words("value"), is_number=True), Column(words("interval"), is_number=True)]
    rows = []
    for one in quantities:
        for curve in one.curves:
            mean = next(point.mean for point in reversed(curve.points) if point.mean)
            texts = (curve.target, curve.probe, curve.cell)
            number = Entry(figure(mean.value), mean.value)
            rows.append(Row((*map(Entry, texts), number, within(mean.interval)), curve.cell))
    return Table(words("probe_values"), tuple(columns), tuple(rows), num_shown=20)


def _depth_figure(one: ProbedQuantity, words: Words, place: str) -> Figure:
    if len(one.cells) == 1:
        points = one.by_depth((FIRST, MIDDLE, LAST))
    else:
        points = one.by_depth((FIRST, LAST) if len(one.cells) <= MOST_DASHED else (LAST,))
    notes = [_meaning(one, words)]
    notes.append(words("probe_order" if one.is_ordered else "probe_order_defined"))
    if one.has_several_moments and len(one.cells) > MOST_DASHED:
        notes.append(words("probe_last_only"))
    if probe_axis(depth_rows(points))[1]:
        notes.append(words("probe_zeros"))
    title = words.probe_title(one.quantity, one.reducer)
    return Figure(
        id=f"{place}-depth",
        caption=words("probe_depth_caption", title=title, probes=_asked(one, words)),
        alt=words("probe_depth_alt", title=title, ends=words.listed(_depth_ends(points, words))),
        note=words.sentences(*notes),
        spec=depth_chart(points, one.layers(), one.drawn_cells, title, words),
    )


def _depth_ends(points: Sequence[DepthPoint], words: Words) -> Iterator[str]:
    """The last values of the first and the last layer, in every cell."""
    last: dict[str, list[DepthPoint]] = {}
    for point in points:
        if point.moment == LAST:
            last.setdefault(point.cell, []).append(point)
    for cell, own in last.items():
        first, end = own[0], own[-1]
        yield words(
            "probe_depth_ends",
            cell=cell,
            first=first.layer,
            first_value=figure(first.mean),
            last=end.layer,
            last_value=figure(end.mean),
        )


def _layers_over_time(
    one: ProbedQuantity, words: Words, place: str, num_settings: int
) -> list[Figure]:
    """Of the settings that matter most, all on the same axis."""
    title, drawn = words.probe_title(one.quantity, one.reducer), one.drawn_targets()
    cells = one.most_different(num_settings)
    curves = {cell: one.over_time(cell, title) for cell in cells}
    curves = {cell: found for cell, found in curves.items() if found.points}
    if not curves:
        return []
    axis, lifts_zeros = probe_axis([row for own in curves.values() for row in curve_rows(own)])
    notes = [_meaning(one, words)]
    if len(drawn) < len(one.targets):
        notes.append(words("probe_some_layers", some=len(drawn), all=len(one.targets)))
    if len(cells) < len(one.cells):
        notes.append(words("probe_some_settings", some=len(cells), all=len(one.cells)))
    notes += [words("probe_zeros")] if lifts_zeros else []
    return [
        Figure(
            id=f"{place}-time" if number == 1 else f"{place}-time-{number}",
            caption=words(
                "probe_time_caption" if len(one.cells) == 1 else "probe_time_caption_of",
                title=title,
                probes=_asked(one, words),
                cell=cell,
            ),
            alt=words(
                "trend_alt",
                metric=f"{title} ({cell})",
                ends=words.listed(
                    f"{line}: {figure(value)}"
                    for line, value in {p.line: p.mean for p in own.points}.items()
                ),
            ),
            note=words.sentences(*notes),
            spec=time_chart(own, drawn, words, is_by_cell=False, axis=axis),
        )
        for number, (cell, own) in enumerate(curves.items(), start=1)
    ]


def _only_layer(one: ProbedQuantity, words: Words, place: str) -> Figure:
    """One layer: a line per setting."""
    (target,), title = one.targets, words.probe_title(one.quantity, one.reducer)
    curves = one.over_time_by_cell(title)
    last = {point.cell: point.mean for point in curves.points}
    ends = words.listed(f"{cell}: {figure(value)}" for cell, value in last.items())
    notes = [_meaning(one, words)]
    notes += [words("probe_zeros")] if probe_axis(curve_rows(curves))[1] else []
    return Figure(
        id=f"{place}-time",
        caption=words("probe_caption", target=target, probe=one.probes[0]),
        alt=words("trend_alt", metric=f"{target} {one.probes[0]}", ends=ends),
        note=words.sentences(*notes),
        spec=time_chart(curves, one.drawn_cells, words, is_by_cell=True, axis=None),
    )


def _meaning(one: ProbedQuantity, words: Words) -> str:
    of_type = next(iter(one.types)) if len(one.types) == 1 else ""
    return words.probe_meaning(one.quantity, one.reducer, one.every, of_type)


def _asked(one: ProbedQuantity, words: Words) -> str:
    more = ["…"] if len(one.probes) > MOST_PROBES else []
    return words.listed([*one.probes[:MOST_PROBES], *more])
