"""Where trials can run, by the names that `--on` takes."""

from collections.abc import Mapping

from trainlab.errors import SpecError
from trainlab.spec.base import did_you_mean

EXECUTORS: Mapping[str, str] = {
    "local": "this machine: a process for every group of trials, those that learn the same way in one",
    "inline": "this process alone, for debugging",
    "processes": "this machine, a fresh process for every group of trials",
    "ray": "a Ray cluster (ray://HEAD:10001, ray:ADDRESS), or one started here",
    "slurm": "a Slurm cluster, from a machine that has its commands",
}
"""By name, as in `--on`."""
CLUSTERS = frozenset({"ray", "slurm"})
"""Those that run trials elsewhere; an address or options may follow their name."""


def executor_name(on: str) -> str:
    """The executor's name, where an address or options follow it: `ray` of `ray://head:10001`."""
    return on.partition(":")[0]


def check_executor(on: str) -> None:
    """SpecError where there is none of that name."""
    name = executor_name(on)
    if name not in EXECUTORS or (name != on and name not in CLUSTERS):
        names = ", ".join(EXECUTORS)
        raise SpecError([f"--on: got {on!r}, must be one of {names}{did_you_mean(on, EXECUTORS)}"])
