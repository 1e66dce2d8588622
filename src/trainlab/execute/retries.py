"""Retries: what runs once more when a process of a run has died; each trial once for each reason.

Killed from outside, a group runs again as it was, and so does a trial that lost one of its processes. A
crash or a hang of several trials in one process is the fault of one of them: each then runs alone. So
does one that found too little memory on a GPU, which others may have used. Trials that an engine has
refused are left pending, and each runs in a fresh process. A bench of which a process
was killed runs again as a whole, since its figures are ratios within rounds. What a node of a cluster
has left is tried again in `trainlab.execute.cluster`.
"""

from collections.abc import Iterable, Sequence

from trainlab.execute.launch import WorkerProcess
from trainlab.machine.device import is_cpu
from trainlab.plan import Group, Trial
from trainlab.record.run_folder import RunFolder
from trainlab.record.trial_record import OUT_OF_MEMORY
from trainlab.train.engines.ddp import ProcessLostError

LOST_PROCESS = ProcessLostError.__name__
KILLED = "killed"


class Retries:
    """Of one run."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._given: set[tuple[str, str]] = set()
        """Trials, and why."""

    def of_group(self, group: Group, process: WorkerProcess) -> list[Group]:
        """What is to be run again of a group whose process has ended; trials that it left behind and that
        have had their chance are recorded as failed."""
        left = {record.id: record for record in process.unfinished()}
        trials = tuple(trial for trial in group.trials if trial.id in left)
        if process.exit_code == 0 and any(left[one.id].notes for one in trials):
            return [group.model_copy(update={"trials": (trial,)}) for trial in trials]
        if trials and process.was_ended_from_outside and self._are_first(trials, KILLED):
            return [group.model_copy(update={"trials": trials})]
        if len(trials) == len(group.trials) == 1:
            process.record_exit()
            return []
        again = trials or filter(self._may_do_better, group.trials)
        return [Group(trials=(trial,), is_alone=True) for trial in again]

    def has_failed(self, trial_ids: Sequence[str]) -> bool:
        """Whether one of them has."""
        return any(self._run.trial(one).read().state == "failed" for one in trial_ids)

    def is_for_bench(self, groups: Sequence[Group], processes: Sequence[WorkerProcess]) -> bool:
        """Whether a bench whose processes have ended is to be run again."""
        ended = list(zip((group.trials[0] for group in groups), processes, strict=True))
        killed = [
            trial for trial, process in ended if process.has_died and process.was_ended_from_outside
        ]
        lost = [trial for trial, _ in ended if self._error_of(trial) == LOST_PROCESS]
        return self._are_first(killed, KILLED) or self._are_first(lost, LOST_PROCESS)

    def _may_do_better(self, trial: Trial) -> bool:
        """Whether it has failed, for the first time, for a reason that may have been others'."""
        kind = self._error_of(trial)
        may = kind == LOST_PROCESS or (kind == OUT_OF_MEMORY and not is_cpu(trial.settings.device))
        return may and self._are_first([trial], kind)

    def _error_of(self, trial: Trial) -> str:
        error = self._run.trial(trial.id).read().error
        return "" if error is None else error.kind

    def _are_first(self, trials: Iterable[Trial], reason: str) -> bool:
        """Whether there are some, and none was tried once more for that reason; they are from now on."""
        asked = {(trial.id, reason) for trial in trials}
        is_first = bool(asked) and not asked & self._given
        self._given |= asked
        return is_first
