"""curve.jsonl: a line per logged step and per epoch, appended as it happens."""

import math
from typing import Any

from trainlab.record.files import LineWriter
from trainlab.train.callbacks import Instrument, Point, Progress, TrialView


class Curves(Instrument):
    """Writes every point of the curve; times come last in a line, so that the rest can be compared."""

    goes_on = True

    def trial_begins(self, view: TrialView) -> None:
        self._lines = LineWriter(view.folder.curve_file, append=view.steps_before > 0)

    def point_logged(self, point: Point) -> None:
        self._lines.write(curve_line(point))

    def epoch_ends(self, point: Point) -> None:
        self._lines.write(curve_line(point))

    def trial_ends(self, progress: Progress) -> None:
        self._lines.close()


def curve_line(point: Point) -> dict[str, Any]:
    """The point as a flat JSON object; metrics that are not finite become null."""
    return {
        "kind": point.kind,
        "epoch": point.epoch,
        "step": point.step,
        "samples": point.samples,
        **finite_metrics(point),
        **{name: round(seconds, 6) for name, seconds in point.times_s.items()},
    }


def finite_metrics(point: Point) -> dict[str, float | None]:
    """The point's metrics; None for those that are not finite."""
    return {name: value if math.isfinite(value) else None for name, value in point.metrics.items()}
