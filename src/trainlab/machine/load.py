"""What else the machine was doing while something was measured."""

import os
import time
from dataclasses import dataclass

import psutil

from trainlab.record.cost_record import LoadRecord


@dataclass(frozen=True)
class CpuTimes:
    """What the CPUs of the machine had done at a moment, in seconds."""

    at_s: float
    busy_s: float
    stolen_s: float
    own_s: float
    """Of this process, its threads included."""

    def cores_since(self, before: "CpuTimes") -> tuple[float, float]:
        """Cores used by others and cores stolen by the host, on average since then."""
        elapsed_s = max(self.at_s - before.at_s, 1e-9)
        others_s = self.busy_s - before.busy_s - (self.own_s - before.own_s)
        return max(0.0, others_s / elapsed_s), (self.stolen_s - before.stolen_s) / elapsed_s


def cpu_times() -> CpuTimes:
    """Now. Systems count in ticks of 10 ms: over less than a tenth of a second it says little."""
    machine, own = psutil.cpu_times(), os.times()
    kinds = ("user", "nice", "system", "irq", "softirq")
    return CpuTimes(
        at_s=time.monotonic(),
        busy_s=sum(getattr(machine, name, 0.0) for name in kinds),
        stolen_s=getattr(machine, "steal", 0.0),
        own_s=own.user + own.system,
    )


class LoadMeter:
    def __init__(self) -> None:
        self._start = cpu_times()

    def read(self) -> LoadRecord:
        """Cores used by others and stolen by the host, on average since the start."""
        others, stolen = cpu_times().cores_since(self._start)
        return LoadRecord(others_cores=others, stolen_cores=stolen)
