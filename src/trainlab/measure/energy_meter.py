"""What the GPU takes, by the counter of its driver: NVML counts the energy of the whole board, from when
the driver was loaded, and moves its counter on every 20 to 100 ms."""

import os
import time
from collections.abc import Callable
from typing import Any

import pynvml
import torch

from trainlab.machine.device import synchronize
from trainlab.record.cost_record import EnergyRecord

LEAD_S = 0.15
"""The draw settles, and the clocks."""
WINDOW_S = 0.5
"""Between two moves of the counter, at least: it is off by one of them at most."""
MOST_S = 1.2
"""A window that has not ended by then gives nothing, unless it has come half as far."""
LOOK_EVERY_S = 0.005


class EnergyMeter:
    """The counter of one GPU."""

    def __init__(self, handle: Any, nvml: Any = pynvml) -> None:
        self._handle, self._nvml = handle, nvml

    @classmethod
    def open(cls, device: torch.device, nvml: Any = pynvml) -> "EnergyMeter | None":
        """None where nothing counts the energy of the device: a CPU, an older GPU, a part of one; and for
        one of several processes, which each have a GPU of their own."""
        if device.type != "cuda" or int(os.environ.get("WORLD_SIZE", "1")) > 1:
            return None
        try:
            nvml.nvmlInit()
            # Which GPU has what number is another matter for the driver.
            uuid = torch.cuda.get_device_properties(device).uuid
            meter = cls(nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}"), nvml)
            meter.joules()
        except (nvml.NVMLError, AttributeError, RuntimeError):
            return None
        return meter

    def joules(self) -> float:
        """So far."""
        return float(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)) / 1e3


class EnergyWindow:
    """Steps one after the other, between two moves of the counter."""

    def __init__(
        self,
        meter: EnergyMeter,
        device: torch.device,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._meter, self._device, self._clock = meter, device, clock
        self._num_steps, self._begun_s = 0, clock()
        self._looked_s, self._joules = self._begun_s, meter.joules()
        self._first: tuple[int, float, float] | None = None
        self._last = 0, 0.0, 0.0
        """Steps, seconds and joules at the first and last move that count."""

    def step_ended(self) -> bool:
        """Whether that was the last step of the window."""
        self._num_steps += 1
        if self._clock() - self._looked_s < LOOK_EVERY_S:
            return False
        synchronize(self._device)
        self._looked_s, joules = self._clock(), self._meter.joules()
        if joules != self._joules and self._looked_s - self._begun_s >= LEAD_S:
            self._last = self._num_steps, self._looked_s, joules
            self._first = self._first or self._last
        self._joules = joules
        return self._seconds >= WINDOW_S or self._looked_s - self._begun_s >= MOST_S

    @property
    def _seconds(self) -> float:
        return 0.0 if self._first is None else self._last[1] - self._first[1]

    def record(self) -> EnergyRecord | None:
        """None where the counter stood still, or the steps are too long."""
        if self._first is None or self._seconds < WINDOW_S / 2:
            return None
        steps, _, joules = (end - begin for begin, end in zip(self._first, self._last, strict=True))
        return EnergyRecord(num_steps=int(steps), joules=joules, wall_s=self._seconds)
