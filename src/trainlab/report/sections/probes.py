"""Probes: what was watched inside the network, as curves over training and in words."""

from collections.abc import Sequence

from trainlab.analyse.probes import ProbeCurve, probe_curves
from trainlab.record.probe import ProbeRecord
from trainlab.report.document import Block, Figure, Paragraph, Section
from trainlab.report.entries import points
from trainlab.report.figures.line_charts import trend_chart
from trainlab.report.figures.trends import Trend, TrendPoint, thinned
from trainlab.report.material import Material
from trainlab.words import Words
from trainlab.words.numbers import figure

KINDS = ("vanishing_gradient", "exploding_gradient", "accumulation", "dead_units", "update_ratio")
MOST_FIGURES = 12
"""Charts of probes; the data files have every value."""
SHOWN = 20


def probe_section(material: Material, words: Words) -> Section | None:
    """None where no trial was probed."""
    order = {cell: number for number, cell in enumerate(material.drawn)}
    known = (one for one in probe_curves(material.evidence.probed) if one.points)
    curves = sorted((one for one in known if one.cell in order), key=lambda one: order[one.cell])
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
    lines = {line.probe: line for one in material.evidence.probed for line in one.lines}
    drawn = [
        one
        for number, group in enumerate(groups.values())
        if (one := _figure(number, group, lines[group[0].probe], material.drawn, words))
    ]
    blocks += drawn[:MOST_FIGURES]
    if len(drawn) > MOST_FIGURES:
        blocks.append(Paragraph(words("probes_left_out", number=len(drawn) - MOST_FIGURES)))
    return Section("probes", words("probes"), tuple(blocks))


def probe_trend(curves: Sequence[ProbeCurve], name: str) -> Trend | None:
    """One probe at one layer, a curve per cell; None where no period has a finite value."""
    found: list[TrendPoint] = []
    for curve in curves:
        at = {float(point.step): point.mean for point in curve.points if point.mean is not None}
        for step in thinned(sorted(at)):
            mean = at[step]
            found.append(TrendPoint(curve.cell, step, mean.value, *mean.ends, mean.n))
    return Trend(name, tuple(found), by_step=False) if found else None


def meaning(line: ProbeRecord, words: Words) -> str:
    """What a value of this probe is, in a sentence; a reducer of the user's own is named."""
    every = f"every_{line.every}"
    period = words(every) if words.knows(every) else words("every_steps", number=line.every)
    if line.quantity == "weight":
        period = words("every_end")
    if line.quantity == "local_grad" and line.reducer in ("sum", "sq_sum"):
        return words.capital(words("meaning_relu", period=period))
    quantity, reducer = words(f"quantity_{line.quantity}"), line.reducer.partition("(")[0]
    if words.knows(f"reducer_{reducer}"):
        reduced = words(f"reducer_{reducer}")
        told = words("meaning", quantity=quantity, reducer=reduced, period=period)
    else:
        told = words("meaning_own", quantity=quantity, name=_bare(reducer), period=period)
    return words.capital(told)


def _bare(reducer: str) -> str:
    """One of the user's own without its file."""
    return reducer.rpartition(":")[2]


def _figure(
    number: int,
    curves: Sequence[ProbeCurve],
    line: ProbeRecord,
    cells: Sequence[str],
    words: Words,
) -> Figure | None:
    found = probe_trend(curves, f"{line.quantity}, {_bare(line.reducer)}")
    if found is None:
        return None
    last = {point.cell: point for point in found.points}
    ends = words("list_comma").join(f"{cell}: {figure(point.mean)}" for cell, point in last.items())
    return Figure(
        id=f"probe-{number + 1}",
        caption=words("probe_caption", target=curves[0].target, probe=line.probe),
        alt=words("trend_alt", metric=f"{curves[0].target} {line.probe}", ends=ends),
        note=meaning(line, words),
        spec=trend_chart(found, cells, words, x_title=words("updates")),
    )
