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
    cells, findings = data.drawn_cells, data.findings_in("probes")
    drawn = [c for c in probe_curves(data.evidence.probed) if c.points and c.cell in cells]
    if not drawn and not findings:
        return None
    groups: dict[tuple[str, str], list[ProbeCurve]] = {}
    for curve in sorted(drawn, key=lambda curve: cells.index(curve.cell)):
        groups.setdefault((curve.probe, curve.target), []).append(curve)
    lines = {line.probe: line for probed in data.evidence.probed for line in probed.lines}
    types = {(r.probe, r.target): r.type for probed in data.evidence.probed for r in probed.rows}
    figures = [
        chart
        for number, (key, curves) in enumerate(groups.items(), start=1)
        if (chart := _figure(number, curves, lines[key[0]], types.get(key, ""), cells, words))
    ]
    blocks: list[Block] = [Paragraph(words("probes_intro")), *first_bullets(findings, words)]
    blocks += figures[:MOST_FIGURES]
    if (num_left_out := len(figures) - MOST_FIGURES) > 0:
        blocks.append(Paragraph(words("probes_left_out", number=num_left_out)))
    return Section("probes", words("probes"), tuple(blocks))


def mean_curves(curves: Sequence[ProbeCurve], name: str) -> Curves | None:
    """One probe at one layer, a curve per cell; None where no period has a finite value."""
    points: list[CurvePoint] = []
    for curve in curves:
        means = {float(point.step): point.mean for point in curve.points if point.mean is not None}
        for step in thinned(sorted(means)):
            mean = means[step]
            points.append(CurvePoint(curve.cell, step, mean.value, *mean.ends, mean.n))
    return Curves(name, tuple(points), by_step=False) if points else None


def _figure(
    number: int,
    curves: Sequence[ProbeCurve],
    line: ProbeRecord,
    of_type: str,
    cells: Sequence[str],
    words: Words,
) -> Figure | None:
    averaged = mean_curves(curves, words.probe_title(line.quantity, line.reducer))
    if averaged is None:
        return None
    last = {point.cell: point for point in averaged.points}
    ends = words.listed(f"{cell}: {figure(point.mean)}" for cell, point in last.items())
    return Figure(
        id=f"probe-{number}",
        caption=words("probe_caption", target=curves[0].target, probe=line.probe),
        alt=words("trend_alt", metric=f"{curves[0].target} {line.probe}", ends=ends),
        note=words.probe_meaning(line.quantity, line.reducer, line.every, of_type),
        spec=curve_chart(averaged, cells, words, x_title=words("updates")),
    )
