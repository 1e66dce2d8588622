"""What the first steps of a process pay for that later ones do not: evidence, phase by phase."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from trainlab.machine.device import synchronize
from trainlab.record.cost_record import ColdStep
from trainlab.train.callbacks import Instrument, Phase

MAPS = Path("/proc/self/maps")


class ColdWatch(Instrument):
    """Times the phases of single steps, waiting for the device after each: exact, but slow."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._phases_ms: dict[str, float] = {}
        self._since = 0

    def phase_ends(self, phase: Phase) -> None:
        self._mark(phase)

    def observe(self, work: Callable[[], object]) -> ColdStep:
        """Runs one step, which must tell its phases to this instrument."""
        before = _counts(self._device)
        self._phases_ms = {}
        synchronize(self._device)
        self._since = time.perf_counter_ns()
        work()
        self._mark("other")
        done = _counts(self._device)
        gone = {
            name: None if at is None or was is None else at - was
            for (name, at), was in zip(done.items(), before.values(), strict=True)
        }
        return ColdStep.model_validate({"phases_ms": self._phases_ms, **gone})

    def _mark(self, phase: str) -> None:
        synchronize(self._device)
        now = time.perf_counter_ns()
        self._phases_ms[phase] = self._phases_ms.get(phase, 0.0) + (now - self._since) / 1e6
        self._since = now


def _counts(device: torch.device) -> dict[str, int | None]:
    """Running counts of this process; the difference over a step is what the step did."""
    return {
        "page_faults": _page_faults(),
        "modules_imported": len(sys.modules),
        "libraries_loaded": _libraries(),
        "device_allocations": _device_allocations(device),
    }


def _page_faults() -> int | None:
    if sys.platform == "win32":
        return None
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_minflt + used.ru_majflt


def _libraries() -> int | None:
    if not MAPS.exists():
        return None
    paths = {line.split(maxsplit=5)[5] for line in MAPS.read_text().splitlines() if "/" in line}
    return sum(".so" in path for path in paths)


def _device_allocations(device: torch.device) -> int | None:
    if device.type != "cuda":
        return None
    return int(torch.cuda.memory_stats(device).get("num_device_alloc", 0))
