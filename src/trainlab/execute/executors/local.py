"""local: this machine. Groups that must be alone get fresh processes, all others run in this one."""

from collections.abc import Sequence
from itertools import groupby

from trainlab.execute.executors.inline import InlineExecutor
from trainlab.execute.executors.processes import ProcessesExecutor
from trainlab.execute.packing import packed
from trainlab.execute.run import IsOver
from trainlab.machine.device import pick_device
from trainlab.plan import Group
from trainlab.record.folder import RunFolder
from trainlab.spec import Study
from trainlab.train.engines import engines_for
from trainlab.train.loader import Loader
from trainlab.train.moments import Instrument


class LocalExecutor:
    """In the order planned, one group at a time."""

    def __init__(self, load: Loader, instruments: Sequence[Instrument] = ()) -> None:
        self._inline = InlineExecutor(load, instruments)
        self._processes = ProcessesExecutor(load)

    def preflight(self, study: Study, *, each_device: bool) -> tuple[str, ...]:
        return self._inline.preflight(study, each_device=each_device)

    def run(self, run: RunFolder, groups: Sequence[Group], is_over: IsOver) -> None:
        for is_alone, consecutive in groupby(groups, lambda group: group.is_alone):
            if is_alone:
                self._processes.run(run, list(consecutive), is_over)
            else:
                self._inline.run(run, packed(list(consecutive), _runs_together), is_over)


def _runs_together(group: Group) -> bool:
    """Whether an engine that takes many trials is the first to be tried for it."""
    settings = group.trials[0].settings
    return engines_for(settings, pick_device(settings.device), has_others=True)[0].takes_many


make = LocalExecutor
