"""What an executor is: it runs the groups of a run, somewhere and in some order.

Everything goes through the run folder: an executor gets the groups to run, each worker records its trials
there, and whoever watches the run reads the events there.
"""

from collections.abc import Sequence
from typing import Protocol

from trainlab.execute.planned_run import IsOver
from trainlab.plan import Group
from trainlab.record.run_folder import RunFolder
from trainlab.spec import Study
from trainlab.spec.facts import WorkloadFacts


class Executor(Protocol):
    """Runs groups of trials. A group that is alone has its machine to itself."""

    def facts(self, workload: str) -> WorkloadFacts:
        """What a study needs to know of a workload that is not a built-in one."""

    def preflight(self, study: Study, *, each_device: bool) -> tuple[str, ...]:
        """Checks a study where its trials will run, and names the devices there."""

    def run(self, run: RunFolder, groups: Sequence[Group], is_over: IsOver) -> None:
        """Runs the groups until all are done or `is_over` says to start no more; in any order, but one that
        needs the weights of a trial (`weights_of`) after the group of that trial. A trial that fails, or
        whose process dies, is recorded as failed and the others run. An interrupt is recorded in the
        trials it ends, and raised; no process is left behind."""

    def close(self) -> None:
        """Ends what it keeps ready between two calls of `run`."""
