"""Watcher: hears of torch's calls and keeps what a script did: its steps, its losses, where time went."""

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from time import perf_counter_ns
from typing import Any

import psutil
import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from trainlab.watching.seeing.calls.hooks import ALL, MARKS, STEPS, Hooks
from trainlab.watching.seeing.calls.update_hooks import num_running
from trainlab.watching.seeing.course import Course
from trainlab.watching.seeing.looks import Looks, News
from trainlab.watching.seeing.passed import (
    BACKWARD_BEGINS,
    DATA_BEGINS,
    DATA_ENDS,
    GRADIENT_BEGINS,
    UPDATE_ENDS,
)
from trainlab.watching.seeing.seen import Seen, SeenLoader, SeenOptimizer, size_of
from trainlab.watching.seeing.step_times import StepTimes
from trainlab.watching.seeing.timeline import (
    LOSS,
    OPTIMIZER,
    OTHER,
    PARTS,
    PREPARE,
    TRANSFER,
    ZERO_GRAD,
    Clock,
    Timeline,
)

MEMORY_EVERY_S = 0.25
"""Between two looks at how much memory the process holds."""

StepEnds = Callable[[int], None]
"""Is told that an update was made, counted from 1."""


class Follower:
    """Overrides the moments it needs; the time it takes counts nowhere."""

    def pass_begins(self, loader: SeenLoader) -> None:
        """A pass over a loader begins, for training or not."""

    def forward_begins(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        """A model that the script itself calls begins, with these arguments by place."""

    def forward_ends(self) -> None:
        """It has returned."""

    def backward_ends(self) -> None:
        """A backward pass is over."""

    def update_begins(self, optimizer: Optimizer) -> None:
        """The gradients are what the optimizer is given."""

    def update_ends(self) -> None:
        """It has changed the weights."""


class Watcher:
    """What one process did, from its start on."""

    def __init__(self, start_ns: int | None = None, clock: Clock = perf_counter_ns) -> None:
        self.timeline = Timeline(clock, start_ns)
        self.seen = Seen()
        self.course = Course(self.seen)
        self.losses = self.course.losses
        self.steps_ns = StepTimes(len(PARTS))
        """The parts of each step; the first holds what came before it, but for the start."""
        self.memory_bytes: list[tuple[int, int]] = []
        """Step and resident size, now and then."""
        self.num_fetched = self.num_light_steps = 0
        self.was_restarted = False
        self.num_first_models: int | None = None
        """Models seen before the script ran once more, with the same again; None: it did not."""
        # One that was made before the first look makes updates, too.
        self.has_optimizer = any(issubclass(type(one), Optimizer) for one in gc.get_objects())
        self._updates_by_hand = 0
        """Backward passes since the last step, where no optimizer of torch's was made."""
        self._passes_before = 0
        self._without_gradients: set[int] = set()
        """Models that ran without gradients since the last backward pass or batch."""
        self._process, self._looked_s = psutil.Process(), 0.0
        self.is_testing = False
        """Whether the model has been run without training since the last backward pass."""
        self.on_step: StepEnds | None = None
        self.follower: Follower | None = None
        self.looks: Looks | None = None
        """Tells which steps are seen whole; None: all are."""
        self._has_begun_pass = False
        """Over a loader that has not been asked for a batch yet."""
        self._is_told = False
        """Whether a test would have been told since the last step, by a pass over the data or `eval`."""
        self.hooks = Hooks(self, clock)

    @property
    def num_steps(self) -> int:
        """Updates so far."""
        return len(self.steps_ns) + self.hooks.passed.num_steps

    @property
    def device(self) -> str:
        """The kind of device that the models seen so far are on."""
        kinds = {kind for model in self.seen.models for kind in model.devices}
        return next((kind for kind in ("cuda", "mps") if kind in kinds), "cpu")

    @contextmanager
    def unseen(self) -> Iterator[None]:
        """What runs inside is ours: nothing of it is seen."""
        level = self.hooks.level
        self.hooks.see(STEPS)
        try:
            yield
        finally:
            self.hooks.see(level)

    def lead_by(self, optimizer: Optimizer) -> None:
        """Its updates are those that end a step."""
        self.course.lead_by(optimizer)
        self.has_optimizer = True

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
        self.see_all()
        self.hooks.close()
        self.timeline.finish()

    def pass_begins(self, loader: "DataLoader[Any]") -> SeenLoader:
        seen = self.seen.loader(loader)
        seen.begin_pass()
        self.course.pass_begins(seen)
        self._is_told = self._has_begun_pass = True
        self._see_news("pass")
        if self.follower is not None:
            self._following(self.follower.pass_begins, seen)
        return seen

    def test_begins(self) -> None:
        self._is_told = True
        self._see_news("test")

    def begin_again(self) -> None:
        """The script is about to run once more, with objects of its own."""
        self.course.begin_again()
        self._updates_by_hand = 0
        self.was_restarted = True
        if self.num_first_models is None:
            self.num_first_models = len(self.seen.models)

    def watch_lightly(self, is_light: bool) -> None:
        """From here, the end of a step, on only batches and updates are seen, or all is again."""
        if not self.hooks.level and not is_light:
            self.timeline.restart()
        # Where weights are updated by hand nothing else tells where a step ends.
        self.hooks.see(STEPS if is_light and self.has_optimizer else ALL)

    def see_all(self) -> None:
        """From here on, maybe amid a step; what was passed by is caught up with."""
        if self.hooks.level == MARKS:
            now_ns = self.timeline.now_ns()
            self.hooks.see(ALL)
            self._catch_up()
            self.timeline.see_all(now_ns)

    def _catch_up(self) -> None:
        passed = self.hooks.passed
        marks, at_ns = passed.decoded()
        if not len(marks):
            return
        self.num_fetched += len(passed.shapes)
        ends = self.course.catch_up(marks.tolist(), passed)
        steps, is_usual = self.timeline.catch_up(marks, at_ns, ends)
        self.steps_ns.extend(steps)
        passed.clear()
        if not is_usual and self.looks is not None:
            self.looks.something_new("long")

    def stretch_ends(self) -> None:
        """The steps to be passed by have ended."""
        self.see_all()
        self._tell_step()

    def _see_news(self, kind: News) -> None:
        """Something begins that was not there before."""
        if self.looks is not None:
            self.looks.something_new(kind)
            self.see_all()

    def data_begins(self) -> None:
        self.num_fetched += 1
        if not self.hooks.level:
            return
        if self.hooks.level == MARKS:
            self._see_news("batch")
        if self.hooks.models.is_inside:
            self.hooks.models.recover()
            self.timeline.end(OTHER)
        if self._updates_by_hand:
            self._step_by_hand()
        self._end_raised_update()
        self.timeline.data_begins(begins_pass=self._has_begun_pass)
        self._has_begun_pass = False
        self.timeline.mark(DATA_BEGINS)
        self._without_gradients.clear()

    def data_ends(self, loader: SeenLoader | None, batch: object) -> None:
        if not self.hooks.level:
            return
        if batch is None and loader is not None:
            loader.has_run_out = True
            self.timeline.data_runs_out()
        else:
            self.timeline.end(PREPARE)
        self.timeline.mark(DATA_ENDS)
        if batch is not None and loader is not None:
            loader.see_batch(batch)
            self.course.fetched(loader, size_of(batch) or 0)

    def forward_begins(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        if self._updates_by_hand:
            self._step_by_hand()
        self._end_raised_update()
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

    def tells_gradients(self, options: Mapping[str, Any]) -> bool:
        """Whether `torch.autograd.grad` stands for `backward`: where no optimizer makes the updates."""
        return not self.has_optimizer and not options.get("create_graph")

    def backward_begins(self, roots: object) -> None:
        if self._updates_by_hand and roots is not None:
            self._step_by_hand()
        self._end_raised_update()
        if self.course.updating:
            self.update_is_unmarked()  # by a closure
        self.timeline.backward_begins()
        self.timeline.mark(GRADIENT_BEGINS if roots is None else BACKWARD_BEGINS)
        if roots is not None:
            self.course.losses.add(roots)
            self.course.goes_back()
        self.course.trains()
        self._without_gradients.clear()
        self.is_testing = False

    def backward_ends(self) -> None:
        self.timeline.end(OTHER)
        if not self.has_optimizer:
            self._updates_by_hand += 1
        if self.follower is not None:
            self._following(self.follower.backward_ends)

    def optimizer_made(self) -> None:
        self.has_optimizer = True
        self._see_news("optimizer")

    def update_begins(self, optimizer: Optimizer) -> None:
        if not self.hooks.level:
            return
        # It may have been made before the watch began.
        self.has_optimizer, self._updates_by_hand = True, 0
        if self.follower is not None:
            self._following(self.follower.update_begins, optimizer)
        self._end_raised_update()
        self.timeline.begin(OPTIMIZER)
        self.course.update_begins(optimizer)

    def _end_raised_update(self) -> None:
        """No hook tells that one has raised: what follows shows it, being called from elsewhere."""
        updating = self.course.updating
        if updating and not num_running(updating[0]):
            updating.clear()
            self.timeline.recover()

    def update_by_another(self, optimizer: Optimizer) -> SeenOptimizer:
        """By one that was not there when steps began to be passed by, and has been made by nobody, as a
        copy is."""
        if self.looks is not None:
            self.looks.something_new("optimizer")
        return self.seen.optimizer(optimizer)

    def update_is_unmarked(self) -> None:
        """No mark tells where it has begun, or which of several is its end."""
        if self.looks is not None:
            self.looks.see_all()

    def update_ends(self, optimizer: Optimizer) -> None:
        if not self.hooks.level:
            if self.course.ends_step(optimizer):
                self._light_step_ends()
            return
        self.timeline.end(OTHER)
        self.timeline.mark(UPDATE_ENDS)
        if self.follower is not None:
            self._following(self.follower.update_ends)
        self.course.update_ends(optimizer)
        if self.course.ends_step(optimizer):
            self._step_ends()

    def zero_grad_begins(self) -> None:
        self._end_raised_update()
        self.timeline.begin(ZERO_GRAD)

    def zero_grad_ends(self) -> None:
        self.timeline.end(OTHER)

    def transfer_begins(self) -> None:
        self.timeline.begin(TRANSFER)

    def transfer_ends(self) -> None:
        self.timeline.end(PREPARE)

    def loss_scaled(self, scaled: object, loss: object) -> None:
        self.course.losses.note_scaled(scaled, loss)

    def _light_step_ends(self) -> None:
        self.num_light_steps += 1
        if self.on_step is not None:
            self.on_step(self.num_steps + self.num_light_steps)

    def _step_by_hand(self) -> None:
        """Weights that no optimizer of torch's updates: a step ends where the next batch begins."""
        self._updates_by_hand = 0
        self.course.update_by_hand()
        self._step_ends()

    def _step_ends(self) -> None:
        """Of one that was seen whole."""
        step = self.timeline.step_ends()
        self.steps_ns.append(step)
        passes = self.timeline.num_evaluation_passes
        follows_test, self._passes_before = passes > self._passes_before, passes
        self.course.step_ends(follows_test=follows_test)
        self._tell_step()
        if self.looks is not None:
            if follows_test and not self._is_told:
                self.looks.see_all()  # it tests, and nothing tells when
            if number := self.looks.num_passed(self.num_steps, sum(step)):
                self.pass_by(number)
        self._is_told = False

    def pass_by(self, num_steps: int) -> None:
        """From here, the end of a step, on nothing but marks is seen of so many; where weights are
        updated by hand, and no mark tells where a step ends, all is."""
        # Nor where a step ends amid a backward pass, each weight's gradient being used at once, or amid the
        # update of an optimizer that is wrapped around the one that ends it.
        is_inside = self.hooks.models.is_inside or self.hooks.passed.is_inside
        is_inside |= bool(self.course.updating)
        if self.has_optimizer and not is_inside:
            self._without_gradients.clear()
            self.timeline.see_marks()
            # A step makes one update at least.
            makers, lead = self.seen.optimizers_now(), id(self.course.lead)
            self.hooks.pass_by(num_steps, makers, lead, self.course.loader)

    def _tell_step(self) -> None:
        """At the end of a step, or of a stretch of them."""
        if (now_s := time.monotonic()) - self._looked_s > MEMORY_EVERY_S:
            self._looked_s = now_s
            with suppress(OSError, psutil.Error):  # a script may have no file left to open
                self.memory_bytes.append((self.num_steps, self._process.memory_info().rss))
        if self.on_step is not None:
            self.timeline.pause()
            self.on_step(self.num_steps)
            self.timeline.go_on()
