"""Setup: a trial's model, data and optimizer, ready on the device."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import nn

from trainlab.data.dataset import Dataset
from trainlab.machine.device import device_name, pick_device
from trainlab.machine.environment import tf32_modes
from trainlab.machine.process import prepare_process, process_state
from trainlab.plan import Trial
from trainlab.record.folder import TrialFolder
from trainlab.record.note import Note
from trainlab.spec import TrainSpec
from trainlab.train.batches import Batches
from trainlab.train.moments import TrialView
from trainlab.train.optimizers import make_optimizer, optimizer_code
from trainlab.train.seeds import seeded
from trainlab.workloads.workload import Workload

POINTS_PER_EPOCH = 50
MIN_STEPS_PER_POINT = 5
"""A point waits for the device; more often than this it would slow small models down."""


@dataclass(frozen=True)
class Setup:
    """What an engine works on."""

    trial: Trial
    workload: Workload
    dataset: Dataset
    device: torch.device
    model: nn.Module
    train_batches: Batches
    test_batches: Batches
    notes: list[Note]
    """What could not be done, and why; ends up in the trial's record."""
    engine_facts: dict[str, Any] = field(default_factory=dict)
    """What an engine has decided on this machine; ends up in the trial's `resolved`."""

    @cached_property
    def optimizer(self) -> torch.optim.Optimizer:
        """Made when first needed: inference needs none, and torch then imports for a second."""
        return make_optimizer(self.settings, self.model.parameters(), self.device)

    def use_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Puts another optimizer that makes the same updates in its place, with the state so far."""
        if "optimizer" in vars(self):
            optimizer.load_state_dict(self.optimizer.state_dict())
        vars(self)["optimizer"] = optimizer

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

    def view(self, folder: TrialFolder, steps_before: int = 0) -> TrialView:
        """What instruments get to see; their records go to this folder."""
        test_inputs = self.dataset.test.inputs
        return TrialView(
            trial=self.trial,
            device=self.device,
            model=self.model,
            folder=folder,
            num_steps=self.settings.epochs * len(self.train_batches),
            samples_by=self.train_batches.samples_by,
            stored_inputs=lambda count: test_inputs[:count],
            model_inputs=lambda count: self.workload.prepare(
                test_inputs[:count].to(self.device, copy=True)
            ),
            notes=self.notes,
            steps_before=steps_before,
        )

    def resolved(self) -> dict[str, Any]:
        """What the settings became on this machine; recorded, so that differences between runs show."""
        parameters = list(self.model.parameters())
        return {
            "device": str(self.device),
            "device_name": device_name(self.device),
            "lr": self.settings.start_lr,
            "optimizer_code": optimizer_code(self.settings, self.device),
            "log_every_steps": self.log_every_steps,
            "steps_per_epoch": len(self.train_batches),
            "batch_size": min(self.settings.batch_size, self.train_batches.num_samples),
            "code": self.workload.code,
            "num_parameters": sum(p.numel() for p in parameters),
            "num_trainable": sum(p.numel() for p in parameters if p.requires_grad),
            "data_resident": self.train_batches.resident,
            "shuffle": True,
            "tf32": tf32_modes(),
            "cudnn_benchmark": torch.backends.cudnn.benchmark,
            "deterministic": torch.are_deterministic_algorithms_enabled(),
            **process_state(),
        }


def set_up(
    trial: Trial,
    workload: Workload,
    dataset: Dataset,
    notes: list[Note] | None = None,
    engine_facts: dict[str, Any] | None = None,
) -> Setup:
    """Everything a trial needs before its first update; initial weights derive from its seed alone."""
    settings = trial.settings
    prepare_process(settings)
    device = pick_device(settings.device)
    if device.type == "cuda":
        torch.cuda.set_device(device.index or 0)  # events and streams are the current device's
    with seeded(trial.seed_of("weights"), "weights"):
        # On the CPU first: the same seed gives the same weights on every device.
        model = workload.build(settings.model)
    model.to(device)
    return Setup(
        trial=trial,
        workload=workload,
        dataset=dataset,
        device=device,
        model=model,
        train_batches=Batches(dataset.train, settings.batch_size, device),
        test_batches=Batches(dataset.test, settings.test_batch_size, device),
        notes=[] if notes is None else notes,
        engine_facts={} if engine_facts is None else engine_facts,
    )
