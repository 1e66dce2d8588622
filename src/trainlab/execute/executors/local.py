"""local: this machine. Every group runs in a process of its own, so that one that crashes fails alone. A
workload given as an object trains in this process, unless several trials are to run side by side or one may
not take too long; instruments given as objects cannot go elsewhere at all."""

from collections.abc import Sequence
from itertools import groupby

from trainlab.execute.executors.inline import InlineExecutor
from trainlab.execute.executors.processes import ProcessesExecutor
from trainlab.execute.jobs import AskedJobs, are_processes_asked
from trainlab.execute.launch.launcher import Launcher
from trainlab.execute.packing import packed_here
from trainlab.execute.planned_run import IsOver
from trainlab.plan import Group
from trainlab.record.run_folder import RunFolder
from trainlab.spec import Study
from trainlab.spec.facts import AS_OBJECT, WorkloadFacts
from trainlab.train.callbacks import Instrument
from trainlab.train.loader import Loader


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
        self._has_instruments = bool(instruments)
        self._sends_objects = are_processes_asked(jobs, "local", trial_timeout_s)

    def facts(self, workload: str) -> WorkloadFacts:
        executor = self._processes if self._are_sent(workload) else self._inline
        return executor.facts(workload)

    def preflight(self, study: Study, *, each_device: bool) -> tuple[str, ...]:
        executor = self._processes if self._are_sent(study.workload) else self._inline
        return executor.preflight(study, each_device=each_device)

    def run(self, run: RunFolder, groups: Sequence[Group], is_over: IsOver) -> None:
        if self._are_sent(run.study().study["workload"]):
            self._processes.run(run, packed_here(groups), is_over)
            return
        for is_alone, consecutive in groupby(packed_here(groups), lambda group: group.is_alone):
            executor = self._processes if is_alone else self._inline
            executor.run(run, list(consecutive), is_over)

    def _are_sent(self, workload: str) -> bool:
        """Whether all groups go to processes of their own."""
        is_object = workload.endswith(AS_OBJECT)
        return not self._has_instruments and (self._sends_objects or not is_object)

    def close(self) -> None:
        self._processes.close()
