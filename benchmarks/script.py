"""The sample script's training loop as people run it: a loader, per-image Python, a loss printed at times.

And the same in Lightning. Both run block after block, so that they can take turns with ours.
"""

import importlib
import importlib.util
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from benchmarks.loop import Images
from trainlab.machine.device import synchronize
from trainlab.train.setup import Setup

LOG_EVERY = 10
"""Updates between two losses that the script prints."""
WORKERS = {"mnist-cnn": 1, "fashion-mlp": 4}
"""Loader processes on a GPU, as the sample scripts of the two labs have them."""


def loader_of(setup: Setup) -> DataLoader[Any]:
    """Shuffled images, one by one through Python; on a GPU by processes, into pinned memory."""
    scale = setup.workload.prepare
    images = Images(setup.dataset.train, scale.mean, scale.std)  # type: ignore[attr-defined]
    options: dict[str, Any] = {}
    if setup.device.type == "cuda":
        workers = WORKERS[setup.workload.name]
        options = {"num_workers": workers, "pin_memory": True, "persistent_workers": True}
    return DataLoader(images, batch_size=setup.settings.batch_size, shuffle=True, **options)


def script(setup: Setup) -> Callable[[int], None]:
    """Makes so many updates each time it is called, epoch after epoch."""
    loader = loader_of(setup)
    model, optimizer, loss_of = setup.model, setup.optimizer, setup.workload.loss

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            yield from loader

    endless = batches()

    def block(num_steps: int) -> None:
        model.train()
        for number in range(num_steps):
            inputs, targets = next(endless)
            moved, wanted = inputs.to(setup.device), targets.to(setup.device)
            optimizer.zero_grad()
            loss = loss_of(model(moved), wanted)
            loss.backward()
            optimizer.step()
            if number % LOG_EVERY == 0:
                float(loss.detach())

    return block


def lightning(setup: Setup, skip: int) -> Callable[[int], float] | None:
    """Trains for so many updates and returns the seconds of those after the first `skip`; None where
    Lightning is not installed."""
    if importlib.util.find_spec("lightning") is None:
        return None
    light: Any = importlib.import_module("lightning")
    loader = loader_of(setup)

    class Module(light.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model: nn.Module = setup.model

        def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
            inputs, targets = batch
            loss: Tensor = setup.workload.loss(self.model(inputs), targets)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return setup.optimizer

    class Clock(light.Callback):  # type: ignore[misc]
        started = 0.0

        def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, index: int) -> None:
            if trainer.global_step == skip:
                synchronize(setup.device)
                self.started = time.perf_counter()

    def block(num_steps: int) -> float:
        clock = Clock()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trainer = light.Trainer(
                max_steps=num_steps + skip,
                accelerator="gpu" if setup.device.type == "cuda" else "cpu",
                devices=1,
                logger=False,
                enable_checkpointing=False,
                enable_progress_bar=False,
                enable_model_summary=False,
                callbacks=[clock],
            )
            trainer.fit(Module(), loader)
        synchronize(setup.device)
        seconds = time.perf_counter() - clock.started
        setup.model.to(setup.device)
        return seconds

    return block
