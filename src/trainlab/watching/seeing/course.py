"""Course: what each step of a training was, beside its time: its samples, its losses, its epoch."""

import weakref
from collections.abc import Callable
from itertools import accumulate

from torch.optim import Optimizer

from trainlab.watching.seeing.followed import Followed
from trainlab.watching.seeing.losses import Losses
from trainlab.watching.seeing.passed import (
    BACKWARD_BEGINS,
    DATA_BEGINS,
    DATA_ENDS,
    GRADIENT_BEGINS,
    UPDATE_ENDS,
    Passed,
)
from trainlab.watching.seeing.seen import LOSS_NAME, Seen, SeenLoader, SeenOptimizer

OF_STEP = [DATA_BEGINS, DATA_ENDS, BACKWARD_BEGINS, UPDATE_ENDS]
"""The marks of a plain one."""
OF_STEP_WITHOUT_BATCH = OF_STEP[2:]
MOST_BY_OTHERS = 20
"""After so many updates without one of the optimizer that ends steps, another one does."""


class Course:
    """Is told of batches, backward passes and updates, in their order."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self.losses = Losses()
        """What `backward` was called on, all of it."""
        self.samples: list[int] = []
        """Those trained on by the end of each step."""
        self.followed = Followed()
        """Of each step, the losses whose gradients were applied."""
        self.epochs: list[int] = []
        self.num_backward = 0
        self.loader: SeenLoader | None = None
        """The one that the last batch trained on came from."""
        self._fetched: tuple[SeenLoader, int] | None = None
        """A batch that is not trained on yet, and its size."""
        self._num_samples, self._epoch = 0, 1
        self._pending: list[int] = []
        """Places of the losses since the last update by any optimizer."""
        self._under_way: list[int] = []
        """Those from before the update that is under way."""
        self.updating: list[int] = []
        """The optimizers whose update is under way, by their identity, the outermost first."""
        self._of_step: dict[str, tuple[int, ...]] = {}
        self._lead: Callable[[], Optimizer | None] = lambda: None
        self._num_by_others = 0
        """Updates since the last of the lead."""

    def losses_between(self, first: int, end: int) -> dict[str, list[float]]:
        """The losses whose gradients each optimizer applied in these steps, counted from 0: sums of what
        `backward` was called on before its update. Where gradients come from elsewhere there are none."""
        return self.followed.sums(self.losses.values(), first, end)

    def losses_of(self, step: int) -> dict[str, float]:
        """Those of one."""
        return {name: value for name, (value,) in self.losses_between(step, step + 1).items()}

    @property
    def lead(self) -> Optimizer | None:
        """The optimizer whose updates end steps, while there is one."""
        return self._lead()

    def lead_by(self, optimizer: Optimizer) -> None:
        """Its updates are those that end a step."""
        self._lead, self._num_by_others = weakref.ref(optimizer), 0

    def begin_again(self) -> None:
        """The script is about to run once more, with objects of its own."""
        self._lead, self._pending, self._fetched = lambda: None, [], None

    def pass_begins(self, loader: SeenLoader) -> None:
        """What it gave last is not trained on any more."""
        if self._fetched is not None and self._fetched[0] is loader:
            self._fetched = None

    def fetched(self, loader: SeenLoader, size: int) -> None:
        """A batch, which may be trained on or not."""
        if self._fetched is not None and self._fetched[0] is loader and not loader.is_trained_now:
            loader.ahead.append(self._fetched[1])
        self._fetched = loader, size

    def goes_back(self) -> None:
        """A backward pass begins from the next of the losses."""
        self._pending.append(self.num_backward)
        self.num_backward += 1

    def trains(self) -> None:
        """A backward pass begins, from whatever: the batch fetched last is one that is trained on."""
        if self._fetched is None:
            if (last := self.loader) is not None and last.has_run_out and last.is_trained_now:
                self._num_samples += last.ahead.pop(0) if last.ahead else 0
            return
        loader, size = self._fetched
        self._epoch = loader.train_on(self._epoch, self.loader)
        self._fetched, self.loader = None, loader
        self._num_samples += size
        if self._seen.batch_size is None or size > self._seen.batch_size:
            self._seen.batch_size = size

    def update_begins(self, optimizer: Optimizer) -> None:
        """By any optimizer; within the update of another where that one is wrapped around it."""
        if id(optimizer) in self.updating:  # it has raised, and never ended
            self.updating.clear()
        if not self.updating:
            self._under_way, self._pending = self._pending, []
        self.updating.append(id(optimizer))

    def update_ends(self, optimizer: Optimizer) -> None:
        """It has followed the losses from before it began."""
        if id(optimizer) in self.updating:
            del self.updating[self.updating.index(id(optimizer)) :]
        self._has_updated(self._seen.optimizer(optimizer))

    def _has_updated(self, seen: SeenOptimizer) -> None:
        seen.num_steps += 1
        # A closure asks for the loss again and again: the first is that of the weights before the update.
        followed = self._under_way or self._pending[:1]
        self._under_way, self._pending = [], []
        if followed:
            self._of_step[seen.loss_name] = tuple(followed)

    def update_by_hand(self) -> None:
        """Weights that no optimizer of torch's updates."""
        self._of_step[LOSS_NAME], self._pending = tuple(self._pending), []

    def ends_step(self, optimizer: Optimizer) -> bool:
        """Whether its updates end steps: those of the first do, or of another once that is gone, or makes
        none any more."""
        lead = self._lead()
        if lead is optimizer:
            self._num_by_others = 0
            return True
        self._num_by_others += 1
        if lead is not None and self._num_by_others <= MOST_BY_OTHERS:
            return False
        self.lead_by(optimizer)
        return True

    def _ended_step(self, maker: SeenOptimizer, passed: Passed, *, is_last: bool) -> bool:
        """As `ends_step`, of an update that was passed by: what ended steps then may be gone by now."""
        self._num_by_others = 0 if maker is passed.lead else self._num_by_others + 1
        is_gone = passed.lead is None or self._seen.own(passed.lead) is None
        takes_over = is_last and passed.is_by_another and is_gone
        if takes_over or self._num_by_others > MOST_BY_OTHERS:
            if (optimizer := self._seen.own(maker)) is not None:
                self.lead_by(optimizer)
            passed.lead, self._num_by_others = maker, 0
        return maker is passed.lead

    def step_ends(self, *, follows_test: bool) -> None:
        """`follows_test`: there was one since the step before."""
        if follows_test and self.loader is None and self.samples:
            # No loader tells where a pass over the data begins: after a test, say.
            self._epoch += 1
        self.samples.append(self._num_samples)
        self.followed.append(self._of_step)
        self.epochs.append(self._epoch)
        self._of_step = {}

    def catch_up(self, marks: list[int], passed: Passed) -> list[int]:
        """Is told of marks that were passed by: the places of those that end steps."""
        all_sizes = passed.sizes()
        ends = self._catch_up_alike(marks, passed, all_sizes)
        first = ends[-1] + 1 if ends else 0
        sizes = iter(all_sizes[marks[:first].count(DATA_ENDS) :])
        optimizers = iter(passed.optimizers()[len(ends) :])
        for place, mark in enumerate(marks[first:], first):
            if mark == DATA_ENDS:
                self._passed_batch(passed.loader, next(sizes))
            elif mark == BACKWARD_BEGINS:
                self.goes_back()
                self.trains()
            elif mark == GRADIENT_BEGINS:
                self.trains()
            elif mark == UPDATE_ENDS:
                is_last = place == len(marks) - 1
                if not (passed.has_closure and is_last):
                    self._under_way, self._pending = self._pending, []
                maker = next(optimizers)
                if maker is None:  # the script's had gone before
                    continue
                self._has_updated(maker)
                if self._ended_step(maker, passed, is_last=is_last):
                    self.step_ends(follows_test=False)
                    ends.append(place)
        return ends

    def _catch_up_alike(
        self, marks: list[int], passed: Passed, all_sizes: list[int | None]
    ) -> list[int]:
        """Of steps that are a backward pass and an update each, after a batch if there is a loader, as
        nearly all are: all at once, which takes a tenth of the time. Places as for `catch_up`."""
        marks_each = OF_STEP if all_sizes else OF_STEP_WITHOUT_BATCH
        num_steps, lead = passed.num_steps, passed.lead
        sizes = [size for size in all_sizes[:num_steps] if size is not None]
        if (
            (marks[: num_steps * len(marks_each)] != marks_each * num_steps or not num_steps)
            or (lead is None or passed.others)
            or (self._pending or self._of_step)
            or (self.loader is not None and self.loader.has_run_out and self.loader.ahead)
            or (len(sizes) < num_steps or not passed.loader if all_sizes else self._fetched)
        ):
            return []
        self._num_by_others = 0
        lead.num_steps += num_steps
        self.followed.extend_alike(lead.loss_name, self.num_backward, num_steps)
        self.num_backward += num_steps
        if sizes and passed.loader is not None:
            self._passed_batch(passed.loader, sizes[0])
            self.trains()  # which begins another epoch, or none of them does
            passed.loader.num_given += num_steps - 1
            self._seen.batch_size = max(*sizes, self._seen.batch_size or 0)
        totals = list(accumulate(sizes[1:] or [0] * (num_steps - 1), initial=self._num_samples))
        self.samples += totals
        self._num_samples = totals[-1]
        self.epochs += [self._epoch] * num_steps
        return list(range(len(marks_each) - 1, num_steps * len(marks_each), len(marks_each)))

    def _passed_batch(self, loader: SeenLoader | None, size: int | None) -> None:
        """None: it has run out."""
        if loader is None:
            return
        if size is None:
            loader.has_run_out = True
        else:
            loader.num_given += 1
            self.fetched(loader, size)
