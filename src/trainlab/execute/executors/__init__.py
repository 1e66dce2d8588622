"""Executors: where and in what order the groups of a run are run. One file each, imported when used."""

import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from trainlab.errors import SpecError
from trainlab.spec.suggestion import did_you_mean

if TYPE_CHECKING:
    from trainlab.execute.executors.executor import Executor
    from trainlab.execute.jobs import AskedJobs
    from trainlab.execute.launch.launcher import Launcher
    from trainlab.train.loader import Loader
    from trainlab.train.moments import Instrument

EXECUTORS: Mapping[str, str] = {
    "local": "this machine: a process for every group of trials, those that learn the same way in one",
    "inline": "this process alone, for debugging",
    "processes": "this machine, a fresh process for every group of trials",
    "ray": "a Ray cluster (ray://HEAD:10001, ray:ADDRESS), or one started here",
    "slurm": "a Slurm cluster, from a machine that has its commands",
}
"""By name, as in `--on`; the module of that name has `make`, which takes what `executor_for` does."""
CLUSTERS = frozenset({"ray", "slurm"})
"""Those that run trials elsewhere; their module has `connect`, which takes what follows the name."""


def executor_name(on: str) -> str:
    """The executor's name, where an address or options follow it: `ray` of `ray://head:10001`."""
    return on.partition(":")[0]


def check_executor(on: str) -> None:
    """SpecError where there is none of that name."""
    name = executor_name(on)
    if name not in EXECUTORS or (name != on and name not in CLUSTERS):
        names = ", ".join(EXECUTORS)
        raise SpecError([f"--on: got {on!r}, must be one of {names}{did_you_mean(on, EXECUTORS)}"])


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
