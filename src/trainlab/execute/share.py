"""What a node of a cluster is asked to do, and what it answers: JSON."""

import json
from pathlib import Path

from trainlab.execute.checking.answers import raise_told
from trainlab.plan import Group
from trainlab.record.run_folder import RunFolder
from trainlab.record.trial_record import State
from trainlab.spec import Spec, Study

UNENDED: frozenset[State] = frozenset({"pending", "running", "interrupted"})
"""Trials in such a state are still to be run."""


class Share(Spec):
    """Groups that one node runs."""

    run: str
    """The run folder."""
    groups: tuple[Group, ...]
    threads: int | None
    """For trials that do not say how many; None: all of the machine."""
    trial_timeout_s: float | None = None
    """How long a trial may take."""
    folder: str
    """The driver's current folder: workloads may be named relative to it."""
    path: tuple[str, ...] = ()
    """Where the driver finds modules, looked at last."""

    def left(self) -> tuple[Group, ...]:
        """Its groups with a trial that has not ended."""
        run = RunFolder(Path(self.run))
        return tuple(
            group
            for group in self.groups
            if any(run.trial(trial_id).read().state in UNENDED for trial_id in group.ids)
        )


class Preflight(Spec):
    """A study that is to be checked where its trials will run."""

    study: Study
    each_device: bool
    folder: str
    path: tuple[str, ...] = ()


def devices_of(answer: str) -> tuple[str, ...]:
    """What `answer_preflight` found; its error raised here."""
    told = json.loads(answer)
    raise_told(told)
    return tuple(told["devices"])
