"""curve.jsonl: a line per logged step and per epoch, appended as it happens."""

import math
import time
from collections.abc import Callable
from typing import Literal

from trainlab.record.files import LineWriter
from trainlab.record.study_record import Event
from trainlab.record.trial_record import Progress
from trainlab.train.callbacks import Instrument, Point, TrialView


class CurveWriter(Instrument):
    """Writes every point of the curve as a flat JSON object; times come last, so that the rest can be
    compared."""

    goes_on = True

    def trial_begins(self, view: TrialView) -> None:
        self._lines = LineWriter(view.folder.curve_file, append=view.steps_before > 0)

    def point_logged(self, point: Point) -> None:
        metrics, times = finite_metrics(point), point.times_s.items()
        place = {name: getattr(point, name) for name in ("kind", "epoch", "step", "samples")}
        self._lines.write(place | metrics | {name: round(seconds, 6) for name, seconds in times})

    epoch_ends = point_logged

    def trial_ends(self, progress: Progress) -> None:
        self._lines.close()


def finite_metrics(point: Point) -> dict[str, float | None]:
    """The point's metrics; None for those that are not finite."""
    return {name: value if math.isfinite(value) else None for name, value in point.metrics.items()}


PAUSE_S = 0.4
"""Between two progress events of the same trial: nobody reads faster, and files stay small."""


class ProgressEvents(Instrument):
    """Writes an event for every epoch, and for a point where the last one is PAUSE_S ago."""

    goes_on = True

    def __init__(self, write: Callable[[Event], None]) -> None:
        self._write = write
        self._written_s = -math.inf

    def point_logged(self, point: Point) -> None:
        if time.monotonic() - self._written_s >= PAUSE_S:
            self._written_s = time.monotonic()
            self._write(self._event("progress", point))

    def epoch_ends(self, point: Point) -> None:
        self._write(self._event("epoch", point))

    def _event(self, kind: Literal["progress", "epoch"], point: Point) -> Event:
        return Event(
            kind=kind,
            trials=(self._view.trial.id,),
            share=point.step / self._view.num_steps,
            epoch=point.epoch,
            num_epochs=self._view.num_epochs,
            metrics=finite_metrics(point),
            time_s=point.times_s["time_s"],
        )
