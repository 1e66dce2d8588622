"""Death: how a worker's process ended before its trials had, and whether that may be chance."""

import signal
from dataclasses import dataclass
from typing import Self

from trainlab.execute.job import INTERRUPTED
from trainlab.machine.device import OUT_OF_MEMORY
from trainlab.machine.host import num_killed_for_memory
from trainlab.machine.processes import signal_name
from trainlab.record.trial_record import Failure

FROM_OUTSIDE = (INTERRUPTED, -signal.SIGKILL, -signal.SIGTERM)
"""Exit codes of a process that somebody else ended."""


@dataclass(frozen=True)
class Death:
    """The end of a process that left trials behind."""

    code: int
    """Its exit code; minus the number of the signal that ended it."""
    limit_s: float | None = None
    """How long it could take, where it took longer and was ended for it."""
    ran_out_of_memory: bool = False
    """Whether the system killed a process for memory meanwhile, and this one was killed."""

    @classmethod
    def of(cls, code: int | None, limit_s: float | None, num_killed_before: int) -> Self:
        """Of a process that has ended. `limit_s`: where it was ended for taking longer; the number is that
        of processes that the system had killed for memory when this one was started."""
        assert code is not None
        more_killed = num_killed_for_memory() > num_killed_before
        return cls(code, limit_s, ran_out_of_memory=code == -signal.SIGKILL and more_killed)

    @property
    def is_from_outside(self) -> bool:
        """Whether its trials may well end as usual once more."""
        is_known = self.limit_s is not None or self.ran_out_of_memory
        return not is_known and self.code in FROM_OUTSIDE

    def failure(self, log: str) -> Failure:
        """Of each trial it left behind, with the end of its log."""
        kind, message = self._reason()
        return Failure(kind=kind, message=message, traceback=log)

    def _reason(self) -> tuple[str, str]:
        if self.limit_s is not None:
            text = f"took longer than {_time_text(self.limit_s)}"
            return "TimedOut", f"{text}; give it more with --trial-timeout, or see where it hangs"
        if self.ran_out_of_memory:
            remedy = "use a smaller batch, or fewer --jobs"
            return OUT_OF_MEMORY, f"its process was killed because memory ran out; {remedy}"
        if self.code == INTERRUPTED:
            return "ProcessDied", "its process was told to end from outside"
        if self.code < 0:
            return "ProcessDied", f"its process was ended by {signal_name(-self.code)}"
        return "ProcessDied", f"its process ended with code {self.code}"


def _time_text(seconds: float) -> str:
    for unit, length_s in (("h", 3600), ("min", 60)):
        if seconds >= length_s and not seconds % length_s:
            return f"{seconds / length_s:g} {unit}"
    return f"{seconds:g} s"
