"""A job: a group of trials for a worker in a process of its own, as JSON.

    python -P -m trainlab.execute.job '{"run": …, "trials": […], "environment": …}'

The process imports all it needs, says `ready`, sleeps until a line comes, and runs its trials.
"""

import importlib
import os
import sys
from pathlib import Path

from trainlab.execute.worker import run_group
from trainlab.record.folder import RunFolder
from trainlab.spec import Spec
from trainlab.train.loader import Loader


class Job(Spec):
    """What a worker process is told."""

    run: str
    """The run folder."""
    trials: tuple[str, ...]
    environment: str
    """The name under which the machine is recorded."""


def main() -> int:
    """Runs the job given as the first argument when a line comes; leaves when none will."""
    job = Job.model_validate_json(sys.argv[1])
    run = RunFolder(Path(job.run))
    try:
        _import_ahead(run, job)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        if not sys.stdin.readline():
            return 0
        # What the user's code prints belongs to no one.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        run_group(run, job.trials, job.environment, Loader())
    except KeyboardInterrupt:
        return 130
    return 0


def _import_ahead(run: RunFolder, job: Job) -> None:
    """torch's optimizers import this when the first is made, which takes a second."""
    if any(run.trial(trial_id).read().mode != "inference" for trial_id in job.trials):
        importlib.import_module("torch._dynamo")


if __name__ == "__main__":
    sys.exit(main())
