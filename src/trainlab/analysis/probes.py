"""The values of the probes of a run, and their curves over seeds with intervals."""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trainlab.analysis import charts
from trainlab.analysis.charts import Spec
from trainlab.analysis.document import Block, Figure, Paragraph, Section, Table
from trainlab.analysis.evidence import TrialRecords, grouped
from trainlab.analysis.finding import Finding, Kind, RunData
from trainlab.analysis.learning import thinned
from trainlab.analysis.tables import Field, first_bullets, name, table_of, value, within
from trainlab.record.learning_record import FiredRecord, ProbeRecord
from trainlab.stats import special
from trainlab.stats.contrasts import Floats
from trainlab.stats.means import Interval, Mean, Ratio, mean_of, ratio_of_logs
from trainlab.words import Words
from trainlab.words.numbers import figure

FEWEST_POINTS = 3
"""With fewer points no growth is fitted."""


def per_step_norm(line: ProbeRecord) -> float:
    """The norm of one tensor, root mean square over the period; for reducers sq_sum and norm."""
    if line.value is None:
        return math.nan
    norm = math.sqrt(line.value) if line.reducer == "sq_sum" else line.value
    return norm / math.sqrt(line.fired)


def per_element(line: ProbeRecord) -> float:
    """The root mean square of the elements: comparable between layers of different sizes."""
    return per_step_norm(line) * math.sqrt(line.fired / line.count) if line.count else math.nan


def middle_step(line: ProbeRecord) -> float:
    """The middle of a period, in updates: where its value belongs on a curve."""
    return line.step - (line.num_steps - 1) / 2


def growth_exponent(lines: Sequence[ProbeRecord]) -> float | None:
    """The power of the step that norms grow as; None with fewer than FEWEST_POINTS positive ones.

    By least squares of the logs, where a period's norm is the root mean square over its steps.
    """
    norms = [(line, norm) for line in lines if 0 < (norm := per_step_norm(line)) < math.inf]
    if len(norms) < FEWEST_POINTS:
        return None
    from scipy import optimize

    log_norms = np.log([norm for _, norm in norms])
    log_steps = [np.log(np.arange(o.step - o.num_steps, o.step) + 1.0) for o, _ in norms]

    def misses(found: Floats) -> Floats:
        exponent, level = found
        squares = [special.logsumexp(2 * exponent * own) - math.log(len(own)) for own in log_steps]
        return np.asarray(level + np.array(squares) / 2 - log_norms)

    closely = dict.fromkeys(("ftol", "xtol", "gtol"), 1e-12)
    return float(optimize.least_squares(misses, (0.0, log_norms[0]), **closely).x[0])


GRADIENTS = ("grad_output", "grad_input", "grad")
NORMS = ("sq_sum", "norm")
VANISHED, EXPLODED = 1e-3, 1e3
"""A layer's gradient over that of the last layer, both per element."""
GROWN = 100.0
"""A gradient over what it was in the first period."""
MANY_DEAD = 0.1
"""The smallest share of dead units that is a finding."""
HEALTHY = (1e-4, 1e-2)
"""The norm of an update over that of the weight: outside, learning is slow or unsteady."""
TABLES = ("Embedding", "EmbeddingBag")
"""Layers of whose weights a step reaches a few rows only: per element they are like no other."""
RECTIFIERS = ("relu", "relu6")
"""Functions whose units can die: below zero they give nothing and pass no gradient on."""


def _ratio_text(found: Finding, words: Words) -> str:
    keys = [found.text]
    if found.of_kind is UPDATE_RATIO:
        keys = ["update_below" if found.ratio < found.healthy_low else "update_above"]
    keys += ["zeros_apart"] if found.num_zero else []
    return words.sentences(*(found.fill(words, key) for key in keys))


def _dead_text(found: Finding, words: Words) -> str:
    is_one = found.first_step == found.last_step
    key = "in_epoch" if found.every == "epoch" else "in_update" if is_one else "in_updates"
    return found.fill(words, found.text, period=found.fill(words, key))


# Each is about one layer of one cell, its subject. A ratio is a geometric mean over seeds; seeds in which
# it is zero are counted apart.
VANISHING = Kind(
    "vanishing_gradient", "probes", rank=4, text="gradient_vanishes", statement=_ratio_text
)
EXPLODING = Kind(
    "exploding_gradient", "probes", rank=5, text="gradient_explodes", statement=_ratio_text
)
GROWING = Kind("growing_gradient", "probes", rank=5, text="gradient_grew", statement=_ratio_text)
BROKEN = Kind("broken_gradient", "probes", rank=5, text="gradient_not_finite")
"""A gradient that was not finite, by the end of the median step's period."""
ACCUMULATION = Kind("accumulation", "probes", rank=3, text="gradient_accumulates")
"""How gradients that are never reset grow, from the middle of the first period to that of the last."""
DEAD_UNITS = Kind("dead_units", "probes", rank=6, text="units_dead", statement=_dead_text)
"""A layer many of whose units never fired in the last period."""
UPDATE_RATIO = Kind("update_ratio", "probes", statement=_ratio_text)
"""A weight whose updates are out of proportion to itself, in the last period."""


def probe_findings(trials: Sequence[TrialRecords]) -> Iterator[Finding]:
    """Vanishing and exploding gradients, accumulation, dead units, updates out of proportion."""
    for group in grouped(trials, lambda probed: probed.trial.cell).values():
        yield from _broken(group)
        if all(probed.trial.settings.get("zero_grad", True) for probed in group):
            yield from _depth(group)
            yield from _growing(group)
        else:
            yield from _accumulation(group)
        yield from _dead(group)
        yield from _updates(group)


Group = Sequence[TrialRecords]
"""The trials of one cell."""
Pairs = Iterable[tuple[ProbeRecord | None, ProbeRecord | None]]


def _targets(
    group: Group,
    quantities: Sequence[str],
    is_meant: Callable[[FiredRecord], bool] = lambda row: True,
) -> list[tuple[str, str]]:
    """Every probe that reduces one of these quantities to a norm, with each target, by depth."""
    rows = {(row.probe, row.target): row for probed in group for row in probed.rows}
    targets = dict.fromkeys(
        (line.probe, line.target)
        for probed in group
        for line in probed.lines
        if line.quantity in quantities and line.reducer in NORMS
    )
    meant = [target for target in targets if target not in rows or is_meant(rows[target])]
    return sorted(meant, key=lambda key: (key[0], rows[key].place if key in rows else 0))


def _is_weight(row: FiredRecord) -> bool:
    """Whether it may be compared by size: a weight, or what flows between layers. Not a bias or the scale
    of a normalisation, which may have no gradient at all; not a loss, a single number."""
    num_dimensions = max((len(shape) for shape in row.shapes), default=0)
    return num_dimensions >= (2 if row.kind == "parameter" else 1)


def _is_dense_weight(row: FiredRecord) -> bool:
    """One that every step reaches as a whole, and that does not begin at zero, as positions may."""
    is_named = row.kind != "parameter" or "weight" in row.layer.rpartition(".")[2]
    return _is_weight(row) and is_named and row.owner not in TABLES


def _ratio_of(
    pairs: Pairs, size: Callable[[ProbeRecord], float] = per_step_norm
) -> tuple[Ratio | None, int]:
    """The geometric mean over seeds of those that are positive; and how many are zero, 0 where all are."""
    values = [size(a) / size(b) for a, b in pairs if a is not None and b is not None and b.value]
    finite = [value for value in values if math.isfinite(value)]
    if finite and not any(finite):
        return Ratio(0.0, None, len(finite)), 0
    logs = mean_of([math.log(value) for value in finite if value > 0])
    ratio = None if logs is None else ratio_of_logs(logs.value, logs.interval, logs.n)
    return ratio, finite.count(0.0)


def _ends(estimate: Mean | Ratio) -> tuple[float, float]:
    """What must lie beyond a bound for a finding: the whole interval, or the value without one."""
    interval = estimate.interval or Interval(estimate.value, estimate.value)
    return interval.low, interval.high


def _found(
    kind: Kind, group: Group, key: tuple[str, str], over: Mean | Ratio, **values: Any
) -> Finding:
    shared = {"cells": (group[0].trial.cell,), "n": over.n, "interval": over.interval}
    return kind(subject=key[1], probe=key[0], **shared, **values)


def _beyond(
    kinds: tuple[Kind, Kind],
    bounds: tuple[float, float],
    group: Group,
    key: tuple[str, str],
    pairs: Pairs,
    size: Callable[[ProbeRecord], float] = per_step_norm,
    **values: Any,
) -> Iterator[Finding]:
    """Where the whole interval of the ratio lies below the lower bound or above the upper one."""
    ratio, num_zero = _ratio_of(pairs, size)
    if ratio is not None:
        low, high = _ends(ratio)
        if high < bounds[0] or low > bounds[1]:
            kind, values = kinds[int(low > bounds[1])], {**values, "num_zero": num_zero}
            yield _found(kind, group, key, ratio, ratio=ratio.value, **values)


def _broken(group: Sequence[TrialRecords]) -> Iterator[Finding]:
    for key in _targets(group, GRADIENTS):
        broken = [[line.step for line in one.series(*key) if line.not_finite] for one in group]
        if firsts := [steps[0] for steps in broken if steps]:
            over = Mean(statistics.median(firsts), None, None, len(group))
            values = {"num_not_finite": len(firsts), "median_step": over.value}
            yield _found(BROKEN, group, key, over, **values)


def _depth(group: Sequence[TrialRecords]) -> Iterator[Finding]:
    targets = _targets(group, GRADIENTS, _is_dense_weight)
    kinds, bounds = (VANISHING, EXPLODING), (VANISHED, EXPLODED)
    for probe in dict.fromkeys(probe for probe, _ in targets):
        *earlier, last = [target for of_probe, target in targets if of_probe == probe]
        for target in earlier:
            pairs = ((probed.last(probe, target), probed.last(probe, last)) for probed in group)
            key = (probe, target)
            yield from _beyond(kinds, bounds, group, key, pairs, per_element, compared_with=last)


def _growing(group: Sequence[TrialRecords]) -> Iterator[Finding]:
    for key in _targets(group, GRADIENTS, _is_weight):
        all_series = (probed.series(*key) for probed in group)
        pairs = ((lines[-1], lines[0]) for lines in all_series if len(lines) > 1)
        yield from _beyond((GROWING, GROWING), (0.0, GROWN), group, key, pairs)


def _accumulation(group: Sequence[TrialRecords]) -> Iterator[Finding]:
    for key in _targets(group, ("grad",), _is_weight):
        # A period without any gradient has no place on a curve of powers.
        curves = [[line for line in probed.series(*key) if line.value] for probed in group]
        slopes = map(growth_exponent, curves)
        exponent = mean_of([slope for slope in slopes if slope is not None])
        longer = [lines for lines in curves if len(lines) > 1]
        times, _ = _ratio_of((lines[-1], lines[0]) for lines in longer)
        if exponent is not None and times is not None:
            values = {"exponent": exponent.value, "times": times.value}
            first, last = (middle_step(longer[0][end]) for end in (0, -1))
            yield _found(
                ACCUMULATION, group, key, exponent, **values, first_step=first, last_step=last
            )


def _dead(group: Sequence[TrialRecords]) -> Iterator[Finding]:
    rows = (row for probed in group for row in probed.rows)
    rectified = (row for row in rows if row.type.lower().rstrip("_") in RECTIFIERS)
    for key in dict.fromkeys((row.probe, row.target) for row in rectified):
        ends = (probed.last(*key) for probed in group)
        last = [line for line in ends if line is not None and line.reducer == "dead_fraction"]
        # Of the latest period: a trial that ended early has none of it.
        last = [line for line in last if line.step == max(one.step for one in last)]
        share = mean_of([line.value for line in last if line.value is not None])
        if share is not None and _ends(share)[0] >= MANY_DEAD:
            one = last[0]
            values = {"share": share.value, "every": one.every, "epoch": one.epoch}
            steps = {"first_step": one.step - one.num_steps + 1, "last_step": one.step}
            yield _found(DEAD_UNITS, group, key, share, **values, **steps)


def _updates(group: Sequence[TrialRecords]) -> Iterator[Finding]:
    weights = {target: probe for probe, target in _targets(group, ("weight",), _is_dense_weight)}
    for probe, target in _targets(group, ("update",), _is_dense_weight):
        if target in weights:
            pairs = ((one.last(probe, target), one.last(weights[target], target)) for one in group)
            kinds, key, (low, high) = (UPDATE_RATIO, UPDATE_RATIO), (probe, target), HEALTHY
            values = {"healthy_low": low, "healthy_high": high}
            yield from _beyond(kinds, HEALTHY, group, key, pairs, per_step_norm, **values)


# The values as they are drawn: means over seeds, by layer and by period.

MOST_LAYERS = 12
"""Lines of one chart over training; the chart by depth has all layers."""
MOST_FIGURES, MOST_OPEN = 12, 4
"""Charts of probes; the data files have every value."""
MOST_SETTINGS = 3
"""Settings of which all layers are drawn over training; the chart by depth has all settings."""
MOST_DASHED = 3
"""Up to so many settings, the chart by depth has the first period as well as the last."""
MOST_PROBES = 2
"""Named in a caption."""
PARAMETERS = ("weight", "grad", "update")
"""Quantities of parameters; the others are of layers."""
FIRST, LAST = "first", "last"
"""Moments: of the periods that were recorded."""
DASHED, SOLID = [5, 4], [1, 0]


@dataclass(frozen=True)
class ProbedQuantity:
    """What all probes of one quantity, reducer and period recorded."""

    quantity: str
    reducer: str
    every: str
    means: Mapping[tuple[str, str], Mapping[int, Mean]]
    """Over seeds, by cell and target, and by the last update of each period: those that are finite."""
    probes: tuple[str, ...]
    """As they were asked for."""
    targets: tuple[str, ...]
    """Layers with their calls in forward order, or parameters in the order of their definition."""
    types: frozenset[str]
    """Of the layers."""
    cells: tuple[str, ...]
    """With values of it."""
    drawn_cells: tuple[str, ...]
    """All that the report draws curves of: each has its colour."""

    @property
    def has_several_moments(self) -> bool:
        """Whether any cell has values of more than one period."""
        return any(len(self.steps(cell)) > 1 for cell in self.cells)

    def steps(self, cell: str) -> list[int]:
        """The updates at which periods with finite values of the cell ended."""
        return sorted(
            {step for (own, _), means in self.means.items() if own == cell for step in means}
        )

    def drawn_targets(self) -> list[str]:
        """At most MOST_LAYERS, evenly by depth, the first and the last among them."""
        return thinned(self.targets, MOST_LAYERS)

    def most_different(self, number: int) -> list[str]:
        """The first cell and those whose last values differ most from its, so many in all, in order."""
        first, *others = self.cells

        def difference(cell: str) -> float:
            """The largest over layers, on a log scale; infinite where one alone is zero or not finite."""
            largest = 0.0
            for target in self.targets:
                both = [self.means.get((one, target)) for one in (first, cell)]
                ends = [(max(own), abs(own[max(own)].value)) for own in both if own]
                (last_a, size_a), (last_b, size_b) = ends if len(ends) == 2 else [(0, 0.0)] * 2
                if last_a == last_b and size_a and size_b:
                    largest = max(largest, abs(math.log(size_b / size_a)))
                elif (last_a, size_a) != (last_b, size_b):
                    return math.inf
            return largest

        chosen = {first, *sorted(others, key=difference, reverse=True)[: number - 1]}
        return [cell for cell in self.cells if cell in chosen]


def probed_quantities(data: RunData) -> list[ProbedQuantity]:
    """In the order of the records; histograms are no curves."""
    cells, probed = data.drawn_cells, data.evidence.probed
    rows = {(row.probe, row.target): row for one in probed for row in one.rows}
    lines = [
        (one.trial.cell, line)
        for one in probed
        for line in (one.lines if one.trial.cell in cells else ())
        if line.histogram is None
    ]
    groups = grouped(lines, lambda one: (one[1].quantity, one[1].reducer, one[1].every))
    found = []
    for kind, of_kind in groups.items():
        means: dict[tuple[str, str], dict[int, Mean]] = {}
        fired: dict[str, FiredRecord | None] = {}
        for place, some in grouped(of_kind, lambda one: (one[0], one[1].target)).items():
            # The same layer may be reached by two probes: it has the same values in both.
            probe = some[0][1].probe
            by_step = grouped((o for _, o in some if o.probe == probe), lambda line: line.step)
            values = {
                step: mean_of([math.nan if o.value is None else o.value for o in by_step[step]])
                for step in sorted(by_step)
            }
            if own := {step: mean for step, mean in values.items() if mean}:
                means[place], fired[place[1]] = own, rows.get((probe, place[1]))
        if not means:
            continue
        number = list(fired).index
        targets = sorted(fired, key=lambda one: row.place if (row := fired[one]) else number(one))
        found.append(
            ProbedQuantity(
                *kind,
                means={(c, t): means[c, t] for c in cells for t in targets if (c, t) in means},
                probes=tuple(dict.fromkeys(line.probe for _, line in of_kind)),
                targets=tuple(targets),
                types=frozenset(row.type for row in fired.values() if row is not None),
                cells=tuple(cell for cell in cells if any(cell == own for own, _ in means)),
                drawn_cells=cells,
            )
        )
    return found


def probe_section(data: RunData, words: Words) -> Section | None:
    """None where no trial was probed."""
    quantities, findings = probed_quantities(data), data.findings_in("probes")
    if not quantities and not findings:
        return None
    blocks: list[Block] = [Paragraph(words("probes_intro")), *first_bullets(findings, words)]
    drawn = [one for one in quantities if len(one.targets) > 1 or one.has_several_moments]
    if single := [one for one in quantities if one not in drawn]:
        blocks.append(_single_values(single, words))
    # Of many quantities the first alone.
    groups = [probe_figures(one, words, f"probe-{n}") for n, one in enumerate(drawn, start=1)]
    while sum(map(len, groups)) > MOST_FIGURES:
        groups.pop()
    figures = [figure for group in groups for figure in group]
    blocks += (replace(one, is_folded=n >= MOST_OPEN) for n, one in enumerate(figures))
    if num_left_out := len(drawn) - len(groups):
        blocks.append(Paragraph(words("probes_left_out", number=num_left_out)))
    return Section("probes", words("probes"), tuple(blocks))


def probe_figures(
    one: ProbedQuantity, words: Words, place: str, num_settings: int = MOST_SETTINGS
) -> list[Figure]:
    """By depth where there are several layers, over training where there are several periods."""
    figures = [_depth_figure(one, words, place)] if len(one.targets) > 1 else []
    if one.has_several_moments:
        figures += _time_figures(one, words, place, num_settings)
    return figures


def _single_values(quantities: Sequence[ProbedQuantity], words: Words) -> Table:
    """What has one layer and one period is a number, not a chart."""
    fields: list[Field[tuple[str, str, str, Mean]]] = [
        name(words("layer"), lambda row: row[0]),
        name(words("probe_asked"), lambda row: row[1]),
        name(words("cell"), lambda row: row[2]),
        value(words("value"), lambda row: row[3].value),
        value(words("interval"), lambda row: within(row[3].interval)),
    ]
    rows = [
        (target, one.probes[0], cell, means[max(means)])
        for one in quantities
        for (cell, target), means in one.means.items()
    ]
    return table_of(words("probe_values"), fields, rows, cell=lambda row: row[2])


def _row(mean: Mean, **place: Any) -> Spec:
    """What a chart knows of one mean."""
    low, high = mean.ends
    return {**place, "y": mean.value, "low": low, "high": high, "n": mean.n}


def _fit(rows: Sequence[Spec]) -> tuple[Spec, bool]:
    """The axis of the rows, which get their bands; and whether zeros, which must not hide the others, are
    drawn at its lower edge with `value` as it is."""
    positive = [row for row in rows if row["y"] > 0]
    has_zeros = positive and min(row["y"] for row in rows) == 0
    axis = charts.fitted_axis(positive if has_zeros else rows)
    lifts_zeros = bool(has_zeros) and axis.get("type") == "log"
    if lifts_zeros:
        axis["domain"][0] /= 3
    elif has_zeros:
        axis = charts.fitted_axis(rows)
    for row in rows:
        row["value"] = row["y"]
        row["y"] = max(row["y"], axis["domain"][0]) if lifts_zeros else row["y"]
    charts.add_bands(rows, axis)
    return axis, lifts_zeros


def _depth_figure(one: ProbedQuantity, words: Words, place: str) -> Figure:
    """A line per moment of the only cell, or per cell; of several the first moment is dashed."""
    title = words.probe_title(one.quantity, one.reducer)
    has_cells, of_parameters = len(one.cells) > 1, one.quantity in PARAMETERS
    rows: list[Spec] = []
    told = []
    for cell in one.cells:
        steps = one.steps(cell)
        moments = {LAST: steps[-1]}
        if len(steps) > 1 and len(one.cells) <= MOST_DASHED:
            moments = {FIRST: steps[0], **moments}
        for moment, step in moments.items():
            line = cell if has_cells else words("probe_update", step=step)
            shared = {"cell": cell, "moment": words(f"moment_{moment}"), "step": step, "line": line}
            own = [
                _row(mean, **shared, x=target, name=target.rpartition(".")[2])
                for target in one.targets
                if (mean := one.means.get((cell, target), {}).get(step))
            ]
            rows += own
            if moment == LAST and own:
                ends_told = {"first": own[0]["x"], "first_value": figure(own[0]["y"])}
                ends_told |= {"last": own[-1]["x"], "last_value": figure(own[-1]["y"])}
                told.append(words("probe_depth_ends", cell=cell, **ends_told))
    axis, lifts_zeros = _fit(rows)
    notes = [_meaning(one, words)]
    notes.append(words("probe_order_defined" if of_parameters else "probe_order"))
    if one.has_several_moments and len(one.cells) > MOST_DASHED:
        notes.append(words("probe_last_only"))
    notes += [words("probe_zeros")] if lifts_zeros else []
    return Figure(
        id=f"{place}-depth",
        caption=words("probe_depth_caption", title=title, probes=_asked(one, words)),
        alt=words("probe_depth_alt", title=title, ends=words.listed(told)),
        note=words.sentences(*notes),
        spec=_depth_chart(one, rows, axis, words),
    )


def _depth_chart(one: ProbedQuantity, rows: Sequence[Spec], axis: Spec, words: Words) -> Spec:
    """Lines join parameters of the same name: a bias beside its weight would make them zigzag."""
    has_cells, title = len(one.cells) > 1, words.probe_title(one.quantity, one.reducer)
    drawn = {row["x"] for row in rows}
    lines = one.drawn_cells if has_cells else list(dict.fromkeys(row["line"] for row in rows))
    x = {
        "field": "x",
        "type": "ordinal",
        "scale": {"domain": [target for target in one.targets if target in drawn]},
        "title": words("probe_depth_axis"),
        "axis": {"labelAngle": -40, "labelLimit": 110, "labelOverlap": True},
    }
    title_of, palette = ("cell", charts.PALETTE) if has_cells else ("probe_moments", charts.OTHERS)
    hue = charts.colour("line", lines, words(title_of), palette)
    y = charts.quantity("y", charts.axis_title(title, axis, words), scale=axis)
    place = {"x": x, "y": y, "color": hue}
    hover: charts.Hover = [
        ("cell", words("cell"), None),
        ("x", words("layer"), None),
        ("step", words("updates"), ",.0f"),
        *_value_hover(title, words),
    ]
    line, dots = dict(place), place | {"tooltip": charts.tooltip(hover)}
    if one.quantity in PARAMETERS:
        line["detail"] = {"field": "name", "type": "nominal"}
    told = [words("moment_first"), words("moment_last")]
    if has_cells and {row["moment"] for row in rows} == set(told):
        line["strokeDash"] = {
            "field": "moment",
            "type": "nominal",
            "scale": {"domain": told, "range": [DASHED, SOLID]},
            "legend": {
                "title": words("probe_moments"),
                "orient": "bottom",
                "symbolType": "stroke",
                "symbolStrokeColor": charts.GREY,
            },
        }
    marks = [
        *charts.band("rule", rows, place, opacity=0.35, strokeWidth=2),
        charts.layer("line", line, strokeWidth=2, clip=True),
        charts.dots(dots, size=40, clip=True),
    ]
    return charts.chart(rows, marks, 260)


def _value_hover(title: str, words: Words) -> charts.Hover:
    return [
        ("value", title, ",.4~g"),
        *charts.interval_hover(words, ",.4~g"),
        ("n", words("seeds"), None),
    ]


def _time_figures(
    one: ProbedQuantity, words: Words, place: str, num_settings: int
) -> Iterator[Figure]:
    """Of the only layer, a line per setting; of several, a chart for the most different settings."""
    drawn, has_layers = one.drawn_targets(), len(one.targets) > 1
    cells = one.most_different(num_settings) if has_layers else list(one.cells)
    rows = [
        _row(means[int(step)], cell=cell, x=step, line=target if has_layers else None)
        for cell in cells
        for target in drawn
        if (means := one.means.get((cell, target)))
        for step in thinned(sorted(map(float, means)))
    ]
    if not rows:
        return
    axis, lifts_zeros = _fit(rows)
    title, asked = words.probe_title(one.quantity, one.reducer), _asked(one, words)
    notes = [_meaning(one, words)]
    if has_layers and len(drawn) < len(one.targets):
        notes.append(words("probe_some_layers", some=len(drawn), all=len(one.targets)))
    if has_layers and len(cells) < len(one.cells):
        notes.append(words("probe_some_settings", some=len(cells), all=len(one.cells)))
    notes += [words("probe_zeros")] if lifts_zeros else []
    field, names = ("line", drawn) if has_layers else ("cell", list(one.drawn_cells))
    x = charts.quantity("x", words("updates"), scale={"nice": False}, axis={"tickCount": 6})
    y = charts.quantity("y", charts.axis_title(title, axis, words), scale=axis)
    title_of, palette = ("layer", charts.OTHERS) if has_layers else ("cell", charts.PALETTE)
    hue = charts.colour(field, names, words(title_of), palette)
    hover: charts.Hover = [
        ("cell", words("cell"), None),
        *([("line", words("layer"), None)] if has_layers else []),
        ("x", words("updates"), ",.2~f"),
        *_value_hover(title, words),
    ]
    by_cell = [[row for row in rows if row["cell"] == cell] for cell in cells]
    groups = [own for own in by_cell if own] if has_layers else [rows]
    key = "probe_time_caption_of" if len(one.cells) > 1 else "probe_time_caption"
    for number, own in enumerate(groups, start=1):
        cell = own[0]["cell"]
        caption, metric = words(key, cell=cell, title=title, probes=asked), f"{title} ({cell})"
        if not has_layers:
            caption = words("probe_caption", target=drawn[0], probe=one.probes[0])
            metric = f"{drawn[0]} {one.probes[0]}"
        ends = {row[field]: row["value"] for row in own}
        listed = words.listed(f"{name}: {figure(value)}" for name, value in ends.items())
        yield Figure(
            id=f"{place}-time" if number == 1 else f"{place}-time-{number}",
            caption=caption,
            alt=words("trend_alt", metric=metric, ends=listed),
            note=words.sentences(*notes),
            spec=charts.line_chart(own, x, y, hue, hover),
        )


def _meaning(one: ProbedQuantity, words: Words) -> str:
    of_type = "".join(one.types) if len(one.types) == 1 else ""
    return words.probe_meaning(one.quantity, one.reducer, one.every, of_type)


def _asked(one: ProbedQuantity, words: Words) -> str:
    more = ["…"] if len(one.probes) > MOST_PROBES else []
    return words.listed([*one.probes[:MOST_PROBES], *more])
