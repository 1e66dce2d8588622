"""Bench: a trial's model, data and optimizer, standing ready on the device."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from trainlab.data.dataset import Dataset
from trainlab.machine.allocator import keep_freed_memory, keeps_freed_memory
from trainlab.machine.denormals import flush_denormals, flushes_denormals
from trainlab.machine.device import pick_device
from trainlab.machine.environment import tf32_modes
from trainlab.plan import Trial
from trainlab.record.folder import TrialFolder
from trainlab.spec import TrainSpec
from trainlab.train.batches import Batches
from trainlab.train.optimizers import make_optimizer, optimizer_code
from trainlab.train.seeds import drawing_from
from trainlab.workloads.workload import Workload

POINTS_PER_EPOCH = 50
MIN_STEPS_PER_POINT = 5
"""A point waits for the device; more often than this it would slow small models down."""


@dataclass
class Bench:
    """What the loop works on and what an instrument may look at."""

    trial: Trial
    workload: Workload
    dataset: Dataset
    device: torch.device
    model: nn.Module
    train_batches: Batches
    test_batches: Batches
    folder: TrialFolder
    notes: list[str] = field(default_factory=list)
    """What an instrument could not do, and why; ends up in the trial's record."""

    @cached_property
    def optimizer(self) -> torch.optim.Optimizer:
        """Made when first asked for: inference needs none, and torch imports for a second with it."""
        return make_optimizer(self.settings, self.model.parameters(), self.device)

    @property
    def settings(self) -> TrainSpec:
        """The trial's settings."""
        return self.trial.settings

    @property
    def log_every_steps(self) -> int:
        """Updates between two points of the curve."""
        auto = max(MIN_STEPS_PER_POINT, len(self.train_batches) // POINTS_PER_EPOCH)
        return self.settings.log_every_steps or auto

    def autocast(self) -> AbstractContextManager[Any]:
        """The precision that forward and loss run in."""
        if self.settings.precision == "bf16":
            return torch.autocast(self.device.type, torch.bfloat16)
        return nullcontext()

    def sample_inputs(self, count: int) -> Tensor:
        """The first test inputs as the model gets them, on the device."""
        stored = self.dataset.test.inputs[:count].to(self.device)
        return self.workload.prepare(stored)

    def resolved(self) -> dict[str, Any]:
        """What the settings became here: recorded, so that hidden differences cannot hide."""
        trainable = [p.numel() for p in self.model.parameters() if p.requires_grad]
        return {
            "device": str(self.device),
            "device_name": _device_name(self.device),
            "threads": torch.get_num_threads(),
            "lr": self.settings.start_lr,
            "optimizer_code": optimizer_code(self.settings, self.device),
            "log_every_steps": self.log_every_steps,
            "steps_per_epoch": len(self.train_batches),
            "batch_size": min(self.settings.batch_size, self.train_batches.num_samples),
            "code": self.workload.code,
            "num_parameters": sum(p.numel() for p in self.model.parameters()),
            "num_trainable": sum(trainable),
            "allocator_keeps_memory": keeps_freed_memory(),
            "flushes_denormals": flushes_denormals(),
            "data_resident": self.train_batches.resident,
            "shuffle": True,
            "tf32": tf32_modes(),
            "cudnn_benchmark": torch.backends.cudnn.benchmark,
            "deterministic": torch.are_deterministic_algorithms_enabled(),
        }


def load_data(workload: Workload, choice: str) -> Dataset:
    """The workload's data; what it draws itself is the same for every trial and seed."""
    with drawing_from(0, "data"):
        return workload.data(choice)


def prepare_process(settings: TrainSpec) -> None:
    """What concerns the whole process: to be done before torch's threads start, that is, before data."""
    if settings.allocator == "keep":
        keep_freed_memory()
    flush_denormals(settings.denormals == "flush")


def set_up(
    trial: Trial, workload: Workload, folder: TrialFolder, dataset: Dataset | None = None
) -> Bench:
    """Everything a trial needs before its first update; initial weights derive from its seed alone."""
    settings = trial.settings
    prepare_process(settings)
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    device = pick_device(settings.device)
    if device.type == "cuda":
        torch.cuda.set_device(device.index or 0)  # events and streams are the current device's
    dataset = dataset or load_data(workload, settings.data)
    with drawing_from(trial.seed, "weights"):
        # On the CPU first: the same seed gives the same weights on every device.
        model = workload.build(settings.model)
    model.to(device)
    return Bench(
        trial=trial,
        workload=workload,
        dataset=dataset,
        device=device,
        model=model,
        train_batches=Batches(dataset.train, settings.batch_size, device),
        test_batches=Batches(dataset.test, settings.test_batch_size, device),
        folder=folder,
    )


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
