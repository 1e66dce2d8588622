"""Probes: what was watched inside the network, as curves over training and in words."""

from trainlab.analyse.probes import ProbeCurve, probe_curves
from trainlab.report.curves import trend_chart
from trainlab.report.document import Block, Figure, Paragraph, Section
from trainlab.report.entries import points
from trainlab.report.figures import Trend, TrendPoint, thinned
from trainlab.report.material import MOST_LINES, Material
from trainlab.report.numbers import figure
from trainlab.report.words import Words

KINDS = ("vanishing_gradient", "exploding_gradient", "accumulation", "dead_units", "update_ratio")
MOST_FIGURES = 12
"""Charts of probes; the data files have every value."""
SHOWN = 20


def probe_section(material: Material, words: Words) -> Section | None:
    """None where no trial was probed."""
    curves = [one for one in probe_curves(material.evidence.probed) if one.points]
    told = [one for one in material.findings if one.kind in KINDS]
    if not curves and not told:
        return None
    blocks: list[Block] = [Paragraph(words("probes_intro"))]
    if told:
        blocks.append(points(told[:SHOWN], words))
    if len(told) > SHOWN:
        blocks.append(Paragraph(words("findings_left_out", number=len(told) - SHOWN)))
    groups: dict[tuple[str, str], list[ProbeCurve]] = {}
    for curve in curves:
        groups.setdefault((curve.probe, curve.target), []).append(curve)
    drawn = [
        one
        for number, group in enumerate(groups.values())
        if (one := _figure(number, group, words))
    ]
    blocks += drawn[:MOST_FIGURES]
    if len(drawn) > MOST_FIGURES:
        blocks.append(Paragraph(words("probes_left_out", number=len(drawn) - MOST_FIGURES)))
    return Section("probes", words("probes"), tuple(blocks))


def probe_trend(curves: list[ProbeCurve]) -> Trend | None:
    """One probe at one layer, a curve per cell; None where no period has a finite value."""
    found: list[TrendPoint] = []
    for curve in curves[:MOST_LINES]:
        at = {float(point.step): point.mean for point in curve.points if point.mean is not None}
        for step in thinned(sorted(at)):
            mean = at[step]
            reach = mean.interval
            low, high = (None, None) if reach is None else (reach.low, reach.high)
            found.append(TrendPoint(curve.cell, step, mean.value, low, high, mean.n))
    name = f"{curves[0].target} · {curves[0].probe}"
    return Trend(name, tuple(found), by_step=False) if found else None


def _figure(number: int, curves: list[ProbeCurve], words: Words) -> Figure | None:
    found = probe_trend(curves)
    if found is None:
        return None
    last = {point.cell: point for point in found.points}
    ends = words("list_comma").join(f"{cell}: {figure(point.mean)}" for cell, point in last.items())
    return Figure(
        id=f"probe-{number + 1}",
        caption=words("probe_caption", target=curves[0].target, probe=curves[0].probe),
        alt=words("trend_alt", metric=found.metric, ends=ends),
        note=curves[0].meaning,
        spec=trend_chart(found, list(last), words, x_title=words("updates")),
    )
