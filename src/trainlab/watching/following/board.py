"""TensorBoard for a script: what is known of its settings was seen, not asked for."""

from dataclasses import replace
from typing import Any

from torch import nn

from trainlab.instruments.tensorboard import TensorBoard
from trainlab.spec.cell import short_name
from trainlab.train.moments import Point, TrialView
from trainlab.watching.seeing.seen import Seen


class ScriptBoard(TensorBoard):
    """Curves over samples seen, or over updates where no loader tells how many those are."""

    def __init__(self, seen: Seen, *, shows_graph: bool = True) -> None:
        """`shows_graph`: whether to trace a copy of the model."""
        super().__init__(shows_samples=False)
        self._seen, self._shows_graph = seen, shows_graph

    def trial_begins(self, view: TrialView) -> None:
        super().trial_begins(view)
        # Its graph is drawn: the script may let go of it.
        self._view = replace(view, model=nn.Module())

    def _write_graph(self) -> None:
        if self._shows_graph:
            super()._write_graph()

    def _write_scalars(self, values: dict[str, float], point: Point) -> None:
        with_place = point if point.samples else replace(point, samples=point.step)
        super()._write_scalars(values, with_place)

    def _hyper_parameters(self) -> dict[str, Any]:
        trial, seen = self._view.trial, self._seen
        varied = {short_name(name): level for name, level in trial.levels.items()}
        first = seen.optimizers[0] if seen.optimizers else None
        found = {
            "batch_size": seen.batch_size,
            "optimizer": None if first is None else first.name,
            "lr": None if first is None else first.lr,
            "device": str(self._view.device),
            "seed": trial.seed,
            "script": trial.workload,
        }
        return found | varied
