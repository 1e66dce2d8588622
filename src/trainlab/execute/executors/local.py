"""local: this machine. Every group runs in a process of its own, so that one that crashes fails alone; what
is given as an object cannot go there and trains in this process."""

from collections.abc import Sequence
from itertools import groupby

from trainlab.execute.executors.inline import InlineExecutor
from trainlab.execute.executors.processes import ProcessesExecutor
from trainlab.execute.jobs import AskedJobs
from trainlab.execute.launch.launcher import Launcher
from trainlab.execute.packing import packed_here
from trainlab.execute.run import IsOver
from trainlab.plan import Group
from trainlab.record.folder import RunFolder
from trainlab.spec import Study
from trainlab.spec.workload import AS_OBJECT
from trainlab.train.loader import Loader
from trainlab.train.moments import Instrument


class LocalExecutor:
    """In the order planned."""

    def __init__(
        self,
        load: Loader,
        instruments: Sequence[Instrument] = (),
        jobs: AskedJobs = 1,
        launcher: Launcher | None = None,
        trial_timeout_s: float | None = None,
    ) -> None:
        self._inline = InlineExecutor(load, instruments)
        self._processes = ProcessesExecutor(load, jobs, launcher, trial_timeout_s)
        self._has_objects = bool(instruments)

    def preflight(self, study: Study, *, each_device: bool) -> tuple[str, ...]:
        return self._inline.preflight(study, each_device=each_device)

    def run(self, run: RunFolder, groups: Sequence[Group], is_over: IsOver) -> None:
        if self._are_sent(run):
            self._processes.run(run, packed_here(groups), is_over)
            return
        for is_alone, consecutive in groupby(packed_here(groups), lambda group: group.is_alone):
            executor = self._processes if is_alone else self._inline
            executor.run(run, list(consecutive), is_over)

    def _are_sent(self, run: RunFolder) -> bool:
        """Whether another process can get the workload and the instruments: not those that are objects."""
        return not self._has_objects and not run.study().study["workload"].endswith(AS_OBJECT)

    def close(self) -> None:
        self._processes.close()
