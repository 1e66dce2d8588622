"""Warm-up: how the first steps of a process settle."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from trainlab.analysis.charts import Spec, chart, colour, quantity, scale_for, tooltip
from trainlab.analysis.cost import settled_ms
from trainlab.analysis.finding import MOST_LINES
from trainlab.analysis.measurement import Measurement
from trainlab.words import Words


@dataclass(frozen=True)
class FirstSteps:
    """The first steps of a process as multiples of a settled one."""

    mode: str
    points: tuple[tuple[str, int, float], ...]
    """Cell, step from 1, the median of it over processes in multiples of `settled_ms`."""


def first_steps(measured: Sequence[Measurement], mode: str) -> FirstSteps | None:
    """From the warm-up steps of the timed processes, as many as all processes of a cell have."""
    points = []
    for measurement in measured[:MOST_LINES]:
        base_ms = settled_ms(measurement.costs)
        steps = zip(*(record.warmup_ms for record in measurement.costs), strict=False)
        for number, step_ms in enumerate(steps, start=1):
            points.append((measurement.trial.cell, number, statistics.median(step_ms) / base_ms))
    return FirstSteps(mode, tuple(points)) if points else None


def first_steps_chart(steps: FirstSteps, words: Words) -> Spec:
    """How many times as long as a settled step each of the first steps takes."""
    rows = [{"cell": cell, "x": step, "y": times} for cell, step, times in steps.points]
    cells = list(dict.fromkeys(cell for cell, _, _ in steps.points))
    axis = scale_for([times for _, _, times in steps.points], fits_zero=True)
    ticks = {"tickMinStep": 1, "format": "d"}
    hover = [
        ("cell", words("cell"), None),
        ("x", words("step_number"), None),
        ("y", words("times_settled"), ".3~r"),
    ]
    layer = {
        "mark": {"type": "line", "point": {"filled": True, "size": 34}, "strokeWidth": 2},
        "encoding": {
            "x": quantity("x", words("step_number"), axis=ticks, scale={"nice": False}),
            "y": quantity("y", words("times_settled"), scale=axis),
            "color": colour("cell", cells, words("cell")),
            "tooltip": tooltip(hover),
        },
    }
    return chart(rows, [layer], 220)
