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

from trainlab.execute.checking.answers import told_error
from trainlab.execute.share import Preflight, Share
from trainlab.machine.processes import end_with_parent
from trainlab.record.run_folder import RunFolder

THREADS_VARIABLE = "OMP_NUM_THREADS"
"""Schedulers set it too, not always as we want it."""


def run_share(share: Share) -> int:
    """Runs what is left of a share; 130 where a signal ended it."""
    from trainlab.execute.launch.launcher import Launcher
    from trainlab.execute.signals import signals_interrupt

    launcher = Launcher()
    try:
        with signals_interrupt(), closing(launcher):
            launcher.prepare()  # it imports torch while this process does

            from trainlab.execute.executors.processes import ProcessesExecutor
            from trainlab.execute.packing import packed_here
            from trainlab.train.loader import Loader

            executor = ProcessesExecutor(Loader(), 1, launcher, share.trial_timeout_s)
            executor.run(RunFolder(Path(share.run)), packed_here(share.left()), lambda: False)
    except KeyboardInterrupt:
        return 130
    return 0


def answer_preflight(asked: Preflight) -> str:
    """The devices of this machine, or the error, as JSON."""
    from trainlab.execute.preflight import preflight
    from trainlab.train.loader import Loader

    try:
        devices = preflight(asked.study, Loader(), each_device=asked.each_device)
    except Exception as error:
        if (told := told_error(error)) is None:
            raise
        return json.dumps(told)
    return json.dumps({"devices": devices})


def main() -> int:
    """Does what its arguments say."""
    end_with_parent(by=signal.SIGTERM)
    if sys.argv[1] == "preflight":
        asked = Preflight.model_validate_json(sys.stdin.buffer.read())
        _be_as_the_driver(asked.folder, asked.path)
        answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # what the user's code prints is no answer
        answers.write(answer_preflight(asked) + "\n")
        answers.close()
        return 0
    share = Share.model_validate_json(Path(sys.argv[2]).read_bytes())
    _be_as_the_driver(share.folder, share.path)
    # Before torch is imported: libraries read it when they are loaded.
    if share.threads is None:
        os.environ.pop(THREADS_VARIABLE, None)
    else:
        os.environ[THREADS_VARIABLE] = str(share.threads)
    return run_share(share)


def _be_as_the_driver(folder: str, path: tuple[str, ...]) -> None:
    if Path(folder).is_dir():
        os.chdir(folder)
    sys.path += [place for place in path if place not in sys.path]


if __name__ == "__main__":
    raise SystemExit(main())
