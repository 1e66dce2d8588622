"""Timeline: every moment of a watched process belongs to one part of the work, so that the parts add up.

Calls of torch tell where a part begins and ends; what lies between two of them is named after them:

    next(loader)  |         | model(x) |      | loss.backward() |       | optimizer.step() |
        data        prepare   forward    loss      backward       other       optimizer      other …

A `Tracer` tells it of those calls: `begin` and `end` are all that most of them need. Whether a pass through
the model was training shows only later, by the backward pass that follows or does not: until then its time
is pending, and goes to the step or to `evaluation` once that is settled. Evaluation is those passes, the
batches that they wait for, and what lies between two batches of one test; nothing else that follows.

Of steps between two bursts nothing is timed but the whole and its wait for data: the rest is divided as in
the latest steps seen whole.
"""

import statistics
from collections import deque
from collections.abc import Callable, Collection, Sequence
from time import perf_counter_ns
from typing import Final

from trainlab.measure.steps import Stopwatch

PARTS: Final = (
    *("startup", "data", "transfer", "prepare", "zero_grad", "forward", "loss", "backward"),
    *("optimizer", "other", "inference", "evaluation", "train_step"),
)
STARTUP, DATA, TRANSFER, PREPARE, ZERO_GRAD, FORWARD, LOSS = range(7)
BACKWARD, OPTIMIZER, OTHER, INFERENCE, EVALUATION, TRAIN_STEP = range(7, 13)
"""The last: forward, backward and update in one, as Keras makes them."""
_EMPTY: Final = [0] * len(PARTS)
BETWEEN: Final = frozenset({OTHER, PREPARE, LOSS})
"""Parts that no call makes: they lie between calls, and begin and end with others."""
OF_PASSES: Final = frozenset({DATA, TRANSFER, FORWARD})
"""Parts that are evaluation where a pass is."""
LATEST = 10
"""Steps seen whole by which the time of others is divided."""
UNUSUAL = 3.0
"""A step so many times as long as a usual one holds something else: it says nothing of other steps, and
what is beyond that is `other`."""

Clock = Callable[[], int]


class Timeline:
    """Nanoseconds by part: of the step under way, of what is pending, and of the whole process."""

    def __init__(self, clock: Clock = perf_counter_ns, start_ns: int | None = None) -> None:
        self._clock = clock
        self._since = clock() if start_ns is None else start_ns
        self.part = STARTUP
        """The one that is under way."""
        self._outer: list[int] = []
        """Parts that calls under way have interrupted."""
        self._pending = list(_EMPTY)
        self._step = list(_EMPTY)
        self.total_ns = list(_EMPTY)
        """Of all steps that have ended, of evaluation, and of the start."""
        self._is_evaluating = False
        """Whether the last passes were evaluation, and a batch that is asked for may be, too."""
        self.num_evaluation_passes = self.num_inference_passes = 0
        self._passes_pending = 0
        self.is_inference = False
        """Whether nothing tells that those are a test: no loader, no `eval`."""
        self.num_calls = self.num_marks = 0
        """Times that a part began or ended; calls that were only counted."""
        self.paused_ns = 0
        """What counts nowhere."""
        self._paused_at = 0
        self.latest: deque[list[int]] = deque(maxlen=LATEST)
        """The parts of the latest steps seen whole."""
        self._is_partial = False
        """Whether the step under way was only counted at its beginning."""
        self._shares, self._most_ns = [0.0] * len(PARTS), 0
        """Of a usual step without its wait for data; up to how long a step is one."""
        self._data_ns = self._asked_ns = 0
        """Of the step under way, where it is only counted: its wait for data, and when it began last."""
        self._data_total_ns = self._known_total_ns = self._beyond_total_ns = 0
        """Of the steps that were only counted since the latest burst: waits for data, what is divided, and
        what is beyond usual steps."""
        self.stopwatch: Stopwatch | None = None
        """On a GPU, for some steps: is told which part ends. A call returns before its work is done."""
        self.on_settled: Callable[[frozenset[str] | None], None] | None = None
        """Is told that what was pending is settled, and which parts of it were evaluation; None: all."""

    def _spend(self) -> None:
        now = self._clock()
        self._pending[self.part] += now - self._since
        self._since = now

    def begin(self, part: int) -> None:
        self.num_calls += 2
        self._spend()
        if self.stopwatch is not None:
            self.stopwatch.mark(PARTS[self.part])
        self._outer.append(self.part)
        self.part = part

    def end(self, then: int) -> None:
        """That call has ended; what follows it is `then`, unless it was made within another call."""
        self._spend()
        if self.stopwatch is not None:
            self.stopwatch.mark(PARTS[self.part])
        before = self._outer.pop() if self._outer else OTHER
        self.part = then if before in BETWEEN or before == STARTUP else before

    def data_begins(self, *, begins_pass: bool = False, goes_on: bool = False) -> bool:
        """A batch is asked for: a pass that no backward pass has followed was no training. `begins_pass`:
        it is the first of a pass over a loader, the start of which has just been seen and belongs to it;
        `goes_on`: the one before it was of the same pass, and was not trained on. Whether that was a
        test."""
        self.begin(DATA)
        if self._passes_pending or (self._is_evaluating and goes_on):
            self._settle_untrained(goes_on=goes_on)
            return goes_on
        if not begins_pass:
            # What came since the last update is no part of a test that may begin here.
            self._settle_training()
        return False

    def data_runs_out(self) -> None:
        """A loader has no more batches: a test on them is over, and what follows is no part of it."""
        self.end(OTHER)
        if self._is_evaluating:
            self._settle_untrained(goes_on=True)
            self._is_evaluating = False

    def forward_begins(self, *, is_repeated: bool, has_batch: bool, is_inference: bool) -> None:
        """`is_repeated`: the same model has run without gradients since the last backward pass or batch.
        `has_batch`: the script has one that was not trained on; `is_inference`: see `Tracer`."""
        self.begin(FORWARD)
        if is_repeated or (self._is_evaluating and not has_batch):
            self._book_passes()
            self._is_evaluating = True
            if self.on_settled is not None:
                self.on_settled(frozenset() if self.is_inference else frozenset({PARTS[FORWARD]}))
        # What lies between two passes is not yet the loss.
        pending = self._pending
        pending[OTHER], pending[LOSS] = pending[OTHER] + pending[LOSS], 0
        self.is_inference = is_inference
        self._passes_pending += 1

    def test_ends(self) -> None:
        """One that began as a part of its own."""
        self.end(OTHER)
        self.total_ns[EVALUATION] += self._pending[EVALUATION]
        self._pending[EVALUATION] = 0
        self.num_evaluation_passes += 1

    def backward_begins(self) -> None:
        """What is pending was training."""
        self.begin(BACKWARD)
        self._settle_training()

    def step_ends(self) -> list[int]:
        """An update has been made: the parts of the step that it ends, in nanoseconds."""
        self._spend()
        self._settle_training()
        step, self._step = self._step, list(_EMPTY)
        for part, spent in enumerate(step):
            self.total_ns[part] += spent
        step[STARTUP] = 0
        if not self._is_partial:
            self.latest.append(step)
        self._is_partial = False
        return step

    def restart(self) -> None:
        """A step begins here: what came before since the last one counts nowhere."""
        self._pending, self._step = list(_EMPTY), list(_EMPTY)
        self._is_evaluating = False
        self._passes_pending = 0
        self._outer.clear()
        self.part, self._since = OTHER, self._clock()

    def count(self) -> None:
        """From here, the end of a step, on only whole steps and their waits for data are timed."""
        rests_ns = [sum(step) - step[DATA] for step in self.latest]
        self._most_ns = int(UNUSUAL * statistics.median(rests_ns)) if rests_ns else 0
        usual = [
            step for step, rest in zip(self.latest, rests_ns, strict=True) if rest <= self._most_ns
        ]
        sums = [sum(spent) for spent in zip(*usual, strict=True)] or list(_EMPTY)
        sums[DATA] = 0
        self._shares = [spent / max(1, sum(sums)) for spent in sums]
        self._outer.clear()
        self.part = OTHER

    def data_is_asked_for(self) -> None:
        """Where only whole steps are timed."""
        self._asked_ns = self._clock()

    def data_is_given(self) -> None:
        self._data_ns += self._clock() - self._asked_ns

    def step_is_counted(self) -> tuple[int, int]:
        """An update has been made where only whole steps are timed: the wait for data and the rest of the
        step, in nanoseconds."""
        now, data_ns = self._clock(), self._data_ns
        rest_ns = now - self._since - data_ns
        self._since, self._data_ns = now, 0
        known_ns = min(rest_ns, self._most_ns)
        self._data_total_ns += data_ns
        self._known_total_ns += known_ns
        self._beyond_total_ns += rest_ns - known_ns
        return data_ns, rest_ns

    def divided(self, data_ns: int, rest_ns: int) -> list[int]:
        """The parts of such a step, as in a usual one of the latest seen whole."""
        known_ns = min(rest_ns, self._most_ns)
        return self._parts(data_ns, known_ns, rest_ns - known_ns)

    def _parts(self, data_ns: int, known_ns: int, beyond_ns: int) -> list[int]:
        parts = [int(share * known_ns) for share in self._shares]
        parts[DATA], parts[OTHER] = data_ns, parts[OTHER] + known_ns - sum(parts) + beyond_ns
        return parts

    def see_whole(self, *, is_amid_step: bool) -> None:
        """From here on all calls are seen."""
        self._book_counted()
        spent_ns, self._data_ns, data_ns = self._clock() - self._since, 0, self._data_ns
        self._since += spent_ns
        self._step[DATA] += data_ns
        self._step[OTHER] += spent_ns - data_ns
        self._is_partial = is_amid_step

    def _book_counted(self) -> None:
        parts = self._parts(self._data_total_ns, self._known_total_ns, self._beyond_total_ns)
        self.total_ns = [sum(spent) for spent in zip(self.total_ns, parts, strict=True)]
        self._data_total_ns = self._known_total_ns = self._beyond_total_ns = 0

    def pause(self) -> None:
        """What follows counts nowhere, until `go_on`."""
        self._paused_at = self._clock()

    def go_on(self) -> None:
        paused_ns = self._clock() - self._paused_at
        self._since += paused_ns
        self.paused_ns += paused_ns

    def finish(self) -> None:
        """The process ends: `total_ns` then has all its time by part."""
        self._spend()
        if self._passes_pending:
            self._settle_untrained(goes_on=False)
        parts = zip(self.total_ns, self._step, self._pending, strict=True)
        self.total_ns = [sum(spent) for spent in parts]
        self._pending, self._step = list(_EMPTY), list(_EMPTY)

    def _settle_training(self) -> None:
        step, pending = self._step, self._pending
        for part, spent in enumerate(pending):
            if spent:
                step[part] += spent
                pending[part] = 0
        self._is_evaluating = False
        self._passes_pending = 0
        if self.on_settled is not None:
            self.on_settled(frozenset())

    def _book_passes(self) -> None:
        """No training followed the passes that are pending."""
        if self.is_inference:
            self.num_inference_passes += self._passes_pending
            self._step[INFERENCE] += self._pending[FORWARD]
        else:
            self.num_evaluation_passes += self._passes_pending
            self.total_ns[EVALUATION] += self._pending[FORWARD]
        self._pending[FORWARD] = self._passes_pending = 0

    def _settle_untrained(self, *, goes_on: bool) -> None:
        """`goes_on`: amid a pass over a loader, all of which is evaluation. Else what lies between calls is
        the script's own."""
        self._book_passes()
        pending, self._pending = self._pending, list(_EMPTY)
        for part, spent in enumerate(pending):
            if goes_on or (part in OF_PASSES and not self.is_inference):
                self.total_ns[STARTUP if part == STARTUP else EVALUATION] += spent
            else:
                self._step[OTHER if part in BETWEEN else part] += spent
        self._is_evaluating = goes_on
        if self.on_settled is not None:
            of_passes = () if self.is_inference else OF_PASSES
            self.on_settled(None if goes_on else frozenset(PARTS[part] for part in of_passes))


def parts_ms(steps_ns: Collection[Sequence[int]]) -> dict[str, list[float]]:
    """The parts of steps by name, those that never were left out."""
    names = [
        (place, name) for place, name in enumerate(PARTS) if place not in (STARTUP, EVALUATION)
    ]
    found = {name: [round(step[place] / 1e6, 6) for step in steps_ns] for place, name in names}
    return {name: values for name, values in found.items() if any(values) or name == "other"}
