"""A node: one machine of a cluster, and what it does there for a run.

    python -P -m trainlab.execute.node run SHARE.json      runs the trials of a share
    python -P -m trainlab.execute.node preflight           checks the study on standard input

A share is JSON in a file of the run folder, which every node can read and write; so are the records that
come of it. A share that is run again leaves out what has ended: a scheduler may requeue it.
"""

import json
import os
import signal
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from trainlab.errors import TrainlabError
from trainlab.execute import launch
from trainlab.execute.cluster import Preflight, Share
from trainlab.execute.signals import signals_interrupt
from trainlab.machine.processes import end_with_parent
from trainlab.record.run_folder import RunFolder

THREADS_VARIABLE = "OMP_NUM_THREADS"
"""Schedulers set it too, not always as we want it."""


def run_share(share: Share) -> int:
    """Runs what is left of a share; 130 where a signal ended it."""
    # Before torch is imported: libraries read it when they are loaded.
    os.environ.pop(THREADS_VARIABLE, None)
    if share.threads is not None:
        os.environ[THREADS_VARIABLE] = str(share.threads)
    try:
        with signals_interrupt():
            launch.prepare()  # it imports torch while this process does

            from trainlab.execute.executors import LocalExecutor
            from trainlab.train.loader import Loader

            executor = LocalExecutor(Loader(), trial_timeout_s=share.trial_timeout_s)
            with closing(executor):
                executor.run(RunFolder(Path(share.run)), share.left(), lambda: False)
    except KeyboardInterrupt:
        return 130
    return 0


def answer_preflight(asked: Preflight) -> dict[str, Any]:
    """The devices of this machine, or the problems."""
    from trainlab.execute.preflight import preflight
    from trainlab.train.loader import Loader
    from trainlab.workloads.user_code import mistake_in

    try:
        return {"devices": preflight(asked.study, Loader(), each_device=asked.each_device)}
    except TrainlabError as error:
        return {"problems": str(error).splitlines()}
    except Exception as error:
        if (failure := mistake_in(error)) is None:
            raise
        return {"problems": [failure.mistake]}


def main() -> int:
    """Does what its arguments say, where and with what the driver finds modules."""
    end_with_parent(by=signal.SIGTERM)
    asked: Share | Preflight
    if sys.argv[1] == "preflight":
        asked = Preflight.model_validate_json(sys.stdin.read())
    else:
        asked = Share.model_validate_json(Path(sys.argv[2]).read_text(encoding="utf-8"))
    if Path(asked.folder).is_dir():
        os.chdir(asked.folder)
    sys.path += [place for place in asked.path if place not in sys.path]
    if isinstance(asked, Share):
        return run_share(asked)
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)  # what the user's code prints is no answer
        print(json.dumps(answer_preflight(asked)), file=answers)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
