"""What else the machine was doing while something was measured."""

import os
import time
from pathlib import Path

import psutil

from trainlab.record.cost import LoadRecord


class LoadMeter:
    """Started before a measurement and read after it."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._start = time.monotonic()
        self._machine = psutil.cpu_times()
        self._own = self._process.cpu_times()
        # Windows has no such average.
        self._load_before = os.getloadavg()[0] if hasattr(os, "getloadavg") else None

    def read(self) -> LoadRecord:
        """Cores used by others and stolen by the host, on average since the start."""
        elapsed = max(time.monotonic() - self._start, 1e-9)
        machine, own = psutil.cpu_times(), self._process.cpu_times()
        busy = _busy(machine) - _busy(self._machine)
        own_s = own.user + own.system - self._own.user - self._own.system
        stolen = getattr(machine, "steal", 0.0) - getattr(self._machine, "steal", 0.0)
        return LoadRecord(
            load_before=self._load_before,
            others_cores=max(0.0, (busy - own_s) / elapsed),
            stolen_cores=stolen / elapsed,
            cpu_mhz=getattr(psutil.cpu_freq(), "current", None),
            governor=_governor(),
            affinity=_affinity(),
        )


def _busy(times: object) -> float:
    return sum(getattr(times, name, 0.0) for name in ("user", "nice", "system", "irq", "softirq"))


def _affinity() -> list[int] | None:
    """The vCPUs this process may use; not every system tells."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def _governor() -> str | None:
    path = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    return path.read_text().strip() if path.exists() else None
