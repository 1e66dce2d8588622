"""What an engine is: it makes the updates of a group of trials, and sums up what they gave.

The loop asks for updates from one point of the curve to the next and knows nothing of how they are made.
An engine opens a group once; everything it looks up, captures or compiles, it does then.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from trainlab.errors import said_by
from trainlab.record.learning_record import ConfusionRecord
from trainlab.record.schema import Value
from trainlab.record.trial_record import Progress
from trainlab.train.callbacks import Grain, Moments
from trainlab.train.metering import Means
from trainlab.train.setup import Setup

# Why a model's step cannot be made into a program.


class Unsuited(Exception):  # noqa: N818  no error: eager makes the updates instead
    """The step needs Python each time; `why` is a `not_…` sentence of `trainlab.words`."""

    def __init__(self, why: str, **values: Value) -> None:
        super().__init__(why)
        self.why, self.values = why, values


def reason_of(error: BaseException) -> str:
    """What an error says, in its first line."""
    text = said_by(error).strip() or type(error).__name__
    return text.splitlines()[0]


State = dict[str, Any]
"""What a checkpoint holds of a session: tensors and plain values, however nested."""
Update = Callable[[Any], object]
"""Runs one step on a batch: row numbers of the training set, or a batch of the test set as stored."""


@dataclass(frozen=True)
class Member:
    """One trial of a group: what it trains, who watches it, how far it has come."""

    setup: Setup
    moments: Moments
    progress: Progress


class Session(Protocol):
    """A group of trials with as many steps per epoch that an engine has open. What is returned has an entry
    per member, in order. A diverged member may still be updated; it must not disturb the others."""

    def learning_rates(self) -> Sequence[float]:
        """The current ones."""

    def training(self, epoch: int, resumed: State | None = None) -> AbstractContextManager[None]:
        """Entered for the updates of one epoch: data order and dropout derive from (seed, epoch). With
        `resumed` it goes on where that state was taken, after some of its updates."""

    def advance(self, num_steps: int) -> Sequence[Means]:
        """Makes so many further updates of the epoch and waits until they are done; counts each in
        the member's progress as it is made."""

    def test(self, epoch: int) -> Sequence[Means]:
        """Runs the whole test set in eval mode and waits until it is done."""

    def validate(self, epoch: int) -> Sequence[Means | None]:
        """The same on the validation set; None where there is none."""

    def keep(self) -> None:
        """The weights as they are now are the best so far: `settle` brings them back. Of a group of one."""

    def settle(self) -> None:
        """Training is over: each model gets the weights that its result is of. Only now is the user's code
        called where her own loop would not call it."""

    def confusion(self, number: int, epoch: int) -> ConfusionRecord | None:
        """Which classes the test set of one member was taken for, once settled; `epoch` is the one that its
        result is of. None where the trial is about no classes."""

    def change_learning_rates(self) -> None:
        """As the schedules say; called after each epoch."""

    def state(self) -> State:
        """All that further updates depend on, between two calls of `advance` or two epochs."""

    def restore(self, state: State) -> None:
        """Takes over such a state, before the first update; `training` then goes on from it."""


class Engine(Protocol):
    """A way to make updates. All engines write the same records."""

    name: str
    shows: Grain
    """The finest moments that instruments can watch in it."""
    takes_many: bool
    """Whether it runs a group of several trials together; else a group is one trial."""
    is_program: bool
    """Whether its steps are a program, which instruments can watch from inside."""

    def open(self, group: Sequence[Member]) -> Session:
        """Everything that is to be done before the first update; `Unsuited` where this engine cannot make
        the updates of these trials: nothing has changed then."""

    def training_step(self, setup: Setup, moments: Moments) -> Update:
        """One update by itself, for measuring what it costs."""

    def inference_step(self, setup: Setup, moments: Moments) -> Update:
        """One forward pass over a batch of the test set by itself, for measuring what it costs."""
