"""One quantity that probes recorded, at all its layers: over training and by depth."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from trainlab.analysis.probes import CurvePoint as ProbePoint
from trainlab.analysis.probes import ProbeCurve, probe_curves
from trainlab.analysis.run_data import RunData
from trainlab.record.learning_record import FiredRecord
from trainlab.report.figures.curves import CurvePoint, Curves, thinned

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
