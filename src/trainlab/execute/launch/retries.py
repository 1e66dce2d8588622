"""Which trials are tried once more: those that may have failed by chance, or because of others.

Killed from outside, a group runs again as it was. A crash or a hang of several trials in one process is the
fault of one of them: each then runs alone. So does one that found too little memory on a GPU, which others
may have used.
"""

from trainlab.execute.launch.worker_process import WorkerProcess
from trainlab.machine.device import pick_device
from trainlab.machine.out_of_memory import OUT_OF_MEMORY
from trainlab.plan import Group, Trial
from trainlab.record.folder import RunFolder


class Retries:
    """Of one run. Each trial gets one for each reason."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._killed: set[str] = set()
        self._short_of_memory: set[str] = set()

    def after(self, process: WorkerProcess, group: Group) -> list[Group]:
        """What is to be run again of a group whose process has ended; trials that it left behind and that
        have had their chance are recorded as failed."""
        left = set(process.unfinished())
        trials = [trial for trial in group.trials if trial.id in left]
        if not trials:
            return [_alone(trial) for trial in group.trials if self._lacked_gpu_memory(trial)]
        if process.death.is_from_outside and not left & self._killed:
            self._killed |= left
            return [group.model_copy(update={"trials": tuple(trials)})]
        if len(group.trials) > 1:
            return [_alone(trial) for trial in trials]
        process.record_death()
        return []

    def _lacked_gpu_memory(self, trial: Trial) -> bool:
        """For the first time."""
        record = self._run.trial(trial.id).read()
        lacked = record.error is not None and record.error.kind == OUT_OF_MEMORY
        on_gpu = pick_device(trial.settings.device).type != "cpu"
        if not lacked or not on_gpu or trial.id in self._short_of_memory:
            return False
        self._short_of_memory.add(trial.id)
        return True


def _alone(trial: Trial) -> Group:
    return Group(trials=(trial,), is_alone=True)
