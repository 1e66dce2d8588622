"""Watcher: hears of torch's calls and keeps what a script did: its steps, its losses, where time went."""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from trainlab.watching.seeing.follower import Follower
from trainlab.watching.seeing.hooks import Hooks
from trainlab.watching.seeing.losses import Losses
from trainlab.watching.seeing.seen import Seen, SeenLoader, lr_of, size_of
from trainlab.watching.seeing.timeline import (
    LOSS,
    OPTIMIZER,
    OTHER,
    PREPARE,
    TRANSFER,
    ZERO_GRAD,
    Timeline,
)

MEMORY_EVERY_S = 0.25
"""Between two looks at how much memory the process holds."""

LOSS_NAME = "train/loss"

StepEnds = Callable[[int], None]
"""Is told that an update was made, counted from 1."""


class Watcher:
    """What one process did, from its start on."""

    def __init__(self, start_ns: int | None = None) -> None:
        self.timeline = Timeline(start_ns=start_ns)
        self.losses, self.seen = Losses(), Seen()
        self.steps_ns: list[list[int]] = []
        """The parts of each step; the first holds what came before it, but for the start."""
        self.step_samples: list[int] = []
        """Training samples seen by the end of each step."""
        self.step_losses: list[dict[str, tuple[int, ...]]] = []
        """Of each step, by metric, the places among the losses whose sum an optimizer has followed."""
        self.step_epochs: list[int] = []
        self.step_lrs: list[float | None] = []
        self.memory_bytes: list[tuple[int, int]] = []
        """Step and resident size, now and then."""
        self.num_backward = self.num_fetched = self.num_light_steps = 0
        self.was_restarted = False
        self.num_first_models: int | None = None
        """Models seen before the script ran once more, with the same again; None: it did not."""
        self._lead: int | None = None
        """The optimizer that ends a step with its update; None: there was none yet."""
        # One that was made before the first look makes updates, too.
        self.has_optimizer = any(issubclass(type(one), Optimizer) for one in gc.get_objects())
        self._updates_by_hand = 0
        """Backward passes since the last step, where no optimizer of torch's was made."""
        self._roots: list[int] = []
        """Places of the losses since the last update by any optimizer."""
        self._followed: list[int] = []
        """Those since before the update that is under way."""
        self._of_step: dict[str, tuple[int, ...]] = {}
        self._samples = 0
        self._has_loader = False
        self._passes_before = 0
        self._fetched: tuple[SeenLoader, int] | None = None
        self._without_gradients: set[int] = set()
        """Models that ran without gradients since the last backward pass or batch."""
        self._epoch = 1
        self._process, self._looked_s = psutil.Process(), 0.0
        self.is_testing = False
        """Whether the model has been run without training since the last backward pass."""
        self.on_step: StepEnds | None = None
        self.follower: Follower | None = None
        self.hooks = Hooks(self)

    def losses_of(self, place: int) -> dict[str, float]:
        """The loss whose gradient each optimizer applied in a step: the sum of what `backward` was called
        on before its update."""
        values = self.losses.values()
        return {
            name: sum(values[one] for one in places)
            for name, places in self.step_losses[place].items()
        }

    @property
    def num_steps(self) -> int:
        """Updates so far."""
        return len(self.steps_ns)

    @property
    def device(self) -> str:
        """The kind of device that the models seen so far are on."""
        kinds = {kind for model in self.seen.models for kind in model.devices}
        return next((kind for kind in ("cuda", "mps") if kind in kinds), "cpu")

    @contextmanager
    def unseen(self) -> Iterator[None]:
        """What runs inside is ours: nothing of it is seen."""
        was_light, self.hooks.is_light = self.hooks.is_light, True
        try:
            yield
        finally:
            self.hooks.is_light = was_light

    def lead_by(self, optimizer: Optimizer) -> None:
        """Its updates are those that end a step."""
        self._lead, self.has_optimizer = id(optimizer), True

    def _following(self, moment: Callable[..., None], *arguments: Any) -> None:
        """What the follower does counts nowhere."""
        self.timeline.pause()
        try:
            moment(*arguments)
        finally:
            self.timeline.go_on()

    def close(self) -> None:
        """The script has ended."""
        self.on_step = None
        if self._updates_by_hand:
            self._step_by_hand()
        self.hooks.close()
        self.timeline.finish()

    def pass_begins(self, loader: "DataLoader[Any]") -> SeenLoader:
        seen = self.seen.loader(loader)
        seen.num_passes += 1
        if self.follower is not None:
            self._following(self.follower.pass_begins, seen)
        return seen

    def begin_again(self) -> None:
        """The script is about to run once more, with objects of its own."""
        self._lead, self._updates_by_hand, self._roots, self._fetched = None, 0, [], None
        self.was_restarted = True
        if self.num_first_models is None:
            self.num_first_models = len(self.seen.models)

    def watch_lightly(self, is_light: bool) -> None:
        """From here, the end of a step, on only batches and updates are seen, or all is again."""
        if self.hooks.is_light and not is_light:
            self.timeline.restart()
        # Where weights are updated by hand nothing else tells where a step ends.
        self.hooks.is_light = is_light and self.has_optimizer

    def data_begins(self) -> None:
        self.num_fetched += 1
        if self.hooks.is_light:
            return
        if self.hooks.is_inside_model:
            self.hooks.recover()
            self.timeline.end(OTHER)
        if self._updates_by_hand:
            self._step_by_hand()
        self.timeline.data_begins()
        self._without_gradients.clear()

    def data_ends(self, loader: SeenLoader | None, batch: object) -> None:
        if self.hooks.is_light:
            return
        self.timeline.end(PREPARE)
        if batch is not None and loader is not None:
            loader.see_batch(batch)
            self._fetched = loader, size_of(batch) or 0

    def forward_begins(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        if self._updates_by_hand:
            self._step_by_hand()
        key, has_gradients = id(module), torch.is_grad_enabled()
        is_repeated = key in self._without_gradients
        self.timeline.forward_begins(is_repeated=is_repeated)
        if is_repeated:
            self._without_gradients.clear()
        if not has_gradients:
            self._without_gradients.add(key)
        if not has_gradients or not module.training:
            self.is_testing = True
        if self.follower is not None:
            self._following(self.follower.forward_begins, module, arguments)

    def forward_ends(self, module: nn.Module) -> None:
        self.timeline.end(LOSS)
        if self.follower is not None:
            self._following(self.follower.forward_ends)
        self.seen.model(module)

    def backward_begins(self, roots: object) -> None:
        self.timeline.backward_begins()
        if roots is not None:
            self.num_backward += 1
            self._roots.append(len(self.losses))
            self.losses.add(roots)
        self._without_gradients.clear()
        self.is_testing = False
        if self._fetched is not None:
            loader, size = self._fetched
            if not loader.is_trained_on:
                loader.is_trained_on = True
            self._samples += size
            self.seen.batch_size = max(size, self.seen.batch_size or 0)
            self._fetched = None
            self._has_loader = True
            self._epoch = max(1, loader.num_passes)

    def backward_ends(self) -> None:
        self.timeline.end(OTHER)
        if not self.has_optimizer:
            self._updates_by_hand += 1
        if self.follower is not None:
            self._following(self.follower.backward_ends)

    def optimizer_made(self) -> None:
        self.has_optimizer = True

    def update_begins(self, optimizer: Optimizer) -> None:
        if self.hooks.is_light:
            return
        # It may have been made before the watch began.
        self.has_optimizer, self._updates_by_hand = True, 0
        if self.follower is not None:
            self._following(self.follower.update_begins, optimizer)
        self.timeline.begin(OPTIMIZER)
        self._followed, self._roots = self._roots, []

    def update_ends(self, optimizer: Optimizer) -> None:
        key = id(optimizer)
        if self.hooks.is_light:
            if key == self._lead or self._lead is None:
                self._lead = key
                self._light_step_ends()
            return
        self.timeline.end(OTHER)
        if self.follower is not None:
            self._following(self.follower.update_ends)
        seen = self.seen.optimizer(optimizer)
        seen.num_steps += 1
        # A closure asks for the loss again and again: the first is that of the weights before the update.
        followed, self._roots = self._followed or self._roots[:1], []
        if followed:
            number = self.seen.optimizers.index(seen) + 1
            self._of_step[f"train/loss_{number}" if number > 1 else LOSS_NAME] = tuple(followed)
        if self._lead is None:
            self._lead = key
        if key == self._lead:
            self._step_ends(lr_of(optimizer))

    def zero_grad_begins(self) -> None:
        self.timeline.begin(ZERO_GRAD)

    def zero_grad_ends(self) -> None:
        self.timeline.end(OTHER)

    def transfer_begins(self) -> None:
        self.timeline.begin(TRANSFER)

    def transfer_ends(self) -> None:
        self.timeline.end(PREPARE)

    def loss_scaled(self, scaled: object, loss: object) -> None:
        self.losses.note_scaled(scaled, loss)

    def _light_step_ends(self) -> None:
        self.num_light_steps += 1
        if self.on_step is not None:
            self.on_step(self.num_steps + self.num_light_steps)

    def _step_by_hand(self) -> None:
        """Weights that no optimizer of torch's updates: a step ends where the next batch begins."""
        self._updates_by_hand = 0
        self._of_step[LOSS_NAME], self._roots = tuple(self._roots), []
        self._step_ends(None)

    def _step_ends(self, lr: float | None) -> None:
        self.steps_ns.append(self.timeline.step_ends())
        self.step_samples.append(self._samples)
        self.step_losses.append(self._of_step)
        self._of_step = {}
        passes = self.timeline.num_evaluation_passes
        if not self._has_loader and passes > self._passes_before and self.num_steps > 1:
            # No loader tells where a pass over the data begins: after a test, say.
            self._epoch += 1
        self._passes_before = passes
        self.step_epochs.append(self._epoch)
        self.step_lrs.append(lr)
        if (now_s := time.monotonic()) - self._looked_s > MEMORY_EVERY_S:
            self._looked_s = now_s
            self.memory_bytes.append((self.num_steps, self._process.memory_info().rss))
        if self.on_step is not None:
            self.timeline.pause()
            self.on_step(self.num_steps)
            self.timeline.go_on()
