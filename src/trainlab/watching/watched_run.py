"""WholeWatch: a training watched from its start to its end, with all the records of a learn trial."""

import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from trainlab.errors import SpecError
from trainlab.plan import Trial
from trainlab.record.files import LineWriter
from trainlab.record.run_folder import TrialFolder
from trainlab.record.schema import Note, note
from trainlab.spec.probe import ProbeSpec
from trainlab.train.callbacks import Progress
from trainlab.watching import own_metrics as told
from trainlab.watching.followed_model import FollowedModel
from trainlab.watching.own_metrics import CsvColumns, OwnScalars, search_output
from trainlab.watching.script_curve import ScriptCurve
from trainlab.watching.tracer import Tracer
from trainlab.watching.watched_record import facts_of, run_facts, watched_record

OnStep = Callable[[int, Mapping[str, float]], None]
"""Is told of an update, counted from 1, and of the newest values of the metrics."""


class WholeWatch:
    """What the process does from here on, until `close`."""

    def __init__(
        self,
        trial: Trial,
        folder: TrialFolder,
        *,
        probes: Sequence[ProbeSpec] = (),
        tensorboard: bool = False,
        metrics: Mapping[str, str] | None = None,
        columns: Mapping[str, tuple[str, str]] | None = None,
        model: nn.Module | None = None,
        start_ns: int | None = None,
        on_step: OnStep = lambda step, metrics: None,
        refusal: Callable[[SpecError], BaseException] = lambda error: error,
        rank: int = 0,
        sees_all: bool = False,
    ) -> None:
        """`metrics` are patterns of what is printed, `columns` files and columns that are written. `model`
        is the one to look into, by default the first that trains; `refusal` is what is raised in the script
        for probes that cannot be. Of several processes the first, of rank 0, looks into the model. Of a
        long training most steps are only counted, unless `sees_all`."""
        self._folder, self._on_step, self._rank = folder, on_step, rank
        lines = LineWriter(folder.curve_of(rank))  # what may fail comes before the hooks
        self.tracer = Tracer(start_ns)
        self._model = FollowedModel(
            self.tracer,
            trial,
            folder,
            () if rank else probes,
            model=model,
            tensorboard=tensorboard and not rank,
            shows_network=not rank,
            before_call=self._look,
            refusal=refusal,
        )
        self._curve = ScriptCurve(self.tracer, lines, self._model.point_written)
        self.tracer.follower, self.tracer.on_step = self._model, self._step_ended
        self._sees_all = sees_all or bool(probes) or bool(columns)
        self.tracer.is_sampled = not self._sees_all
        told.listen(self._curve.metric)
        self._not_found = _not_found(metrics or {}, columns or {})
        self._end_search = search_output(metrics or {}, self._printed)
        self._scalars = OwnScalars(self._curve.metric, folder.tensorboard_folder)
        self._columns = CsvColumns(columns or {}, self._printed)
        self._look()
        _under_way.add(self)

    @property
    def notes(self) -> list[Note]:
        """What could not be done, and why."""
        return self._model.notes

    @property
    def missing(self) -> list[Note]:
        """Metrics that were asked for and have not come."""
        return list(self._not_found.values())

    @property
    def progress(self) -> Progress:
        """How far it came."""
        return Progress(
            epochs_done=self._curve.num_epochs,
            steps_done=self.tracer.num_steps,
            final=dict(self._curve.final),
        )

    @property
    def facts(self) -> dict[str, Any]:
        """What the settings were seen to be."""
        return facts_of(self.tracer) | run_facts(self.tracer)

    def close(self, arguments: Sequence[str] = (), *, is_cut: bool = False) -> None:
        """The training has ended, however it did: nothing is seen any more, and all is written. `arguments`
        are those of the script; `is_cut`: it did not come to its end."""
        _under_way.discard(self)
        self.tracer.close()
        self._look()
        self._scalars.close()
        told.stop_listening(self._curve.metric)
        self._end_search()
        self._model.close()
        self._curve.finish(is_cut=is_cut)
        self._model.finish(self.progress)
        record = watched_record(self.tracer, arguments, self._rank)
        self._folder.watched_by(self._rank).write(record)

    def let_go(self) -> None:
        """Nothing is seen or written any more: for a process that was forked while this one is watched,
        whose records it would write into."""
        self.tracer.follower = None
        self.tracer.close()

    def _printed(self, name: str, value: float) -> None:
        self._not_found.pop(name, None)
        self._curve.printed(name, value)

    def _look(self) -> None:
        """For metrics that the script has begun to write; before the update they are of is followed by
        another."""
        self._scalars.look()
        self._columns.look()

    def _step_ended(self, step: int) -> None:
        self._model.step_ended(step)
        if not self._sees_all:
            self.tracer.follower = None  # its one look at the model was in the first step
        self._scalars.look()
        if self._curve.step_ended():
            self._model.flush()
        self._on_step(step, self._curve.last)


_under_way: "weakref.WeakSet[WholeWatch]" = weakref.WeakSet()


def _let_go_of_all() -> None:
    for one in list(_under_way):
        one.let_go()


os.register_at_fork(after_in_child=_let_go_of_all)


def _not_found(
    metrics: Mapping[str, str], columns: Mapping[str, tuple[str, str]]
) -> dict[str, Note]:
    """Of each metric what is to be said if it never comes."""
    printed = {
        name: note("metric_not_printed", name=name, pattern=pattern)
        for name, pattern in metrics.items()
    }
    written = {
        name: note("metric_not_written", name=name, file=file, column=column)
        for name, (file, column) in columns.items()
    }
    return printed | written
