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

from trainlab.errors import TrainlabError
from trainlab.machine.processes import end_with_parent
from trainlab.record.run_folder import RunFolder

THREADS_VARIABLE = "OMP_NUM_THREADS"
"""Schedulers set it too, not always as we want it."""


def run_share(text: str) -> int:
    """Runs what is left of a share; 130 where a signal ended it."""
    from trainlab.execute import launch
    from trainlab.execute.signals import signals_interrupt

    try:
        with signals_interrupt():
            launch.prepare()  # it imports torch while this process does

            from trainlab.execute.cluster import Share
            from trainlab.execute.executors import LocalExecutor
            from trainlab.train.loader import Loader

            share = Share.model_validate_json(text)
            executor = LocalExecutor(Loader(), trial_timeout_s=share.trial_timeout_s)
            with closing(executor):
                executor.run(RunFolder(Path(share.run)), share.left(), lambda: False)
    except KeyboardInterrupt:
        return 130
    return 0


def answer_preflight(text: str) -> str:
    """The devices of this machine, or the problems, as JSON."""
    from trainlab.execute.cluster import Preflight
    from trainlab.execute.preflight import preflight
    from trainlab.train.loader import Loader
    from trainlab.workloads.user_code import mistake_in

    asked = Preflight.model_validate_json(text)
    try:
        devices = preflight(asked.study, Loader(), each_device=asked.each_device)
    except TrainlabError as error:
        return json.dumps({"problems": str(error).split("\n")})
    except Exception as error:
        if (failure := mistake_in(error)) is None:
            raise
        return json.dumps({"problems": [failure.mistake]})
    return json.dumps({"devices": devices})


def main() -> int:
    """Does what its arguments say, where and with what the driver finds modules."""
    end_with_parent(by=signal.SIGTERM)
    is_preflight = sys.argv[1] == "preflight"
    text = sys.stdin.read() if is_preflight else Path(sys.argv[2]).read_text(encoding="utf-8")
    asked = json.loads(text)
    if Path(asked["folder"]).is_dir():
        os.chdir(asked["folder"])
    sys.path += [place for place in asked["path"] if place not in sys.path]
    if is_preflight:
        answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # what the user's code prints is no answer
        answers.write(answer_preflight(text) + "\n")
        answers.close()
        return 0
    # Before torch is imported: libraries read it when they are loaded.
    os.environ.pop(THREADS_VARIABLE, None)
    if asked["threads"] is not None:
        os.environ[THREADS_VARIABLE] = str(asked["threads"])
    return run_share(text)


if __name__ == "__main__":
    raise SystemExit(main())
