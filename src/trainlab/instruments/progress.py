"""Tells the events of a run how far a trial is; a curve has every point, this a few of them."""

import math
import time
from collections.abc import Callable

from trainlab.record.event import Event
from trainlab.train.moments import Instrument, Point, TrialView

PAUSE_S = 0.4
"""Between two words about the same trial: nobody reads faster, and files stay small."""


class ProgressEvents(Instrument):
    """Tells of points, not too often, and of every epoch."""

    def __init__(self, tell: Callable[[Event], None]) -> None:
        self._tell = tell
        self._told_at = -math.inf

    def trial_begins(self, view: TrialView) -> None:
        self._trial, self._num_steps = view.trial, view.num_steps

    def point_logged(self, point: Point) -> None:
        if time.monotonic() - self._told_at >= PAUSE_S:
            self._told_at = time.monotonic()
            self._tell(self._event("progress", point))

    def epoch_ends(self, point: Point) -> None:
        self._tell(self._event("epoch", point))

    def _event(self, kind: str, point: Point) -> Event:
        finite = {n: v if math.isfinite(v) else None for n, v in point.metrics.items()}
        values = {
            "kind": kind,
            "trials": (self._trial.id,),
            "share": point.step / self._num_steps,
            "epoch": point.epoch,
            "num_epochs": self._trial.settings.epochs,
            "metrics": finite,
            "time_s": point.times_s["time_s"],
        }
        return Event.model_validate(values)
