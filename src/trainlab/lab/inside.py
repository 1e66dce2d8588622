"""A training loop of the user's own, watched from inside it: in a notebook, or in any script."""

import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from torch import nn
from torch.optim import Optimizer

from trainlab.errors import Interrupted, SpecError, TrainlabError
from trainlab.execute.attempt import Attempt, EventWriter
from trainlab.execute.lease import leased
from trainlab.execute.planned_run import start_run
from trainlab.execute.script_trials import notes_of, progress_event
from trainlab.lab.opened import Run
from trainlab.machine.environment import capture
from trainlab.machine.load import LoadMeter
from trainlab.plan import plan
from trainlab.record.study_record import Event
from trainlab.spec import Study, TrainSpec, checked
from trainlab.spec.facts import AS_OBJECT
from trainlab.spec.probe import ProbeSpec, probe_of
from trainlab.spec.script import ScriptSpec
from trainlab.watching import own_metrics as told
from trainlab.watching.hooks import Hooks
from trainlab.watching.script_child import raised_by
from trainlab.watching.script_process import ScriptError
from trainlab.watching.tracer import Refused
from trainlab.watching.watched_run import WatchedTraining

if TYPE_CHECKING:
    import pandas as pd

NOTEBOOK = f"notebook{AS_OBJECT}"
"""Stands for the file of a loop that is typed in."""


def watch(
    model: nn.Module | None = None,
    optimizer: Optimizer | None = None,
    *,
    name: str = "loop",
    probes: "str | ProbeSpec | Sequence[str | ProbeSpec]" = (),
    out: Path | str | None = None,
    tensorboard: bool = True,
    title: str = "",
    objective: str | None = None,
) -> "WatchedLoop":
    """Watches the training in a `with` block, whatever its loop looks like, and leaves a run folder.

    `model` is the one that is looked into, by default the first that trains; `optimizer` the one whose
    updates are counted as steps, by default the first that makes one. `name` begins the name of the run's
    folder, or `out` is the folder; `probes` are written as for `trainlab run --probe`; `objective` is
    the metric that the answer goes by. Losses are the same as without. For example

        with trainlab.watch(model, probes="*.weight:grad:norm") as lab:
            for x, y in loader:
                ...
                lab.log(accuracy=accuracy)
        lab.report()
    """
    asked = {"title": title, "objective": objective, "tensorboard": tensorboard}
    return WatchedLoop(
        _study(name, probes, asked, _file_of_caller()),
        None if out is None else Path(out),
        model,
        optimizer,
    )


class WatchedLoop:
    """The run of a loop that is watched while the block runs; afterwards, its results."""

    def __init__(
        self, study: Study, out: Path | None, model: nn.Module | None, optimizer: Optimizer | None
    ) -> None:
        self._study, self._out = study, out
        self._model, self._optimizer = model, optimizer
        self._run: Run | None = None
        self._watched: WatchedTraining | None = None
        self._attempt: Attempt | None = None
        self._open, self._pid = ExitStack(), os.getpid()

    @property
    def run(self) -> Run:
        """The run, with its tables, findings and charts; SpecError before the block has begun."""
        if self._run is None:
            raise SpecError(["trainlab.watch: nothing is watched yet; use it as `with … as lab:`"])
        return self._run

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self.run.path

    def log(self, **metrics: float) -> None:
        """Adds metrics to the curve, as `lab.log(accuracy=0.98)`. One told after a test is of the test set,
        any other of training; a name with a part, as `**{"val/f1": 0.9}`, is taken as it is."""
        if self._watched is None:
            raise SpecError(["log: the block has ended, or not begun; call it inside"])
        told.log(**metrics)

    def results(self) -> "pd.DataFrame":
        """A table of one row: state, final metrics, time."""
        return self.run.results()

    def report(self, *, lang: str | None = None, formats: Sequence[str] = ("html",)) -> Path:
        """Writes the report, see `Run.report`, and returns its path."""
        return self.run.report(lang=lang, formats=formats)

    def __repr__(self) -> str:
        return "<WatchedLoop, not begun>" if self._run is None else repr(self._run)

    def _repr_html_(self) -> str | None:
        return None if self._run is None else self._run._repr_html_()

    def __enter__(self) -> Self:
        if self._run is not None:
            raise SpecError(["trainlab.watch: was used before; call it anew for another run"])
        Hooks.check_none()
        with ExitStack() as opened:
            opened.callback(told.listening.clear)
            for _ in range(2):  # an interrupt that comes amid the first is followed by the second
                opened.callback(Hooks.free)
            self._begin(opened)
            self._open = opened.pop_all()
        return self

    def __exit__(
        self, kind: object, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Whatever was raised goes on."""
        if os.getpid() != self._pid:
            return  # forked inside the block: the run is that of the other process
        with self._open:
            refused = error.error if isinstance(error, Refused) else None
            with suppress(TrainlabError) if error is not None else ExitStack():
                self._end(refused or error)
        if refused is not None:
            raise refused from None

    def _begin(self, opened: ExitStack) -> None:
        is_script = Path(sys.argv[0]).suffix == ".py" and self._study.workload != NOTEBOOK
        command = shlex.join(["python", *sys.argv]) if is_script else None
        started = start_run(self._study, self._out, command)
        self._run = run = Run(started.path.absolute())
        (group,) = plan(self._study)
        opened.enter_context(leased(run))
        events = opened.enter_context(closing(EventWriter(run)))
        environment = run.write_environment(capture(Path.cwd()))
        self._attempt = attempt = Attempt(run.trial(group.ids[0]), environment)
        opened.callback(attempt.interrupt)
        attempt.begin()
        events.write(Event(kind="group_begins", trials=group.ids))
        opened.callback(events.write, Event(kind="group_ends", trials=group.ids))
        self._meter, script = LoadMeter(), self._study.script
        assert script is not None
        self._watched = WatchedTraining(
            attempt.trial,
            attempt.folder,
            script,
            lambda step, metrics: events.write(progress_event(attempt.trial.id, metrics)),
            probes=self._study.probes,
            tensorboard=self._study.tensorboard,
            model=self._model,
        )
        if self._optimizer is not None:
            self._watched.tracer.lead_by(self._optimizer)

    def _end(self, error: BaseException | None) -> None:
        watched, attempt = self._watched, self._attempt
        assert watched is not None
        assert attempt is not None
        self._watched = self._model = self._optimizer = None
        has_left = isinstance(error, SystemExit) and error.code in (None, 0)
        fault = None if has_left else error
        with attempt:
            try:
                watched.close(is_cut=fault is not None)
            except KeyboardInterrupt:
                raise Interrupted from None
            record = attempt.folder.watched.read()
            attempt.load = self._meter.read()
            attempt.engine_facts.update(watched.facts)
            attempt.progress = watched.progress
            attempt.progress.total_s = record.total_s
            attempt.notes += watched.notes
            if isinstance(fault, KeyboardInterrupt):
                raise Interrupted
            if fault is not None:
                raise ScriptError(raised_by(fault, "loop"))
            attempt.notes += [*watched.missing, *notes_of(record)]
            attempt.progress.state = "done"
        attempt.end()
        from trainlab.analysis.results import write_results

        write_results(self.run, self.run.evidence())
        if fault is None:
            attempt.pass_on_interrupt()


def _study(name: str, probes: Any, asked: dict[str, Any], file: str | None) -> Study:
    given = (probes,) if isinstance(probes, str | ProbeSpec) else tuple(probes)
    path = NOTEBOOK if file is None else str(Path(file).absolute())
    script = ScriptSpec(path=path, folder=str(Path.cwd()), from_inside=True)
    values = {
        "name": name,
        "workload": file or NOTEBOOK,
        "settings": checked(TrainSpec, {}),
        "script": script,
        "probes": tuple(
            one if isinstance(one, ProbeSpec) else probe_of(one, "probes") for one in given
        ),
    }
    return checked(Study, values | asked, "trainlab.watch")


def _file_of_caller() -> str | None:
    """The script that called `watch`, from the current folder on if it is there; None if typed in."""
    file = sys._getframe(2).f_globals.get("__file__")
    if not file or Path(file).suffix != ".py":
        return None
    path = Path(file).absolute()
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
