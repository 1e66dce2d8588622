"""Runs a trial in a fresh process of its own, so that nothing that ran before can colour it."""

import signal
import subprocess
import sys

from trainlab.record.folder import RunFolder
from trainlab.record.schema import Failure

PATIENCE_S = 10.0
"""How long an interrupted process may take to close its records."""


def run_fresh(folder: RunFolder, trial_id: str) -> None:
    """Starts the worker on one trial and waits. A process that dies leaves a failed trial behind."""
    command = [sys.executable, "-m", "trainlab.execute.worker", str(folder.path), trial_id]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        _, told = process.communicate()
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
        raise
    home = folder.trial(trial_id)
    record = home.read()
    if record.state in ("pending", "running"):
        lost = Failure(
            kind="ProcessDied",
            message=f"its process ended with code {process.returncode}",
            traceback=told,
        )
        home.write(record.model_copy(update={"state": "failed", "error": lost}))
