"""inline: every group in this process, one after the other. What ran here before may influence a cost."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from trainlab.execute.events import EventWriter
from trainlab.execute.executors.executor import IsOver
from trainlab.execute.preflight import preflight
from trainlab.execute.worker import run_group
from trainlab.machine.environment import capture
from trainlab.plan import Group
from trainlab.record.event import Event
from trainlab.record.folder import RunFolder
from trainlab.spec import Study
from trainlab.train.loader import Loader
from trainlab.train.moments import Instrument


class InlineExecutor:
    """Workloads and instruments may be objects here: nothing leaves the process."""

    def __init__(self, load: Loader, instruments: Sequence[Instrument] = ()) -> None:
        self._load, self._instruments = load, instruments

    def preflight(self, study: Study, *, each_device: bool) -> tuple[str, ...]:
        return preflight(study, self._load, each_device=each_device)

    def run(self, run: RunFolder, groups: Sequence[Group], is_over: IsOver) -> None:
        environment = run.write_environment(capture(Path.cwd()))
        with closing(EventWriter(run)) as events:
            for group in groups:
                if is_over():
                    return
                events.write(Event(kind="group_begins", trials=group.ids))
                run_group(run, group.ids, environment, self._load, self._instruments)
                events.write(Event(kind="group_ends", trials=group.ids))


make = InlineExecutor
