"""The process that started a script: the script ends with it, even if it died before anybody could look."""

import os
import signal
import sys

from trainlab.machine.orphans import end_with_parent

END = signal.SIGRTMIN + 3 if hasattr(signal, "SIGRTMIN") else signal.SIGUSR2
"""The signal to a script that was interrupted and goes on; scripts have no use for it themselves."""
STARTER = "TRAINLAB_STARTER"
"""The variable that names it; of the script's own processes it is none."""


def starter_variable() -> dict[str, str]:
    """For the environment of a process that this one starts."""
    return {STARTER: str(os.getpid())}


def end_with_starter() -> None:
    """From now on this process ends with its parent; at once, where that is another one by now."""
    starter = os.environ.pop(STARTER, "")
    end_with_parent()
    if starter and starter != str(os.getppid()):
        sys.exit(1)


def name_as_starter() -> None:
    """What this process starts from now on is to end with it."""
    os.environ |= starter_variable()
