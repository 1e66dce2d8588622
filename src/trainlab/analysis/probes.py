"""The values of the probes of a run, and their curves over seeds with intervals."""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np
from scipy import special

from trainlab.analysis import charts
from trainlab.analysis.charts import Spec
from trainlab.analysis.document import Block, Figure, Paragraph, Section, Table
from trainlab.analysis.evidence import ProbedTrial
from trainlab.analysis.finding import Finding, Kind, RunData
from trainlab.analysis.learning import thinned
from trainlab.analysis.tables import Field, first_bullets, name, table_of, value, within
from trainlab.record.learning_record import FiredRecord, ProbeRecord
from trainlab.stats.means import Interval, Mean, Ratio, mean_of, ratio_of_logs
from trainlab.words import Words
from trainlab.words.numbers import figure

T = TypeVar("T")
FEWEST_POINTS = 3
"""With fewer points no growth is fitted."""
MOST_ITERATIONS = 200
MOST_PLACES = 100_000
"""Steps of a period over which a mean is taken; of longer ones, so many of them."""


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

    The slope of log norm over log step. A period's norm is the root mean square over its steps, and
    belongs to the step at which a curve of that power has this value: found by iteration, from the
    middle of the period on.
    """
    norms = [(line, norm) for line in lines if 0 < (norm := per_step_norm(line)) < math.inf]
    if len(norms) < FEWEST_POINTS:
        return None

    def log_step(line: ProbeRecord) -> float:
        """Of the step at which `step ** exponent` is its root mean square over the period."""
        if line.num_steps == 1 or not abs(exponent) >= 1e-9:
            return math.log(middle_step(line))
        num_places = min(line.num_steps, MOST_PLACES)
        logs = np.log(np.linspace(line.step - line.num_steps + 1, line.step, num_places))
        mean = special.logsumexp(2 * exponent * logs) - math.log(num_places)
        return float(mean) / (2 * exponent)

    log_norms, exponent = [math.log(norm) for _, norm in norms], math.nan
    for _ in range(MOST_ITERATIONS):
        places = [log_step(line) for line, _ in norms]
        before, exponent = exponent, statistics.linear_regression(places, log_norms).slope
        if abs(exponent - before) < 1e-9:
            break
    return exponent


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
    key = f"update_{found.side}" if found.of_kind is UPDATE_RATIO else found.text
    zeros = [found.fill(words, "zeros_apart")] if found.num_zero else []
    return words.sentences(found.fill(words, key), *zeros)


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


def probe_findings(trials: Sequence[ProbedTrial]) -> Iterator[Finding]:
    """Vanishing and exploding gradients, accumulation, dead units, updates out of proportion."""
    cells: dict[str, list[ProbedTrial]] = {}
    for probed in trials:
        cells.setdefault(probed.trial.cell, []).append(probed)
    for group in cells.values():
        yield from _broken(group)
        if all(probed.trial.settings.get("zero_grad", True) for probed in group):
            yield from _depth(group)
            yield from _growing(group)
        else:
            yield from _accumulation(group)
        yield from _dead(group)
        yield from _updates(group)


def _targets(
    group: Sequence[ProbedTrial],
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
    """Whether it may be compared by size: a weight of a layer, or what flows between layers.

    Not a bias or the scale of a normalisation, which begin at 0 or 1: a bias before batch normalisation
    has no gradient at all. Not a loss, a single number.
    """
    num_dimensions = max((len(shape) for shape in row.shapes), default=0)
    return num_dimensions >= (2 if row.kind == "parameter" else 1)


def _is_dense_weight(row: FiredRecord) -> bool:
    """One that every step reaches as a whole, and that does not begin at zero, as positions may."""
    is_named = row.kind != "parameter" or "weight" in row.layer.rpartition(".")[2]
    return _is_weight(row) and is_named and row.owner not in TABLES


def _ratio_of(
    pairs: Iterable[tuple[ProbeRecord | None, ProbeRecord | None]],
    size: Callable[[ProbeRecord], float] = per_step_norm,
) -> tuple[Ratio | None, int]:
    """The geometric mean over seeds of one size over another, of those that are positive, with its
    interval; and how many are exactly zero, 0 where all are."""
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
    kind: Kind,
    group: Sequence[ProbedTrial],
    key: tuple[str, str],
    over: Mean | Ratio,
    **values: Any,
) -> Finding:
    probe, target = key
    cells = (group[0].trial.cell,)
    return kind(
        subject=target, cells=cells, n=over.n, interval=over.interval, probe=probe, **values
    )


def _broken(group: Sequence[ProbedTrial]) -> Iterator[Finding]:
    for key in _targets(group, GRADIENTS):
        first = [
            next((line.step for line in probed.series(*key) if line.not_finite), None)
            for probed in group
        ]
        if steps := [step for step in first if step is not None]:
            over = Mean(statistics.median(steps), None, None, len(group))
            values = {"num_not_finite": len(steps), "median_step": over.value}
            yield _found(BROKEN, group, key, over, **values)


def _depth(group: Sequence[ProbedTrial]) -> Iterator[Finding]:
    targets = _targets(group, GRADIENTS, _is_dense_weight)
    for probe in dict.fromkeys(probe for probe, _ in targets):
        *earlier, last = [target for of_probe, target in targets if of_probe == probe]
        for target in earlier:
            pairs = ((probed.last(probe, target), probed.last(probe, last)) for probed in group)
            ratio, num_zero = _ratio_of(pairs, per_element)
            kind = _beyond(ratio, VANISHED, EXPLODED, VANISHING, EXPLODING)
            if ratio is not None and kind is not None:
                values = {"ratio": ratio.value, "num_zero": num_zero, "compared_with": last}
                yield _found(kind, group, (probe, target), ratio, **values)


def _growing(group: Sequence[ProbedTrial]) -> Iterator[Finding]:
    for key in _targets(group, GRADIENTS, _is_weight):
        all_series = (probed.series(*key) for probed in group)
        ratio, num_zero = _ratio_of((s[-1], s[0]) for s in all_series if len(s) > 1)
        if ratio is not None and _ends(ratio)[0] > GROWN:
            yield _found(GROWING, group, key, ratio, ratio=ratio.value, num_zero=num_zero)


def _accumulation(group: Sequence[ProbedTrial]) -> Iterator[Finding]:
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


def _dead(group: Sequence[ProbedTrial]) -> Iterator[Finding]:
    rectified = {
        (row.probe, row.target)
        for probed in group
        for row in probed.rows
        if row.type.lower().rstrip("_") in RECTIFIERS
    }
    targets = dict.fromkeys(
        (line.probe, line.target)
        for probed in group
        for line in probed.lines
        if line.reducer == "dead_fraction" and (line.probe, line.target) in rectified
    )
    for key in targets:
        last = [line for probed in group if (line := probed.last(*key))]
        # Of the latest period: a trial that ended early has none of it.
        last = [line for line in last if line.step == max(one.step for one in last)]
        share = mean_of([line.value for line in last if line.value is not None])
        if share is not None and _ends(share)[0] >= MANY_DEAD:
            one = last[0]
            values = {"share": share.value, "every": one.every, "epoch": one.epoch}
            steps = {"first_step": one.step - one.num_steps + 1, "last_step": one.step}
            yield _found(DEAD_UNITS, group, key, share, **values, **steps)


def _updates(group: Sequence[ProbedTrial]) -> Iterator[Finding]:
    weights = {target: probe for probe, target in _targets(group, ("weight",), _is_dense_weight)}
    for probe, target in _targets(group, ("update",), _is_dense_weight):
        if target not in weights:
            continue
        pairs = ((one.last(probe, target), one.last(weights[target], target)) for one in group)
        ratio, num_zero = _ratio_of(pairs)
        side = _beyond(ratio, *HEALTHY, "below", "above")
        if ratio is not None and side is not None:
            values = {"ratio": ratio.value, "num_zero": num_zero, "side": side}
            bounds = {"healthy_low": HEALTHY[0], "healthy_high": HEALTHY[1]}
            yield _found(UPDATE_RATIO, group, (probe, target), ratio, **values, **bounds)


def _beyond(ratio: Ratio | None, low: float, high: float, below: T, above: T) -> T | None:
    """Which of the two it is, where the whole interval lies beyond a bound."""
    if ratio is None:
        return None
    return below if _ends(ratio)[1] < low else above if _ends(ratio)[0] > high else None


# The values as they are drawn: means over seeds, by layer and by period.

MOST_LAYERS = 12
"""Lines of one chart over training; the chart by depth has all layers."""
MOST_DEPTHS = 120
"""Layers of one chart by depth; of a deeper model every second, third, ... one."""
MOST_NAMES = 3
"""Names of parameters (`weight`, `bias`) that stand above each other at their layer; with more, each
parameter has a place of its own."""
PARAMETERS = ("weight", "grad", "update")
"""Quantities of parameters; the others are of layers."""
FIRST, MIDDLE, LAST = "first", "middle", "last"
"""Moments: of the periods that were recorded."""


@dataclass(frozen=True)
class ProbeCurve:
    """One probe at one layer in one cell, over time."""

    cell: str
    probe: str
    target: str
    means: Mapping[int, Mean | None]
    """Over seeds, by the last update of each period; None where no value is finite."""


def probe_curves(trials: Sequence[ProbedTrial]) -> list[ProbeCurve]:
    """Every probe at every layer in every cell, in the order of the records; histograms are no curves."""
    groups: dict[tuple[str, str, str], dict[int, list[float]]] = {}
    for probed in trials:
        for line in probed.lines:
            if line.histogram is None:
                curve = groups.setdefault((probed.trial.cell, line.probe, line.target), {})
                value = math.nan if line.value is None else line.value
                curve.setdefault(line.step, []).append(value)
    return [
        ProbeCurve(*key, {step: mean_of(values) for step, values in sorted(curve.items())})
        for key, curve in groups.items()
    ]


@dataclass(frozen=True)
class ProbedQuantity:
    """What all probes of one quantity, reducer and period recorded."""

    quantity: str
    reducer: str
    every: str
    probes: tuple[str, ...]
    """As they were asked for."""
    targets: tuple[str, ...]
    """Layers with their calls, or parameters, in the order of the forward pass."""
    types: frozenset[str]
    """Of the layers."""
    cells: tuple[str, ...]
    """With values of it."""
    drawn_cells: tuple[str, ...]
    """All that the report draws curves of: each has its colour."""
    curves: Mapping[tuple[str, str], ProbeCurve]
    """By cell and target."""
    is_ordered: bool
    """Whether the order is that of the forward pass; else parameters are in that of their definition."""

    @property
    def has_several_moments(self) -> bool:
        """Whether any cell has values of more than one period."""
        return any(len(steps) > 1 for steps in map(self.steps, self.cells))

    def steps(self, cell: str) -> list[int]:
        """The updates at which periods with finite values of the cell ended."""
        own = (curve for (of_cell, _), curve in self.curves.items() if of_cell == cell)
        return sorted({step for curve in own for step, mean in curve.means.items() if mean})

    def means(self, cell: str, target: str) -> dict[int, Mean]:
        """The periods with finite values; empty where the cell has none there."""
        curve = self.curves.get((cell, target))
        return {step: mean for step, mean in curve.means.items() if mean} if curve else {}

    def drawn_targets(self) -> list[str]:
        """At most MOST_LAYERS, the first and the last among them; of parameters those with the first one's
        name where they are too many."""
        targets: Sequence[str] = self.targets
        if len(targets) > MOST_LAYERS and self.quantity in PARAMETERS:
            name = _name_in_layer(targets[0])
            targets = [one for one in targets if _name_in_layer(one) == name]
        return _evenly(targets, MOST_LAYERS)

    def time_rows(self, cell: str, target: str) -> list[Spec]:
        """A row per period; of many, evenly spaced ones."""
        means = self.means(cell, target)
        line = target if len(self.targets) > 1 else None
        steps = thinned(sorted(map(float, means)))
        return [_row(means[int(step)], cell=cell, x=step, line=line) for step in steps]

    def depth_rows(self) -> list[Spec]:
        """A row per layer, of each cell and moment that are drawn by depth."""
        moments = {FIRST, MIDDLE, LAST} if len(self.cells) == 1 else {FIRST, LAST}
        moments = moments if len(self.cells) <= MOST_DASHED else {LAST}
        drawn = set(_evenly(self.layers, MOST_DEPTHS))
        return [
            _row(mean, cell=cell, moment=moment, step=step, x=layer, name=self._name(target))
            for cell in self.cells
            for moment, step in _moments(self.steps(cell)).items()
            if moment in moments
            for target in self.targets
            if (layer := self._layer(target)) in drawn
            if (mean := self.means(cell, target).get(step)) is not None
        ]

    @property
    def layers(self) -> list[str]:
        """The places of the chart by depth, in order."""
        return list(dict.fromkeys(map(self._layer, self.targets)))

    def _layer(self, target: str) -> str:
        return target.rpartition(".")[0] if self._stacks_names else target

    def _name(self, target: str) -> str | None:
        """Of a parameter, that in its layer."""
        return _name_in_layer(target) if self._stacks_names else None

    @cached_property
    def _stacks_names(self) -> bool:
        """Whether parameters stand above each other at their layer."""
        has_layers = self.quantity in PARAMETERS and all("." in one for one in self.targets)
        return has_layers and len(set(map(_name_in_layer, self.targets))) <= MOST_NAMES

    def most_different(self, number: int) -> list[str]:
        """The first cell and those whose last values differ most from its, so many in all, in order."""
        first, *others = self.cells

        def distance(a: Mean | None, b: Mean | None) -> float:
            """Of magnitudes on a log scale; infinite where one alone is zero or not finite."""
            sizes = [None if mean is None else abs(mean.value) for mean in (a, b)]
            if sizes[0] == sizes[1]:
                return 0.0
            return abs(math.log(sizes[1] / sizes[0])) if sizes[0] and sizes[1] else math.inf

        def difference(cell: str) -> float:
            """The largest over layers, of the last values."""
            pairs = ((self.curves.get((c, t)) for c in (first, cell)) for t in self.targets)
            both = ([curve.means for curve in pair if curve] for pair in pairs)
            ends = ([means[max(means)] for means in pair] for pair in both if len(pair) == 2)
            return max((distance(a, b) for a, b in ends), default=0.0)

        chosen = {first, *sorted(others, key=difference, reverse=True)[: number - 1]}
        return [cell for cell in self.cells if cell in chosen]


def _row(mean: Mean, **place: Any) -> Spec:
    """What a chart knows of one mean."""
    low, high = mean.ends
    return {**place, "y": mean.value, "low": low, "high": high, "n": mean.n}


def probed_quantities(data: RunData) -> list[ProbedQuantity]:
    """In the order of the records."""
    cells, probed = data.drawn_cells, data.evidence.probed
    lines = {line.probe: line for one in probed for line in one.lines}
    rows = {(row.probe, row.target): row for one in probed for row in one.rows}
    groups: dict[tuple[str, str, str], list[ProbeCurve]] = {}
    for curve in probe_curves(probed):
        if curve.cell in cells and any(curve.means.values()):
            line = lines[curve.probe]
            groups.setdefault((line.quantity, line.reducer, line.every), []).append(curve)
    found = []
    for key, curves in groups.items():
        fired = {curve.target: rows.get((curve.probe, curve.target)) for curve in curves}
        number = list(fired).index
        targets = sorted(fired, key=lambda one: row.place if (row := fired[one]) else number(one))
        is_ordered = True
        if key[0] in PARAMETERS:
            targets, is_ordered = _in_forward_order(targets, _called_layers(data))
        # The same layer may be reached by two probes: it has the same values in both.
        once = {(curve.cell, curve.target): curve for curve in reversed(curves)}
        found.append(
            ProbedQuantity(
                *key,
                probes=tuple(dict.fromkeys(curve.probe for curve in curves)),
                targets=tuple(targets),
                types=frozenset(row.type for row in fired.values() if row is not None),
                cells=tuple(cell for cell in cells if any(cell == own for own, _ in once)),
                drawn_cells=cells,
                curves={
                    (cell, target): once[cell, target]
                    for cell in cells
                    for target in targets
                    if (cell, target) in once
                },
                is_ordered=is_ordered,
            )
        )
    return found


def _called_layers(data: RunData) -> list[str]:
    """The names of the calls of a forward pass, in order; empty where none was recorded."""
    for by_seed in data.evidence.learned.values():
        for learned in by_seed.values():
            if (network := learned.read_network()) is not None:
                return [row.name for row in network.rows]
    return []


def _in_forward_order(parameters: Sequence[str], calls: Sequence[str]) -> tuple[list[str], bool]:
    """Parameters by the first call of their layer; one whose layer is not called by that name stays behind
    the one that is defined before it. False where no layer is known."""

    def called(parameter: str) -> int:
        layer = parameter.rpartition(".")[0]
        found = (n for n, c in enumerate(calls) if layer and f"{c}.".startswith(f"{layer}."))
        return next(found, -1)

    own, place, placed = list(map(called, parameters)), -1, []
    for parameter, found in zip(parameters, own, strict=True):
        place = place if found < 0 else found
        placed.append((place, parameter))
    return [parameter for _, parameter in sorted(placed, key=itemgetter(0))], max(own) >= 0


def _moments(steps: Sequence[int]) -> dict[str, int]:
    """The last; with two the first, with three one in the middle, too."""
    last = len(steps) - 1
    places = {FIRST: (0, 2), MIDDLE: (last // 2, 3), LAST: (last, 1)}
    return {moment: steps[n] for moment, (n, fewest) in places.items() if len(steps) >= fewest}


def _name_in_layer(parameter: str) -> str:
    return parameter.rpartition(".")[2]


def _evenly(names: Sequence[str], most: int) -> list[str]:
    """At most so many, evenly spaced, with the first and the last."""
    if len(names) <= most:
        return list(names)
    return [names[round(n * (len(names) - 1) / (most - 1))] for n in range(most)]


HEIGHT = 260
DASHED, SOLID = [5, 4], [1, 0]
SHAPES = ("circle", "square", "triangle-up")


def probe_axis(rows: Sequence[Spec]) -> tuple[Spec, bool]:
    """Logarithmic where the range is wide, zeros apart; and whether those are to be drawn at its lower
    edge: a gradient that is exactly zero must not hide the others."""
    positive = [row for row in rows if row["y"] > 0]
    means = [row["y"] for row in positive]
    has_only_zeros_beside = len(positive) < len(rows) and min(row["y"] for row in rows) == 0
    if has_only_zeros_beside and means and max(means) > charts.WIDE_RANGE * min(means):
        axis = charts.fitted_axis(positive)
        bottom, top = axis["domain"]
        return axis | {"domain": [bottom / 3, top]}, True
    return charts.fitted_axis(rows), False


def _lift_zeros(rows: Sequence[Spec], axis: Spec) -> None:
    """On a logarithmic axis a zero is drawn at the lower edge; `value` is what it is."""
    for row in rows:
        row["value"] = row["y"]
        if axis.get("type") == "log" and row["y"] <= 0:
            row["y"] = axis["domain"][0]


def time_chart(
    rows: Sequence[Spec], field: str, names: Sequence[str], title: str, axis: Spec, words: Words
) -> Spec:
    """A line per layer of one cell, or per cell of one layer: by that field."""
    _lift_zeros(rows, axis)
    charts.add_bands(rows, axis)
    x = charts.quantity("x", words("updates"), scale={"nice": False}, axis={"tickCount": 6})
    y = charts.quantity("y", title, scale=axis)
    hue = charts.colour(field, names, words("cell" if field == "cell" else "layer"))
    hover: charts.Hover = [
        ("cell", words("cell"), None),
        *([("line", words("layer"), None)] if field == "line" else []),
        ("x", words("updates"), ",.2~f"),
        *_value_hover(title, words),
    ]
    return charts.line_chart(rows, x, y, hue, hover)


def depth_chart(
    rows: Sequence[Spec], layers: Sequence[str], cells: Sequence[str], title: str, words: Words
) -> Spec:
    """The layers from left to right in the order of the forward pass. A line per moment of the only cell,
    or per cell; of several cells the first moment is dashed. Lines join parameters of the same name: a bias
    beside its weight would make them zigzag."""
    axis, _ = probe_axis(rows)
    _lift_zeros(rows, axis)
    moments = {row["moment"] for row in rows}
    names = list(dict.fromkeys(row["name"] for row in rows))
    steps = dict.fromkeys(words("probe_update", step=row["step"]) for row in rows)
    has_cells = len({row["cell"] for row in rows}) > 1
    for row in rows:
        row["line"] = row["cell"] if has_cells else words("probe_update", step=row["step"])
        row["moment"] = words(f"moment_{row['moment']}")
    hue = charts.colour(
        "line",
        cells if has_cells else list(steps),
        words("cell" if has_cells else "probe_moments"),
    )
    charts.add_bands(rows, axis)
    drawn = {row["x"] for row in rows}
    x = {
        "field": "x",
        "type": "ordinal",
        "scale": {"domain": [layer for layer in layers if layer in drawn]},
        "title": words("probe_depth_axis"),
        "axis": {"labelAngle": -40, "labelLimit": 110, "labelOverlap": True},
    }
    y = charts.quantity("y", title, scale=axis)
    hover: charts.Hover = [
        ("cell", words("cell"), None),
        ("x", words("layer"), None),
        *([("name", words("probe_parameter"), None)] if len(names) > 1 else []),
        ("step", words("updates"), ",.0f"),
        *_value_hover(title, words),
    ]
    place = {"x": x, "y": y, "color": hue}
    line, dots = dict(place), place | {"tooltip": charts.tooltip(hover)}
    if len(names) > 1:
        line["detail"] = {"field": "name", "type": "nominal"}
        look = {"symbolFillColor": charts.PALETTE[-1], "symbolStrokeWidth": 0}
        dots["shape"] = _legend("name", names, list(SHAPES[: len(names)]), None, look)
    if has_cells and moments == {FIRST, LAST}:
        look = {"symbolType": "stroke", "symbolStrokeColor": charts.PALETTE[-1]}
        told = [words("moment_first"), words("moment_last")]
        line["strokeDash"] = _legend("moment", told, [DASHED, SOLID], words("probe_moments"), look)
    low = {**y, "field": "band_low"}
    bars = {
        "transform": [{"filter": "isValid(datum.band_low)"}],
        "mark": {"type": "rule", "opacity": 0.35, "strokeWidth": 2, "clip": True},
        "encoding": {"x": x, "y": low, "y2": {"field": "band_high"}, "color": hue},
    }
    layers_drawn = [
        {"mark": {"type": "line", "strokeWidth": 2, "clip": True}, "encoding": line},
        {
            "mark": {"type": "point", "filled": True, "size": 40, "opacity": 1, "clip": True},
            "encoding": dots,
        },
    ]
    has_bars = any("band_low" in row for row in rows)
    return charts.chart(rows, [bars, *layers_drawn] if has_bars else layers_drawn, HEIGHT)


def _legend(
    field: str, names: Sequence[str], looks: Sequence[Any], title: str | None, look: Spec
) -> Spec:
    """How the values of a field look, other than by colour."""
    scale = {"domain": list(names), "range": list(looks)}
    legend = {"title": title, "orient": "bottom", **look}
    return {"field": field, "type": "nominal", "scale": scale, "legend": legend}


def _value_hover(title: str, words: Words) -> charts.Hover:
    return [
        ("value", title, ",.4~g"),
        *charts.interval_hover(words, ",.4~g"),
        ("n", words("seeds"), None),
    ]


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
    # Of many quantities fewer settings each, then the first quantities alone.
    groups: list[list[Figure]] = []
    for num_settings in range(MOST_SETTINGS, 0, -1):
        groups = [
            probe_figures(one, words, f"probe-{number}", num_settings)
            for number, one in enumerate(drawn, start=1)
        ]
        if sum(map(len, groups)) <= MOST_FIGURES:
            break
    totals = accumulate(map(len, groups))
    kept = [group for group, total in zip(groups, totals, strict=True) if total <= MOST_FIGURES]
    blocks += [figure for group in kept for figure in group]
    if num_left_out := len(groups) - len(kept):
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

    def last(curve: ProbeCurve) -> Mean:
        means = [mean for mean in curve.means.values() if mean]
        return means[-1]

    fields: list[Field[ProbeCurve]] = [
        name(words("layer"), lambda curve: curve.target),
        name(words("probe_asked"), lambda curve: curve.probe),
        name(words("cell"), lambda curve: curve.cell),
        value(words("value"), lambda curve: last(curve).value),
        value(words("interval"), lambda curve: within(last(curve).interval)),
    ]
    curves = [curve for one in quantities for curve in one.curves.values()]
    return table_of(words("probe_values"), fields, curves, cell=lambda curve: curve.cell)


def _depth_figure(one: ProbedQuantity, words: Words, place: str) -> Figure:
    rows, title = one.depth_rows(), words.probe_title(one.quantity, one.reducer)
    notes = [_meaning(one, words)]
    notes.append(words("probe_order" if one.is_ordered else "probe_order_defined"))
    if one.has_several_moments and len(one.cells) > MOST_DASHED:
        notes.append(words("probe_last_only"))
    if probe_axis(rows)[1]:
        notes.append(words("probe_zeros"))
    # The last values of the first and the last layer, in every cell.
    last = [[r for r in rows if r["cell"] == cell and r["moment"] == LAST] for cell in one.cells]
    ends = [
        words(
            "probe_depth_ends",
            cell=own[0]["cell"],
            first=own[0]["x"],
            first_value=figure(own[0]["y"]),
            last=own[-1]["x"],
            last_value=figure(own[-1]["y"]),
        )
        for own in last
        if own
    ]
    return Figure(
        id=f"{place}-depth",
        caption=words("probe_depth_caption", title=title, probes=_asked(one, words)),
        alt=words("probe_depth_alt", title=title, ends=words.listed(ends)),
        note=words.sentences(*notes),
        spec=depth_chart(rows, one.layers, one.drawn_cells, title, words),
    )


def _time_figures(
    one: ProbedQuantity, words: Words, place: str, num_settings: int
) -> Iterator[Figure]:
    """Of the only layer, a line per setting; of several, a chart for each of the settings that matter most,
    all on the same axis."""
    drawn, title = one.drawn_targets(), words.probe_title(one.quantity, one.reducer)
    has_layers = len(one.targets) > 1
    cells = one.most_different(num_settings) if has_layers else list(one.cells)
    by_cell = {cell: [r for t in drawn for r in one.time_rows(cell, t)] for cell in cells}
    rows = [row for own in by_cell.values() for row in own]
    groups = [own for own in by_cell.values() if own] if has_layers else [rows]
    if not rows:
        return
    axis, lifts_zeros = probe_axis(rows)
    notes = [_meaning(one, words)]
    if has_layers and len(drawn) < len(one.targets):
        notes.append(words("probe_some_layers", some=len(drawn), all=len(one.targets)))
    if has_layers and len(cells) < len(one.cells):
        notes.append(words("probe_some_settings", some=len(cells), all=len(one.cells)))
    notes += [words("probe_zeros")] if lifts_zeros else []
    field, names = ("line", drawn) if has_layers else ("cell", list(one.drawn_cells))
    for number, own in enumerate(groups, start=1):
        cell, told = own[0]["cell"], {"title": title, "probes": _asked(one, words)}
        metric, key = f"{title} ({cell})", "probe_time_caption"
        if not has_layers:
            metric, key = f"{drawn[0]} {one.probes[0]}", "probe_caption"
            told = {"target": drawn[0], "probe": one.probes[0]}
        elif len(one.cells) > 1:
            key = "probe_time_caption_of"
        ends = {row[field]: row["y"] for row in own}
        listed = words.listed(f"{name}: {figure(value)}" for name, value in ends.items())
        yield Figure(
            id=f"{place}-time" if number == 1 else f"{place}-time-{number}",
            caption=words(key, cell=cell, **told),
            alt=words("trend_alt", metric=metric, ends=listed),
            note=words.sentences(*notes),
            spec=time_chart(own, field, names, title, axis, words),
        )


def _meaning(one: ProbedQuantity, words: Words) -> str:
    of_type = next(iter(one.types)) if len(one.types) == 1 else ""
    return words.probe_meaning(one.quantity, one.reducer, one.every, of_type)


def _asked(one: ProbedQuantity, words: Words) -> str:
    more = ["…"] if len(one.probes) > MOST_PROBES else []
    return words.listed([*one.probes[:MOST_PROBES], *more])
