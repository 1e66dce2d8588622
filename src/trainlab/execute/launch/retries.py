"""Which trials are tried once more: those that may have failed by chance, or because of others.

Killed from outside, a group runs again as it was, and so does a trial that lost one of its processes. A
crash or a hang of several trials in one process is the fault of one of them: each then runs alone. So does
one that found too little memory on a GPU, which others may have used.

A bench of which a process was killed runs again as a whole, since its figures are ratios within rounds; for
want of memory, with two processes ready at a time.
"""

from collections.abc import Sequence

from trainlab.execute.bench import MOST_READY
from trainlab.execute.launch.worker_process import WorkerProcess
from trainlab.machine.device import OUT_OF_MEMORY, pick_device
from trainlab.plan import Group, Trial
from trainlab.record.run_folder import RunFolder
from trainlab.train.engines.ddp import ProcessLostError

KILLED = "killed"
LOST = ProcessLostError.__name__
PAIR = 2
"""The fewest that a ratio within rounds needs."""


class Retries:
    """Of one run. Each trial gets one for each reason."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._given: set[tuple[str, str]] = set()
        """Trials that were tried once more, and why."""

    def after(self, process: WorkerProcess, group: Group) -> list[Group]:
        """What is to be run again of a group whose process has ended; trials that it left behind and that
        have had their chance are recorded as failed."""
        left = set(process.unfinished())
        trials = [trial for trial in group.trials if trial.id in left]
        if not trials:
            return [_alone(trial) for trial in group.trials if self._may_do_better(trial)]
        if process.death.is_from_outside and self._are_first(trials, KILLED):
            return [group.model_copy(update={"trials": tuple(trials)})]
        if len(group.trials) > 1:
            return [_alone(trial) for trial in trials]
        process.record_death()
        return []

    def of_bench(self, processes: Sequence[WorkerProcess], groups: Sequence[Group]) -> int | None:
        """How many processes may stand ready as the bench is run once more; None where it is not."""
        died = [
            (process.death, group.trials[0])
            for process, group in zip(processes, groups, strict=True)
            if process.has_died
        ]
        for_memory = [trial for death, trial in died if death.ran_out_of_memory]
        if for_memory and len(groups) > PAIR and self._are_first(for_memory, OUT_OF_MEMORY):
            return PAIR
        chance = [trial for death, trial in died if death.is_from_outside]
        if chance and self._are_first(chance, KILLED):
            return MOST_READY
        errors = [(self._run.trial(one.ids[0]).read().error, one.trials[0]) for one in groups]
        lost = [trial for error, trial in errors if error is not None and error.kind == LOST]
        return MOST_READY if lost and self._are_first(lost, LOST) else None

    def _may_do_better(self, trial: Trial) -> bool:
        """Whether it has failed, for the first time, for a reason that may have been others'."""
        error = self._run.trial(trial.id).read().error
        if error is None:
            return False
        on_gpu = pick_device(trial.settings.device).type != "cpu"
        may = error.kind == LOST or (error.kind == OUT_OF_MEMORY and on_gpu)
        return may and self._are_first([trial], error.kind)

    def _are_first(self, trials: Sequence[Trial], reason: str) -> bool:
        """Whether none of them was tried once more for that reason; they are from now on."""
        asked = {(trial.id, reason) for trial in trials}
        is_first = not asked & self._given
        self._given |= asked
        return is_first


def _alone(trial: Trial) -> Group:
    return Group(trials=(trial,), is_alone=True)
