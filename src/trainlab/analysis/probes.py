"""The values of the probes of a run, and their curves over seeds with intervals."""

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, TypeVar

import numpy as np
from scipy import special

from trainlab.analysis.charts import (
    PALETTE,
    WIDE_RANGE,
    Spec,
    add_bands,
    band_and_line,
    chart,
    colour,
    fitted_axis,
    point_mark,
    quantity,
    tooltip,
)
from trainlab.analysis.document import Block, Column, Entry, Figure, Paragraph, Row, Section, Table
from trainlab.analysis.evidence import ProbedTrial
from trainlab.analysis.finding import Finding, Kind, RunData
from trainlab.analysis.learning import CurvePoint, Curves, curve_rows, thinned
from trainlab.analysis.tables import first_bullets, within
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


@dataclass(frozen=True)
class ProbePoint:
    """One period: the value of every seed, and their mean."""

    epoch: int
    step: int
    by_seed: Mapping[int, float]
    """NaN where the value was not finite."""
    mean: Mean | None


@dataclass(frozen=True)
class ProbeCurve:
    """One probe at one layer in one cell, over time."""

    cell: str
    probe: str
    target: str
    points: tuple[ProbePoint, ...]

    def falling(self) -> tuple[int, int]:
        """In how many seeds the value falls from every period to the next, and of how many."""
        seeds = sorted({seed for point in self.points for seed in point.by_seed})
        curves = [[p.by_seed[s] for p in self.points if s in p.by_seed] for s in seeds]
        falls = [all(b < a for a, b in pairwise(curve)) for curve in curves if len(curve) > 1]
        return sum(falls), len(falls)


def probe_curves(trials: Sequence[ProbedTrial]) -> list[ProbeCurve]:
    """Every probe at every layer in every cell, in the order of the records."""
    groups: dict[tuple[str, str, str], dict[tuple[int, int], dict[int, float]]] = {}
    for probed in trials:
        for line in probed.lines:
            if line.histogram is None:
                points = groups.setdefault((probed.trial.cell, line.probe, line.target), {})
                value = math.nan if line.value is None else line.value
                points.setdefault((line.step, line.epoch), {})[probed.trial.seed] = value
    return [
        ProbeCurve(
            *key,
            points=tuple(
                ProbePoint(epoch, step, by_seed, mean_of(list(by_seed.values())))
                for (step, epoch), by_seed in sorted(points.items())
            ),
        )
        for key, points in groups.items()
    ]


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
    norms = [(line, norm) for line in lines if (norm := per_step_norm(line)) > 0]
    norms = [(line, norm) for line, norm in norms if math.isfinite(norm)]
    if len(norms) < FEWEST_POINTS:
        return None
    log_norms = [math.log(norm) for _, norm in norms]
    places = [math.log(middle_step(line)) for line, _ in norms]
    exponent = math.nan
    for _ in range(MOST_ITERATIONS):
        before, exponent = exponent, statistics.linear_regression(places, log_norms).slope
        if abs(exponent - before) < 1e-9:
            break
        places = [_log_step(line, exponent) for line, _ in norms]
    return exponent


def _log_step(line: ProbeRecord, exponent: float) -> float:
    """The log of the step at which `step ** exponent` is its root mean square over the period."""
    if line.num_steps == 1 or abs(exponent) < 1e-9:
        return math.log(middle_step(line))
    num_places = min(line.num_steps, MOST_PLACES)
    logs = np.log(np.linspace(line.step - line.num_steps + 1, line.step, num_places))
    mean = special.logsumexp(2 * exponent * logs) - math.log(num_places)
    return float(mean) / (2 * exponent)


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
    for cell, group in cells.items():
        yield from _broken(cell, group)
        if all(probed.trial.settings.get("zero_grad", True) for probed in group):
            yield from _depth(cell, group)
            yield from _growing(cell, group)
        else:
            yield from _accumulation(cell, group)
        yield from _dead(cell, group)
        yield from _updates(cell, group)


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


def _geometric_mean(values: Sequence[float]) -> tuple[Ratio | None, int]:
    """Of the positive values with its interval, and how many are exactly zero; 0 where all are."""
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
    kind: Kind, cell: str, key: tuple[str, str], estimate: Mean | Ratio, **values: Any
) -> Finding:
    probe, target = key
    return kind(
        subject=target,
        cells=(cell,),
        n=estimate.n,
        interval=estimate.interval,
        probe=probe,
        **values,
    )


def _broken(cell: str, group: Sequence[ProbedTrial]) -> Iterator[Finding]:
    for key in _targets(group, GRADIENTS):
        first = [
            next((line.step for line in probed.series(*key) if line.not_finite), None)
            for probed in group
        ]
        if steps := [step for step in first if step is not None]:
            median = statistics.median(steps)
            over = Mean(median, None, None, len(group))
            yield _found(BROKEN, cell, key, over, num_not_finite=len(steps), median_step=median)


def _depth(cell: str, group: Sequence[ProbedTrial]) -> Iterator[Finding]:
    targets = _targets(group, GRADIENTS, _is_dense_weight)
    for probe in dict.fromkeys(probe for probe, _ in targets):
        *earlier, last = [target for of_probe, target in targets if of_probe == probe]
        for target in earlier:
            pairs = [(probed.last(probe, target), probed.last(probe, last)) for probed in group]
            ratios = [per_element(a) / per_element(b) for a, b in pairs if a and b and b.value]
            ratio, num_zero = _geometric_mean(ratios)
            kind = _beyond(ratio, VANISHED, EXPLODED, VANISHING, EXPLODING)
            if ratio is not None and kind is not None:
                values = {"ratio": ratio.value, "num_zero": num_zero, "compared_with": last}
                yield _found(kind, cell, (probe, target), ratio, **values)


def _growing(cell: str, group: Sequence[ProbedTrial]) -> Iterator[Finding]:
    for key in _targets(group, GRADIENTS, _is_weight):
        all_series = [probed.series(*key) for probed in group]
        ends = [(lines[0], lines[-1]) for lines in all_series if len(lines) > 1]
        ratios = [per_step_norm(last) / per_step_norm(first) for first, last in ends if first.value]
        ratio, num_zero = _geometric_mean(ratios)
        if ratio is not None and _ends(ratio)[0] > GROWN:
            yield _found(GROWING, cell, key, ratio, ratio=ratio.value, num_zero=num_zero)


def _accumulation(cell: str, group: Sequence[ProbedTrial]) -> Iterator[Finding]:
    for key in _targets(group, ("grad",), _is_weight):
        # A period without any gradient has no place on a curve of powers.
        curves = [[x for x in probed.series(*key) if x.value] for probed in group]
        slopes = (growth_exponent(lines) for lines in curves)
        exponent = mean_of([slope for slope in slopes if slope is not None])
        longer = [lines for lines in curves if len(lines) > 1]
        times, _ = _geometric_mean([per_step_norm(x[-1]) / per_step_norm(x[0]) for x in longer])
        if exponent is not None and times is not None:
            yield _found(
                ACCUMULATION,
                cell,
                key,
                exponent,
                exponent=exponent.value,
                times=times.value,
                first_step=middle_step(longer[0][0]),
                last_step=middle_step(longer[0][-1]),
            )


def _dead(cell: str, group: Sequence[ProbedTrial]) -> Iterator[Finding]:
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
            yield _found(
                DEAD_UNITS,
                cell,
                key,
                share,
                share=share.value,
                every=last[0].every,
                epoch=last[0].epoch,
                first_step=last[0].step - last[0].num_steps + 1,
                last_step=last[0].step,
            )


def _updates(cell: str, group: Sequence[ProbedTrial]) -> Iterator[Finding]:
    weights = {target: probe for probe, target in _targets(group, ("weight",), _is_dense_weight)}
    for probe, target in _targets(group, ("update",), _is_dense_weight):
        if target not in weights:
            continue
        pairs = [(one.last(probe, target), one.last(weights[target], target)) for one in group]
        ratios = [per_step_norm(a) / per_step_norm(b) for a, b in pairs if a and b and b.value]
        ratio, num_zero = _geometric_mean(ratios)
        side = _beyond(ratio, *HEALTHY, "below", "above")
        if ratio is not None and side is not None:
            yield _found(
                UPDATE_RATIO,
                cell,
                (probe, target),
                ratio,
                ratio=ratio.value,
                num_zero=num_zero,
                side=side,
                healthy_low=HEALTHY[0],
                healthy_high=HEALTHY[1],
            )


def _beyond(ratio: Ratio | None, low: float, high: float, below: T, above: T) -> T | None:
    """Which of the two it is, where the whole interval lies beyond a bound."""
    if ratio is None:
        return None
    return below if _ends(ratio)[1] < low else above if _ends(ratio)[0] > high else None


MOST_LAYERS = 12
"""Lines of one chart over training; the chart by depth has all layers."""
MOST_DEPTHS = 120
"""Layers of one chart by depth; of a deeper model every second, third, ... one."""
MOST_NAMES = 3
"""Names of parameters (`weight`, `bias`) that stand above each other at their layer; with more, each
parameter has a place of its own."""

Moment = str
FIRST, MIDDLE, LAST = "first", "middle", "last"
"""Of the periods that were recorded."""


@dataclass(frozen=True)
class DepthPoint:
    """The mean over seeds at one layer and one moment, and its 95% interval."""

    cell: str
    moment: Moment
    step: int
    """The last update of the period."""
    layer: str
    name: str
    """Of a parameter, that in its layer (`weight`); else empty."""
    mean: float
    low: float | None
    high: float | None
    n: int


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
    curves: tuple[ProbeCurve, ...]
    """Of each cell and target."""
    is_ordered: bool
    """Whether the order is that of the forward pass; else parameters are in that of their definition."""

    @property
    def is_of_parameters(self) -> bool:
        """Whether the targets are parameters."""
        return self.quantity in ("weight", "grad", "update")

    @property
    def has_several_moments(self) -> bool:
        """Whether any cell has values of more than one period."""
        return any(len(steps) > 1 for steps in map(self.steps, self.cells))

    def of(self, cell: str) -> list[ProbeCurve]:
        """The curves of one cell, by depth."""
        return [curve for curve in self.curves if curve.cell == cell]

    def steps(self, cell: str) -> list[int]:
        """The updates at which periods with finite values of the cell ended."""
        return sorted({p.step for curve in self.of(cell) for p in curve.points if p.mean})

    def drawn_targets(self) -> tuple[str, ...]:
        """At most MOST_LAYERS, the first and the last among them; of parameters those with the first one's
        name where they are too many."""
        targets = self.targets
        if len(targets) > MOST_LAYERS and self.is_of_parameters:
            name = _name_in_layer(targets[0])
            targets = tuple(one for one in targets if _name_in_layer(one) == name)
        return tuple(_evenly(targets, MOST_LAYERS))

    def over_time(self, cell: str, title: str) -> Curves:
        """A curve per layer."""
        drawn = self.drawn_targets()
        curves = [curve for curve in self.of(cell) if curve.target in drawn]
        return _curves(title, ((curve, curve.target) for curve in curves))

    def over_time_by_cell(self, title: str) -> Curves:
        """A curve per cell: of the only layer."""
        return _curves(title, ((curve, "") for curve in self.curves))

    def by_depth(self, moments: Sequence[Moment]) -> list[DepthPoint]:
        """The values of these moments of each cell; the middle one where there are at least three."""
        stacked = self.stacks_names
        drawn = set(_evenly(list(dict.fromkeys(self._place(t) for t in self.targets)), MOST_DEPTHS))
        points = []
        for cell in self.cells:
            for moment, step in _moments(self.steps(cell)).items():
                for curve in self.of(cell):
                    layer = self._place(curve.target)
                    point = next((p for p in curve.points if p.step == step), None)
                    if moment in moments and layer in drawn and point and point.mean:
                        name = _name_in_layer(curve.target) if stacked else ""
                        mean = point.mean
                        points.append(
                            DepthPoint(
                                cell, moment, step, layer, name, mean.value, *mean.ends, mean.n
                            )
                        )
        return points

    @property
    def stacks_names(self) -> bool:
        """Whether parameters stand above each other at their layer."""
        names = {_name_in_layer(target) for target in self.targets}
        has_layers = all("." in target for target in self.targets)
        return self.is_of_parameters and has_layers and 1 <= len(names) <= MOST_NAMES

    def layers(self) -> list[str]:
        """The places of the chart by depth, in order."""
        return list(dict.fromkeys(self._place(target) for target in self.targets))

    def _place(self, target: str) -> str:
        return target.rpartition(".")[0] if self.stacks_names else target

    def most_different(self, number: int) -> tuple[str, ...]:
        """The first cell and those whose last values differ most from its, so many in all, in order."""
        first, *others = self.cells
        by_difference = sorted(others, key=lambda cell: -self._difference(first, cell))
        chosen = {first, *by_difference[: number - 1]}
        return tuple(cell for cell in self.cells if cell in chosen)

    def _difference(self, first: str, other: str) -> float:
        """The largest over layers: a ratio of magnitudes, on a log scale; infinite where one of them is
        zero or not finite."""
        sides = [{curve.target: curve.points[-1] for curve in self.of(c)} for c in (first, other)]
        found = [
            _log_ratio(sides[0][target], sides[1][target])
            for target in sides[0].keys() & sides[1].keys()
        ]
        return max(found, default=0.0)


def probed_quantities(data: RunData) -> list[ProbedQuantity]:
    """In the order of the records; histograms are no curves."""
    cells = data.drawn_cells
    probed = data.evidence.probed
    lines = {line.probe: line for one in probed for line in one.lines}
    rows = {(row.probe, row.target): row for one in probed for row in one.rows}
    groups: dict[tuple[str, str, str], list[ProbeCurve]] = {}
    for curve in probe_curves(probed):
        if curve.cell in cells and any(point.mean for point in curve.points):
            line = lines[curve.probe]
            groups.setdefault((line.quantity, line.reducer, line.every), []).append(curve)
    calls = _called_layers(data)
    return [_quantity(key, curves, rows, cells, calls) for key, curves in groups.items()]


def _quantity(
    key: tuple[str, str, str],
    curves: Sequence[ProbeCurve],
    rows: dict[tuple[str, str], FiredRecord],
    cells: Sequence[str],
    calls: Sequence[str],
) -> ProbedQuantity:
    # The same layer may be reached by two probes: it has the same values in both.
    once = {(curve.cell, curve.target): curve for curve in reversed(curves)}
    targets = {curve.target: rows.get((curve.probe, curve.target)) for curve in curves}
    places = {
        target: (number if row is None else row.place, number)
        for number, (target, row) in enumerate(targets.items())
    }
    ordered = sorted(targets, key=lambda target: places[target])
    is_ordered = True
    if key[0] in ("weight", "grad", "update"):
        ordered, is_ordered = _in_forward_order(ordered, calls)
    return ProbedQuantity(
        *key,
        probes=tuple(dict.fromkeys(curve.probe for curve in curves)),
        targets=tuple(ordered),
        types=frozenset(row.type for row in targets.values() if row is not None),
        cells=tuple(cell for cell in cells if any(c.cell == cell for c in curves)),
        drawn_cells=tuple(cells),
        curves=tuple(
            once[cell, target] for cell in cells for target in ordered if (cell, target) in once
        ),
        is_ordered=is_ordered,
    )


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

    own = [called(parameter) for parameter in parameters]
    # Of one that is not found, the place of the last that was.
    places = list(accumulate(own, _known_or_before))
    ordered = sorted(range(len(parameters)), key=lambda number: (places[number], number))
    return [parameters[number] for number in ordered], any(place >= 0 for place in own)


def _known_or_before(before: int, place: int) -> int:
    return before if place < 0 else place


def _curves(title: str, curves: Iterator[tuple[ProbeCurve, str]]) -> Curves:
    points = []
    for curve, line in curves:
        means = {float(point.step): point.mean for point in curve.points if point.mean is not None}
        for step in thinned(sorted(means)):
            mean = means[step]
            points.append(CurvePoint(curve.cell, step, mean.value, *mean.ends, mean.n, line))
    return Curves(title, tuple(points), by_step=False)


def _moments(steps: Sequence[int]) -> dict[Moment, int]:
    if not steps:
        return {}
    if len(steps) == 1:
        return {LAST: steps[0]}
    middle = {MIDDLE: steps[(len(steps) - 1) // 2]} if len(steps) > 2 else {}
    return {FIRST: steps[0], **middle, LAST: steps[-1]}


def _log_ratio(first: ProbePoint, other: ProbePoint) -> float:
    if first.mean is None or other.mean is None:
        return 0.0 if first.mean is other.mean else math.inf
    a, b = abs(first.mean.value), abs(other.mean.value)
    if a == b:
        return 0.0
    return abs(math.log(b / a)) if min(a, b) > 0 else math.inf


def _name_in_layer(parameter: str) -> str:
    return parameter.rpartition(".")[2]


def _evenly(names: Sequence[str], most: int) -> list[str]:
    """At most so many, evenly spaced, with the first and the last."""
    if len(names) <= most:
        return list(names)
    return [names[round(n * (len(names) - 1) / (most - 1))] for n in range(most)]


VALUE = ",.4~g"
HEIGHT = 260
DASHED, SOLID = [5, 4], [1, 0]
MOMENTS = {FIRST: "probe_first", MIDDLE: "probe_middle", LAST: "probe_last"}
"""What each is called, by the key of its words."""
SHAPES = ("circle", "square", "triangle-up")


def probe_axis(rows: Sequence[Spec]) -> tuple[Spec, bool]:
    """Logarithmic where the range is wide, zeros apart; and whether those are to be drawn at its lower
    edge: a gradient that is exactly zero must not hide the others."""
    positive = [row for row in rows if row["y"] > 0]
    means = [row["y"] for row in positive]
    has_only_zeros_beside = len(positive) < len(rows) and min(row["y"] for row in rows) == 0
    if has_only_zeros_beside and means and max(means) > WIDE_RANGE * min(means):
        axis = fitted_axis(positive)
        bottom, top = axis["domain"]
        return axis | {"domain": [bottom / 3, top]}, True
    return fitted_axis(rows), False


def time_chart(
    curves: Curves, names: Sequence[str], words: Words, *, is_by_cell: bool, axis: Spec | None
) -> Spec:
    """A line per layer of one cell, or per cell of one layer; `axis` is that of other charts beside it."""
    rows = curve_rows(curves)
    axis = axis or probe_axis(rows)[0]
    _lift_zeros(rows, axis)
    add_bands(rows, axis)
    x = quantity("x", words("updates"), scale={"nice": False}, axis={"tickCount": 6})
    y = quantity("y", curves.metric, scale=axis)
    field, title = ("cell", words("cell")) if is_by_cell else ("line", words("layer"))
    hue = colour(field, names, title)
    hover = [
        ("cell", words("cell"), None),
        *([] if is_by_cell else [("line", words("layer"), None)]),
        ("x", words("updates"), ",.2~f"),
        *_value_hover(curves.metric, words),
    ]
    encoding = {"x": x, "y": y, "color": hue, "tooltip": tooltip(hover)}
    points = {"mark": point_mark(rows), "encoding": encoding}
    return chart(rows, [*band_and_line(rows, x, y, hue, zoomed=["x"]), points], HEIGHT)


def depth_rows(points: Sequence[DepthPoint]) -> list[Spec]:
    """A row per point."""
    return [
        {
            "cell": point.cell,
            "moment": point.moment,
            "step": point.step,
            "x": point.layer,
            "name": point.name or None,
            "y": point.mean,
            "low": point.low,
            "high": point.high,
            "n": point.n,
        }
        for point in points
    ]


def depth_chart(
    points: Sequence[DepthPoint],
    layers: Sequence[str],
    cells: Sequence[str],
    title: str,
    words: Words,
) -> Spec:
    """The layers from left to right in the order of the forward pass. A line per moment of the only cell,
    or per cell; of several cells the first moment is dashed."""
    rows = depth_rows(points)
    axis, _ = probe_axis(rows)
    _lift_zeros(rows, axis)
    hue = _name_lines(rows, cells, words)
    add_bands(rows, axis)
    drawn = {point.layer for point in points}
    x = {
        "field": "x",
        "type": "ordinal",
        "scale": {"domain": [layer for layer in layers if layer in drawn]},
        "title": words("probe_depth_axis"),
        "axis": {"labelAngle": -40, "labelLimit": 110, "labelOverlap": True},
    }
    y = quantity("y", title, scale=axis)
    names = list(dict.fromkeys(point.name for point in points))
    hover = [
        ("cell", words("cell"), None),
        ("x", words("layer"), None),
        *([("name", words("probe_parameter"), None)] if len(names) > 1 else []),
        ("step", words("updates"), ",.0f"),
        *_value_hover(title, words),
    ]
    ends = {"y": {**y, "field": "band_low"}, "y2": {"field": "band_high"}}
    bars = {
        "transform": [{"filter": "isValid(datum.band_low)"}],
        "mark": {"type": "rule", "opacity": 0.35, "strokeWidth": 2, "clip": True},
        "encoding": {"x": x, **ends, "color": hue},
    }
    line = {
        "mark": {"type": "line", "strokeWidth": 2, "clip": True},
        "encoding": {"x": x, "y": y, "color": hue, **_kinds_of_line(rows, names, words)},
    }
    dots = {
        "mark": {"type": "point", "filled": True, "size": 40, "opacity": 1, "clip": True},
        "encoding": {"x": x, "y": y, "color": hue, **_shapes(names), "tooltip": tooltip(hover)},
    }
    has_bars = any("band_low" in row for row in rows)
    return chart(rows, [bars, line, dots] if has_bars else [line, dots], HEIGHT)


def _name_lines(rows: Sequence[Spec], cells: Sequence[str], words: Words) -> Spec:
    """Gives every row the name of its line and its moment in words; the colours of the lines."""
    is_by_cell = len({row["cell"] for row in rows}) > 1
    labels = {}
    for row in rows:
        labels[row["moment"]] = words("probe_update", step=row["step"])
        row["line"] = row["cell"] if is_by_cell else labels[row["moment"]]
        row["moment"] = words(MOMENTS[row["moment"]])
    if is_by_cell:
        return colour("line", cells, words("cell"))
    return colour("line", list(labels.values()), words("probe_moments"))


def _kinds_of_line(rows: Sequence[Spec], names: Sequence[str], words: Words) -> Spec:
    """Lines join parameters of the same name: a bias beside its weight would make them zigzag."""
    kinds: Spec = {"detail": {"field": "name", "type": "nominal"}} if len(names) > 1 else {}
    moments = [words(MOMENTS[moment]) for moment in (FIRST, LAST)]
    is_by_cell = len({row["cell"] for row in rows}) > 1
    if is_by_cell and {row["moment"] for row in rows} == set(moments):
        kinds["strokeDash"] = {
            "field": "moment",
            "type": "nominal",
            "scale": {"domain": moments, "range": [DASHED, SOLID]},
            "legend": {
                "title": words("probe_moments"),
                "orient": "bottom",
                "symbolType": "stroke",
                "symbolStrokeColor": PALETTE[-1],
            },
        }
    return kinds


def _shapes(names: Sequence[str]) -> Spec:
    """Of the points: what parameters are called at their layer."""
    if len(names) < 2:
        return {}
    scale = {"domain": list(names), "range": list(SHAPES[: len(names)])}
    legend = {
        "title": None,
        "orient": "bottom",
        "symbolFillColor": PALETTE[-1],
        "symbolStrokeWidth": 0,
    }
    return {"shape": {"field": "name", "type": "nominal", "scale": scale, "legend": legend}}


def _value_hover(title: str, words: Words) -> list[tuple[str, str, str | None]]:
    return [
        ("value", title, VALUE),
        ("low", words("interval_low"), VALUE),
        ("high", words("interval_high"), VALUE),
        ("n", words("seeds"), None),
    ]


def _lift_zeros(rows: Sequence[Spec], axis: Spec) -> None:
    """On a logarithmic axis a zero is drawn at the lower edge; `value` is what it is."""
    for row in rows:
        row["value"] = row["y"]
        if axis.get("type") == "log" and row["y"] <= 0:
            row["y"] = axis["domain"][0]


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
