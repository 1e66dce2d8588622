"""A fresh process: imports all it needs, sleeps until its turn has come, runs one trial."""

import os
import sys
from pathlib import Path

import torch._dynamo  # noqa: F401  torch imports it with the first optimizer: a second of its own

from trainlab.errors import TrainlabError
from trainlab.execute.worker import run_group
from trainlab.record.folder import RunFolder


def main() -> int:
    """Runs `RUN TRIAL` when a line comes; leaves when none will."""
    try:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        if not sys.stdin.readline():
            return 0
        # What the user's code prints belongs to no one.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        run_group(RunFolder(Path(sys.argv[1])), sys.argv[2:])
    except TrainlabError:
        return 2  # told in the trial's record
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
