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
    "local": "this machine: fresh processes for what must be alone, side by side or this one for all else",
    "inline": "this process alone, for debugging",
    "processes": "this machine, a fresh process for every group of trials",
}
"""By name, as in `--on`; the module of that name has `make`, which takes what `executor_for` does."""


def check_executor(on: str) -> None:
    """SpecError where there is none of that name."""
    if on not in EXECUTORS:
        names = ", ".join(EXECUTORS)
        raise SpecError([f"--on: got {on!r}, must be one of {names}{did_you_mean(on, EXECUTORS)}"])


def executor_for(
    on: str,
    load: "Loader",
    instruments: "Sequence[Instrument]" = (),
    jobs: "AskedJobs" = 1,
    launcher: "Launcher | None" = None,
) -> "Executor":
    """The executor of that name; SpecError where there is none, or it cannot take the instruments."""
    check_executor(on)
    module = importlib.import_module(f"trainlab.execute.executors.{on}")
    executor: Executor = module.make(load, instruments, jobs, launcher)
    return executor
