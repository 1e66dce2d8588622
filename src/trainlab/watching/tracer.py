"""Tracer: hears of torch's calls and keeps what a script did: its steps, its losses, where time went.

The first steps are seen whole, and then short bursts at random: what a script does now and then is met by
chance. Between bursts batches, losses and updates are counted, so that a script runs nearly as fast as by
itself. A burst begins, too, where a test or a pass over the data does.
"""

import gc
import os
import random
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter_ns
from typing import Any

import psutil
import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from trainlab.errors import SpecError
from trainlab.watching.hooks import COUNTS, LIGHT, WHOLE, Hooks
from trainlab.watching.step_log import SeenLoader, StepLog
from trainlab.watching.timeline import LOSS, OPTIMIZER, OTHER, PREPARE, Clock, Timeline

FIRST = 100
"""All of so many steps are seen whole."""
BURST = 10
"""Then so many each time,"""
EVERY = 100
"""once in so many on average."""
ALL_UP_TO = 1000
"""So many steps are each kept; then every second one, of twice as many; and so on."""
MEMORY_EVERY_S = 0.25
"""Between two looks at how much memory the process holds."""


class EndOfWatch(BaseException):
    """Enough was seen: the script is ended from within a call of torch's. Scripts that catch Exception do
    not catch it."""


class Refused(BaseException):
    """What was asked for does not fit the script: it is ended, whatever it catches."""

    def __init__(self, error: SpecError) -> None:
        super().__init__(str(error))
        self.error = error


class Tracer:
    """What one process did, from its start on."""

    def __init__(self, start_ns: int | None = None, clock: Clock = perf_counter_ns) -> None:
        self.timeline = Timeline(clock, start_ns)
        self.log = StepLog()
        self.steps_ns = array("q")
        """Of each step, all of it; the first holds what came before it, but for the start."""
        self.parts_ns: dict[int, list[int]] = {}
        """The parts of those that are kept, by their number from 1."""
        self.memory_bytes: list[tuple[int, int]] = []
        """Step and resident size, now and then."""
        self.num_fetched = self.num_light_steps = self.num_whole_steps = 0
        self.was_restarted = False
        # One that was made before the first look makes updates, too.
        self.has_optimizer = any(issubclass(type(one), Optimizer) for one in gc.get_objects())
        self._updates_by_hand = 0
        """Backward passes since the last step, where no optimizer of torch's was made."""
        self._passes_before = 0, 0
        self._without_gradients: set[int] = set()
        """Models that ran without gradients since the last backward pass or batch."""
        self._in_hand: SeenLoader | None = None
        """The loader of a batch that was given and not trained on yet."""
        self._collects = False
        """Whether a model ran again and again without gradients before anything was trained, on data of no
        loader: such passes collect data to train on, as an agent does, and are no test."""
        self._process, self._looked_s = psutil.Process(), 0.0
        # Of a process that is watched from its start, all of it counts.
        self.times_before = tuple(os.times()) if start_ns is None else (0.0,) * 5
        self.is_testing = False
        """Whether the model has been run without training since it last ran for it: what a target network
        or a teacher computes for a step is a part of that."""
        self._trains: int | None = None
        """The model that ran for training in the step that is under way, by its identity."""
        self.on_step: Callable[[int], None] | None = None
        """Is told that an update was made, counted from 1."""
        self.on_logs: Callable[..., None] | None = None
        """Is told the metrics that Keras logs, and whether they `are_means` over the epoch so far."""
        self.follower: Any = None
        """A `FollowedModel`: is told of the moments of the training, and what it does counts nowhere."""
        self.is_sampled = False
        """Whether only bursts of steps are seen whole."""
        self._left, self._random = FIRST, random.Random(0)  # noqa: S311  no number of the script's
        """Steps until a burst ends, or the next begins."""
        self._has_begun_pass = False
        """Over a loader that has not been asked for a batch yet."""
        self._is_told = False
        """Whether a test would have been told since the last step, by a pass over the data or `eval`."""
        self._is_told_by_log = False
        """Whether steps are known by the losses alone that the script logs."""
        self.hooks = Hooks(self, self.timeline)

    @property
    def num_steps(self) -> int:
        """Updates so far."""
        return len(self.steps_ns)

    @property
    def device(self) -> torch.device:
        """The kind of device that the models seen so far are on."""
        # Other frameworks than torch are waited for after every step.
        return torch.device(self.log.device if self.log.is_of_torch else "cpu")

    @contextmanager
    def unseen(self) -> Iterator[None]:
        """What runs inside is ours: nothing of it is seen."""
        level = self.hooks.level
        self.hooks.see(LIGHT)
        try:
            yield
        finally:
            self.hooks.see(level)

    def lead_by(self, optimizer: Optimizer) -> None:
        """Its updates are those that end a step."""
        self.log.lead_by(optimizer)
        self.has_optimizer = True

    def close(self) -> None:
        self.on_step = None
        if self._updates_by_hand:
            self._step_by_hand()
        if self.hooks.level == COUNTS:
            self.see(WHOLE, is_amid_step=True)
        self.hooks.close()
        self.timeline.finish()

    def begin_again(self) -> None:
        """The script is about to run once more, with objects of its own."""
        self.log.begin_again()
        self._updates_by_hand = 0
        self.was_restarted = True

    @property
    def num_updates(self) -> int:
        """Steps, and those of which nothing else was seen."""
        return self.num_steps + self.num_light_steps

    def see(self, level: int, *, is_amid_step: bool = False) -> None:
        """From here on so much of each step is seen: from its end, unless it `is_amid_step`."""
        before = self.hooks.level
        if level == LIGHT and not self.has_optimizer:
            level = WHOLE  # nothing else tells where a step ends
        if level == before:
            return
        if level == COUNTS:
            self._without_gradients.clear()
            self.timeline.count()
        elif before == COUNTS:
            self.timeline.see_whole(is_amid_step=is_amid_step)
        elif before == LIGHT:
            self.timeline.restart()
        self.hooks.see(level)

    def _begin_burst(self) -> None:
        """Amid a step: a test or a pass over the data begins."""
        if self.is_sampled:
            self._left = max(self._left, BURST) if self.hooks.level == WHOLE else BURST
            self.see(WHOLE, is_amid_step=True)

    def _sample(self) -> None:
        self._left -= 1
        if self._left > 0:
            return
        if self.hooks.level == WHOLE:
            self._left = self._random.randint(1, 2 * (EVERY - BURST) - 1)
            self.see(COUNTS)
        else:
            self._left = BURST
            self.see(WHOLE)

    def pass_begins(self, loader: "DataLoader[Any]") -> SeenLoader:
        seen = self.log.pass_begins(loader)
        self._is_told = self._has_begun_pass = True
        self._follow("pass_begins", seen)
        return seen

    def test_begins(self) -> None:
        self._is_told, self._trains = True, None
        self._begin_burst()

    def data_begins(self, loader: SeenLoader | None) -> None:
        self.num_fetched += 1
        if self.hooks.level == LIGHT:
            return
        if self.hooks.num_updating:  # an update raised
            self.hooks.num_updating = 0
            if self.hooks.level == WHOLE:
                self.timeline.end(OTHER)
        if self.hooks.level == COUNTS:
            if loader is not None and loader.is_trained_now:
                self.timeline.data_is_asked_for()
                return
            self._begin_burst()
        if self.hooks.is_inside_model:  # it raised, and the script went on
            self.hooks.model_ends()
            self.timeline.end(OTHER)
        if self._updates_by_hand:
            self._step_by_hand()
        goes_on = loader is not None and loader is self._in_hand
        if self.timeline.data_begins(begins_pass=self._has_begun_pass, goes_on=goes_on):
            self.log.tested()
        self._has_begun_pass, self._in_hand, self._trains = False, None, None
        self._without_gradients.clear()

    def data_ends(self, loader: SeenLoader | None, batch: object, *, has_run_out: bool) -> None:
        if self.hooks.level == LIGHT:
            return
        if self.hooks.level == COUNTS:
            self.timeline.num_marks += 1
            self.timeline.data_is_given()
        elif has_run_out:
            self.timeline.data_runs_out()
        else:
            self._in_hand = loader
            self.timeline.end(PREPARE)
        if loader is not None and has_run_out:
            loader.has_run_out = True
        elif loader is not None and batch is not None:
            self.log.fetched(loader, batch)

    def forward_begins(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        if self._updates_by_hand:
            self._step_by_hand()
        key, has_gradients = id(module), torch.is_grad_enabled()
        has_batch = self._in_hand is not None
        # What runs twice on a batch, as a teacher does, belongs to what is made of the batch.
        is_repeated = key in self._without_gradients and not (has_batch and module.training)
        may_collect = module.training and not has_batch
        if is_repeated and may_collect and not self._collects and not self.log.losses:
            self._collects = self.timeline.is_inference = True
            self.is_testing = False
        collects = self._collects and may_collect
        # Beside a loader whose batches are trained on: a test, or images that are drawn to be looked at.
        is_inference = collects or (may_collect and self.log.loader is not None)
        self.timeline.forward_begins(
            is_repeated=is_repeated, has_batch=has_batch, is_inference=is_inference
        )
        if is_repeated:
            self._without_gradients.clear()
        if not has_gradients:
            self._without_gradients.add(key)
        if has_gradients and module.training:
            self.is_testing, self._trains = False, key
        elif not collects and (is_repeated or self._trains in (None, key)):
            self.is_testing = True
        self._follow("forward_begins", module, arguments)

    def forward_ends(self, module: nn.Module, inputs: Any, result: object) -> None:
        """`inputs`: its arguments, and the named ones."""
        if self.hooks.level == WHOLE:
            self.timeline.end(LOSS)
        self._follow("forward_ends", module, inputs, result)
        self.log.model_called(module)

    def backward_begins(self, roots: object) -> None:
        if self._updates_by_hand and roots is not None:
            self._step_by_hand()
        self.log.checks_anomalies |= torch.is_anomaly_enabled()
        if self.hooks.level == WHOLE:
            self.timeline.backward_begins()
            self._without_gradients.clear()
            self._in_hand = None
        else:
            self.timeline.num_marks += 1
        if roots is not None:
            self.log.losses.add(roots)
        self.log.trains()
        self.is_testing, self._trains = False, None

    def backward_ends(self) -> None:
        if self.hooks.level == WHOLE:
            self.timeline.end(OTHER)
        if not self.has_optimizer:
            self._updates_by_hand += 1
        self._follow("backward_ends")

    def update_begins(self, optimizer: Optimizer) -> None:
        if self.hooks.level == LIGHT:
            return
        # It may have been made before the watch began.
        self.has_optimizer, self._updates_by_hand = True, 0
        self._follow("update_begins", optimizer)
        if self.hooks.level == WHOLE:
            self.timeline.begin(OPTIMIZER)
        self.log.update_begins()

    def update_ends(self, optimizer: Optimizer) -> None:
        if self.hooks.level == LIGHT:
            if self.log.ends_step(optimizer):
                self.num_light_steps += 1
                if self.on_step is not None:
                    self.on_step(self.num_updates)
            return
        if self.hooks.level == WHOLE:
            self.timeline.end(OTHER)
        else:
            self.timeline.num_marks += 1
        self._follow("update_ends")
        self.log.update_ends(optimizer)
        if self.log.ends_step(optimizer):
            self._step_ends()

    def step_fitted(self, loss: float) -> None:
        """A step of Keras has ended: all of such steps are seen whole."""
        self.is_sampled = False
        self.see(WHOLE)
        self.log.losses.note(loss)
        self._step_ends()

    def step_logged(self, loss: float) -> bool:
        """The script has logged a loss: a step has ended, where nothing else tells, as in a loop of JAX's.
        Whether it has."""
        if not self._is_told_by_log and (self.log.losses or self.log.models):
            return False
        self._is_told_by_log = True
        self.log.fitted(None, 0)
        self.step_fitted(loss)
        self.timeline.begin(OTHER)
        self.timeline.end(OTHER)
        return True

    def _step_by_hand(self) -> None:
        """Weights that no optimizer of torch's updates: a step ends where the next batch begins."""
        self._updates_by_hand = 0
        self.log.update_by_hand()
        self._step_ends()

    def _step_ends(self) -> None:
        number = self.num_steps + 1
        is_kept = keeps(number)
        if self.hooks.level == WHOLE:
            self.num_whole_steps += 1
            parts_ns = self.timeline.step_ends()
            self.steps_ns.append(sum(parts_ns))
        else:
            data_ns, rest_ns = self.timeline.step_is_counted()
            self.steps_ns.append(data_ns + rest_ns)
            parts_ns = self.timeline.divided(data_ns, rest_ns) if is_kept else []
        if is_kept:
            self.parts_ns[number] = parts_ns
        passes = self.timeline.num_evaluation_passes, self.timeline.num_inference_passes
        before, self._passes_before = self._passes_before, passes
        self.log.step_ends(follows_test=passes[0] > before[0])
        if passes != before and not self._is_told:
            self.is_sampled = False  # it runs without training, and nothing tells when
        self._is_told = False
        if (now_s := time.monotonic()) - self._looked_s > MEMORY_EVERY_S:
            self._looked_s = now_s
            self.memory_bytes.append((self.num_steps, self._process.memory_info().rss))
        if self.on_step is not None:
            self.timeline.pause()
            try:
                self.on_step(self.num_steps)
            finally:
                self.timeline.go_on()
        if self.is_sampled and self.has_optimizer:
            self._sample()

    def _follow(self, moment: str, *arguments: Any) -> None:
        """What the follower does counts nowhere."""
        if self.follower is not None:
            self.timeline.pause()
            try:
                getattr(self.follower, moment)(*arguments)
            finally:
                self.timeline.go_on()


def keeps(step: int, num_steps: int = 0) -> bool:
    """Whether a step, counted from 1, has a line of its own in the curve, and its parts are kept; among so
    many, evenly spaced ones are."""
    return step % (1 << ((max(step, num_steps) - 1) // ALL_UP_TO).bit_length()) == 0
