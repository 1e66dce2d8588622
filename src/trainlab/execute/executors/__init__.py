"""Executors: where and in what order the groups of a run are run. One file each, imported when used."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainlab.errors import SpecError
from trainlab.execute.jobs import check_executor

if TYPE_CHECKING:
    from trainlab.execute.executors.executor import Executor
    from trainlab.execute.jobs import AskedJobs
    from trainlab.execute.launch.launcher import Launcher
    from trainlab.train.callbacks import Instrument
    from trainlab.train.loader import Loader


def executor_for(
    on: str,
    load: "Loader",
    instruments: "Sequence[Instrument]" = (),
    jobs: "AskedJobs" = 1,
    launcher: "Launcher | None" = None,
    trial_timeout_s: float | None = None,
) -> "Executor":
    """The executor of that name; SpecError where there is none, or it cannot take the instruments."""
    check_executor(on)
    name, _, detail = on.partition(":")
    if instruments and name not in ("local", "inline"):
        raise SpecError(["instruments: cannot go to another process; use on='local' or 'inline'"])
    match name:
        case "inline":
            from trainlab.execute.executors.inline import InlineExecutor

            return InlineExecutor(load, instruments)
        case "processes":
            from trainlab.execute.executors.processes import ProcessesExecutor

            return ProcessesExecutor(load, jobs, launcher, trial_timeout_s)
        case "ray":
            from trainlab.execute.executors.cluster import ClusterExecutor
            from trainlab.execute.executors.ray import RayCluster

            return ClusterExecutor(RayCluster(detail), trial_timeout_s)
        case "slurm":
            from trainlab.execute.executors.cluster import ClusterExecutor
            from trainlab.execute.executors.slurm import SlurmCluster

            return ClusterExecutor(SlurmCluster(detail), trial_timeout_s)
        case _:
            from trainlab.execute.executors.local import LocalExecutor

            return LocalExecutor(load, instruments, jobs, launcher, trial_timeout_s)
