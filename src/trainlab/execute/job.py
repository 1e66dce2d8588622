"""A fresh process: imports all it needs, sleeps until its turn has come, runs its trials."""

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from trainlab.errors import TrainlabError
from trainlab.execute.worker import Loader, run_group
from trainlab.record.folder import RunFolder


def main() -> int:
    """Runs `RUN TRIAL ...` when a line comes; leaves when none will."""
    folder, trial_ids = RunFolder(Path(sys.argv[1])), sys.argv[2:]
    try:
        _import_ahead(folder, trial_ids)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        if not sys.stdin.readline():
            return 0
        # What the user's code prints belongs to no one.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        load = Loader()
        return max(_run(folder, trial_id, load) for trial_id in trial_ids)
    except KeyboardInterrupt:
        return 130


def _import_ahead(folder: RunFolder, trial_ids: Sequence[str]) -> None:
    """torch's optimizers import this when the first is made, which takes a second."""
    costs = [folder.trial(trial_id).read().cost or {} for trial_id in trial_ids]
    if any(cost.get("mode") == "train" for cost in costs):
        importlib.import_module("torch._dynamo")


def _run(folder: RunFolder, trial_id: str, load: Loader) -> int:
    """A user's mistake is told in the trial's record, and the next one runs."""
    try:
        run_group(folder, [trial_id], load=load)
    except TrainlabError:
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
