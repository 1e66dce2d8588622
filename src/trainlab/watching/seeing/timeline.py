"""Timeline: every moment of a watched process belongs to one part of the work, so that the parts add up.

Calls of torch tell where a part begins and ends; what lies between two of them is named after them. Whether
a pass was training shows only later, by the backward pass that follows or does not: until then its time
is pending.
"""

from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trainlab.measure.steps import Stopwatch
from trainlab.watching.seeing.passed import DATA_ENDS, UPDATE_ENDS
from trainlab.watching.seeing.stretches import Stretches

PARTS: Final = (
    *("startup", "data", "transfer", "prepare", "zero_grad", "forward", "loss", "backward"),
    *("optimizer", "other", "evaluation"),
)
STARTUP, DATA, TRANSFER, PREPARE, ZERO_GRAD, FORWARD, LOSS = range(7)
BACKWARD, OPTIMIZER, OTHER, EVALUATION = range(7, 11)
_EMPTY: Final = [0] * len(PARTS)
_BETWEEN: Final = frozenset({OTHER, PREPARE, LOSS})
"""Parts that no call makes: they lie between calls, and begin and end with others."""

WARM_UP_STEPS = 10
"""Teach nothing of later ones: torch makes what it keeps, in some parts more than in others."""

Clock = Callable[[], int]


class Timeline:
    """Nanoseconds by part: of the step under way, of what is pending, and of the whole process."""

    def __init__(self, clock: Clock = perf_counter_ns, start_ns: int | None = None) -> None:
        self._clock = clock
        self._since = clock() if start_ns is None else start_ns
        self._part = STARTUP
        self._outer: list[int] = []
        """Parts that calls under way have interrupted."""
        self._pending = list(_EMPTY)
        self._step = list(_EMPTY)
        self.total_ns = list(_EMPTY)
        """Of all steps that have ended, of evaluation, and of the start."""
        self._has_forward = False
        """Whether a pass is pending."""
        self._is_evaluating = False
        self.num_evaluation_passes = 0
        self._passes_pending = 0
        self.num_calls = self.num_marks = 0
        """Times that a part began or ended; of those, where nothing but marks was seen."""
        self.paused_ns = 0
        """What counts nowhere."""
        self._paused_at = 0
        self._stretches = Stretches(len(PARTS), OTHER)
        self._stretch = list(_EMPTY)
        """What came since the last mark, where all is seen."""
        self._warm_up_left = WARM_UP_STEPS
        self._mark: int | None = None
        """The last one; None: what lies behind it was no training."""
        self.stopwatch: Stopwatch | None = None
        """On a GPU, for some steps: is told which part ends. A call returns before its work is done."""
        self.on_settled: Callable[[bool], None] | None = None
        """Is told that what was pending is settled, and whether it was evaluation."""

    def now_ns(self) -> int:
        """By its clock."""
        return self._clock()

    @property
    def part(self) -> int:
        """The part that is under way."""
        return self._part

    def _spend(self) -> None:
        now = self._clock()
        spent = now - self._since
        self._pending[self._part] += spent
        self._stretch[self._part] += spent
        self._since = now

    def begin(self, part: int) -> None:
        """A call begins."""
        self.num_calls += 2
        self._spend()
        if self.stopwatch is not None:
            self.stopwatch.mark(PARTS[self._part])
        self._outer.append(self._part)
        self._part = part

    def end(self, then: int) -> None:
        """That call has ended; what follows it is `then`, unless it was made within another call."""
        self._spend()
        if self.stopwatch is not None:
            self.stopwatch.mark(PARTS[self._part])
        before = self._outer.pop() if self._outer else OTHER
        self._part = then if before in _BETWEEN or before == STARTUP else before

    def data_begins(self, *, begins_pass: bool = False) -> None:
        """A batch is asked for: a pass that no backward pass has followed was no training. `begins_pass`:
        it is the first of a pass over a loader, the start of which has just been seen and belongs to it."""
        self.begin(DATA)
        if self._has_forward or self._is_evaluating:
            self._settle_evaluation()
        elif not begins_pass:
            # What came since the last update is no part of a test that may begin here.
            self._settle_training()

    def data_runs_out(self) -> None:
        """A loader has no more batches: a test on them is over, and what follows is no part of it."""
        self.end(OTHER)
        if self._has_forward or self._is_evaluating:
            self._settle_evaluation()
            self._is_evaluating = False

    def forward_begins(self, *, is_repeated: bool) -> None:
        """`is_repeated`: the same model has run without gradients since the last backward pass or batch."""
        self.begin(FORWARD)
        if is_repeated or (self._is_evaluating and not self._pending[DATA]):
            self._settle_evaluation()
        self._has_forward = True
        self._passes_pending += 1

    def backward_begins(self) -> None:
        """What is pending was training."""
        self.begin(BACKWARD)
        self._settle_training()

    def step_ends(self) -> list[int]:
        """An update has been made: the parts of the step that it ends, in nanoseconds."""
        self._spend()
        self._settle_training()
        self._warm_up_left -= 1
        step, self._step = self._step, list(_EMPTY)
        total = self.total_ns
        for part, spent in enumerate(step):
            total[part] += spent
        total[STARTUP], step[STARTUP] = total[STARTUP], 0
        return step

    def restart(self) -> None:
        """A step begins here: what came before since the last one counts nowhere."""
        self._pending, self._step = list(_EMPTY), list(_EMPTY)
        self._has_forward = self._is_evaluating = False
        self._passes_pending = 0
        self._outer.clear()
        self._mark, self._stretch = None, list(_EMPTY)
        self._part, self._since = OTHER, self._clock()

    def recover(self) -> None:
        """Calls under way have raised: none is any more."""
        self._spend()
        self._outer.clear()
        self._part = OTHER

    def mark(self, mark: int) -> None:
        """The call that begins or has ended here is a mark, and all before it was seen."""
        if self._mark is not None and self._warm_up_left <= 0:
            self._stretches.learn(self._mark, mark, self._stretch)
        self._stretch = list(_EMPTY)
        self._mark = mark

    def see_marks(self) -> None:
        """From here, the end of a step, on nothing but marks is seen."""
        self._outer.clear()
        self._part, self._mark = OTHER, UPDATE_ENDS

    def catch_up(
        self, marks: NDArray[np.int64], at_ns: NDArray[np.int64], ends: Sequence[int]
    ) -> tuple[NDArray[np.int64], bool]:
        """Deals with marks that were passed by, of which those at the places `ends` end steps: the parts of
        these, a row each, and whether nothing was unusual about any."""
        assert self._mark is not None
        with_last = np.concatenate([[self._mark], marks])
        spent_ns = np.diff(at_ns, prepend=self._since)
        steps_of = np.searchsorted(ends, np.arange(len(marks)))
        sums_ns = np.zeros((len(ends) + 1, len(PARTS)), dtype=np.int64)
        # The last is that of the step under way, which may not have begun.
        sums_ns[: steps_of[-1] + 1], is_usual = self._stretches.divide(
            with_last, spent_ns, steps_of
        )
        # What came before, between the last step and a pause, is of the first.
        sums_ns[0] += self._step
        sums_ns[0, OTHER] += self._pending[OTHER]
        self._pending[OTHER] = 0
        steps, self._step = sums_ns[:-1], sums_ns[-1].tolist()
        self.total_ns = (steps.sum(axis=0) + self.total_ns).tolist()
        self.num_marks += len(marks)
        self._mark, self._since = int(marks[-1]), int(at_ns[-1])
        return steps, is_usual

    def see_all(self, since_ns: int) -> None:
        """From then on, which may have been amid a step; what we did since counts nowhere."""
        self._part = PREPARE if self._mark == DATA_ENDS else OTHER
        self._pending[self._part] += since_ns - self._since
        self._stretch = list(_EMPTY)
        self._stretch[self._part] = since_ns - self._since
        self._paused_at = since_ns
        self.go_on()

    def pause(self) -> None:
        """What follows counts nowhere, until `go_on`."""
        self._spend()
        self._paused_at = self._since

    def go_on(self) -> None:
        """The pause is over."""
        self._since = self._clock()
        self.paused_ns += self._since - self._paused_at

    def finish(self) -> list[int]:
        """The process ends: all its time by part."""
        self._spend()
        if self._has_forward or self._is_evaluating:
            self._settle_evaluation()
        total = [sum(spent) for spent in zip(self.total_ns, self._step, self._pending, strict=True)]
        self._pending, self._step = list(_EMPTY), list(_EMPTY)
        self.total_ns = total
        return total

    def _settle_training(self) -> None:
        step, pending = self._step, self._pending
        for part, spent in enumerate(pending):
            if spent:
                step[part] += spent
                pending[part] = 0
        self._has_forward = self._is_evaluating = False
        self._passes_pending = 0
        if self.on_settled is not None:
            self.on_settled(False)

    def _settle_evaluation(self) -> None:
        pending = self._pending
        self._mark = None
        self.total_ns[STARTUP] += pending[STARTUP]
        pending[STARTUP] = 0
        self.total_ns[EVALUATION] += sum(pending)
        self._pending = list(_EMPTY)
        self.num_evaluation_passes += self._passes_pending
        self._has_forward, self._is_evaluating = False, True
        self._passes_pending = 0
        if self.on_settled is not None:
            self.on_settled(True)
