"""Inside the network: what the probes saw, as curves over training and in words."""

from collections.abc import Sequence

from trainlab.analyse.probes import ProbeCurve, probe_curves
from trainlab.record.probe import ProbeRecord
from trainlab.report.bullets import first_bullets
from trainlab.report.document import Block, Figure, Paragraph, Section
from trainlab.report.figures.curves import CurvePoint, Curves, thinned
from trainlab.report.figures.line_charts import curve_chart
from trainlab.report.run_data import RunData
from trainlab.words import Words
from trainlab.words.numbers import figure

MOST_FIGURES = 12
"""Charts of probes; the data files have every value."""


def probe_section(data: RunData, words: Words) -> Section | None:
    """None where no trial was probed."""
    order = {cell: number for number, cell in enumerate(data.drawn)}
    known = (one for one in probe_curves(data.evidence.probed) if one.points)
    curves = sorted((one for one in known if one.cell in order), key=lambda one: order[one.cell])
    found = data.of_section("probes")
    if not curves and not found:
        return None
    groups: dict[tuple[str, str], list[ProbeCurve]] = {}
    for curve in curves:
        groups.setdefault((curve.probe, curve.target), []).append(curve)
    lines = {line.probe: line for one in data.evidence.probed for line in one.lines}
    drawn = [
        made
        for number, group in enumerate(groups.values())
        if (made := _figure(number, group, lines[group[0].probe], data.drawn, words))
    ]
    blocks: list[Block] = [Paragraph(words("probes_intro")), *first_bullets(found, words)]
    blocks += drawn[:MOST_FIGURES]
    if len(drawn) > MOST_FIGURES:
        blocks.append(Paragraph(words("probes_left_out", number=len(drawn) - MOST_FIGURES)))
    return Section("probes", words("probes"), tuple(blocks))


def mean_curves(curves: Sequence[ProbeCurve], name: str) -> Curves | None:
    """One probe at one layer, a curve per cell; None where no period has a finite value."""
    points: list[CurvePoint] = []
    for curve in curves:
        at = {float(point.step): point.mean for point in curve.points if point.mean is not None}
        for step in thinned(sorted(at)):
            mean = at[step]
            points.append(CurvePoint(curve.cell, step, mean.value, *mean.ends, mean.n))
    return Curves(name, tuple(points), by_step=False) if points else None


def _figure(
    number: int,
    curves: Sequence[ProbeCurve],
    line: ProbeRecord,
    cells: Sequence[str],
    words: Words,
) -> Figure | None:
    trend = mean_curves(curves, f"{line.quantity}, {line.reducer.rpartition(':')[2]}")
    if trend is None:
        return None
    last = {point.cell: point for point in trend.points}
    ends = words.listed(f"{cell}: {figure(point.mean)}" for cell, point in last.items())
    return Figure(
        id=f"probe-{number + 1}",
        caption=words("probe_caption", target=curves[0].target, probe=line.probe),
        alt=words("trend_alt", metric=f"{curves[0].target} {line.probe}", ends=ends),
        note=words.probe_meaning(line.quantity, line.reducer, line.every),
        spec=curve_chart(trend, cells, words, x_title=words("updates")),
    )
