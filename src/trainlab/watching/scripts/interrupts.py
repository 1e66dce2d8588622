"""Interrupts: how a script is told to end, by the process that started it."""

import os
import signal
import threading
from types import FrameType

from trainlab.watching.scripts.parent import END
from trainlab.watching.scripts.running import EndOfWatch

WRAPPERS = "trainlab.watching.seeing.calls."
OURS = (
    *("trainlab.watching.seeing.", "trainlab.watching.curve", "trainlab.watching.following."),
    *("trainlab.watching.whole", "trainlab.record.", "trainlab.instruments."),
)
"""Modules that see and write while the script runs."""
DONE_S = 0.02
"""Until an interrupt that came amid these comes again."""


class Interrupts:
    """Signals of our starter, which only it sends. They come when what we do in between is done, which they
    would leave half done."""

    def __init__(self) -> None:
        self.have_come = False

    def heed(self) -> None:
        """From now on SIGINT raises KeyboardInterrupt in the script, even where a shell has this process
        ignore it; END, for scripts that go on all the same, what they do not catch."""
        self._raise_at(signal.SIGINT, KeyboardInterrupt)
        self._raise_at(END, EndOfWatch)

    def ignore(self) -> None:
        """What follows is ours."""
        for number in (signal.SIGINT, END):
            # Not SIG_IGN: Python complains of one that has come and is ignored by now.
            signal.signal(number, lambda number, frame: None)

    def _raise_at(self, number: int, kind: type[BaseException]) -> None:
        def interrupt(number: int, frame: FrameType | None) -> None:
            self.have_come = True
            if not _is_ours(frame):
                raise kind
            later = threading.Timer(DONE_S, os.kill, (os.getpid(), number))
            later.daemon = True
            later.start()

        signal.signal(number, interrupt)


def _is_ours(frame: FrameType | None) -> bool:
    """Whether something of ours is under way; a call of torch's that one of our wrappers passes on is the
    script's."""
    is_innermost = True
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if module.startswith(OURS) and (is_innermost or not module.startswith(WRAPPERS)):
            return True
        is_innermost, frame = False, frame.f_back
    return False
