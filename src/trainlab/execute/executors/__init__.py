"""Executors: where and in what order the groups of a run are run. One file each, imported when used."""

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainlab.errors import SpecError
from trainlab.execute.places import CLUSTERS, check_executor

if TYPE_CHECKING:
    from trainlab.execute.executors.executor import Executor
    from trainlab.execute.jobs import AskedJobs
    from trainlab.execute.launch.launcher import Launcher
    from trainlab.train.loader import Loader
    from trainlab.train.moments import Instrument


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
    module = importlib.import_module(f"trainlab.execute.executors.{name}")
    if instruments and name not in ("local", "inline"):
        raise SpecError(["instruments: cannot go to another process; use on='local' or 'inline'"])
    if name in CLUSTERS:
        from trainlab.execute.executors.cluster import ClusterExecutor

        return ClusterExecutor(module.connect(detail), trial_timeout_s)
    executor: Executor = module.make(load, instruments, jobs, launcher, trial_timeout_s)
    return executor
