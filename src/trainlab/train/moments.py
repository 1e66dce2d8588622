"""The moments of a trial that an instrument can watch. The loop calls them; it knows nothing more."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from trainlab.record.schema import State

if TYPE_CHECKING:
    from trainlab.train.setup import Bench

Phase = Literal["data", "transfer", "zero_grad", "forward", "loss", "backward", "optimizer"]


@dataclass(frozen=True)
class Point:
    """One point of the curve: metrics by slash path (`train/loss`), times apart from them."""

    kind: Literal["step", "epoch"]
    epoch: int
    step: int
    """Updates done since the start of the trial."""
    samples: int
    """Training samples seen since the start of the trial."""
    metrics: Mapping[str, float]
    times_s: Mapping[str, float]
    """`time_s` since the start; for an epoch also `train_s` and `test_s`."""


@dataclass
class Progress:
    """How far a trial has come; kept by the loop, read by whoever must tell."""

    state: State = "running"
    epochs_done: int = 0
    steps_done: int = 0
    total_s: float = 0.0
    final: dict[str, float] = field(default_factory=dict)
    diverged_at_step: int | None = None


class Instrument:
    """Watches a trial and writes records; overrides the moments it needs and steers nothing."""

    def trial_begins(self, bench: "Bench") -> None:
        """Model, optimizer and data stand ready; no update has happened."""

    def epoch_begins(self, epoch: int) -> None:
        """Epochs count from 1."""

    def step_begins(self, step: int) -> None:
        """Updates count from 1 over the whole trial."""

    def phase_ends(self, phase: Phase) -> None:
        """A part of the step is over; on a GPU its work is queued, not done."""

    def step_ends(self, step: int) -> None:
        """The update has been made."""

    def point_logged(self, point: Point) -> None:
        """Means over the updates since the last point."""

    def test_begins(self, epoch: int) -> None:
        """The model is about to run the test set in eval mode: hooks fire there too."""

    def test_ends(self, epoch: int) -> None:
        """The test set has been run."""

    def epoch_ends(self, point: Point) -> None:
        """Means over the epoch, and the test set's."""

    def trial_ends(self, progress: Progress) -> None:
        """However it ended; the last chance to write and to close."""


class Moments:
    """The instruments of one trial, as one callable per moment; a moment nobody watches costs nothing."""

    def __init__(self, instruments: Sequence[Instrument]) -> None:
        self.instruments = tuple(instruments)
        self._begun: list[Instrument] = []
        self.epoch_begins = self._all("epoch_begins")
        self.step_begins = self._all("step_begins")
        self.phase_ends = self._all("phase_ends")
        self.step_ends = self._all("step_ends")
        self.point_logged = self._all("point_logged")
        self.test_begins = self._all("test_begins")
        self.test_ends = self._all("test_ends")
        self.epoch_ends = self._all("epoch_ends")

    def trial_begins(self, bench: "Bench") -> None:
        """Tells every instrument; those that got this far will be told of the end."""
        for instrument in self.instruments:
            instrument.trial_begins(bench)
            self._begun.append(instrument)

    def trial_ends(self, progress: "Progress") -> None:
        """Tells every instrument that began, whatever another one raises; then raises the first fault."""
        faults: list[BaseException] = []
        for instrument in self._begun:
            try:
                instrument.trial_ends(progress)
            except BaseException as fault:  # noqa: BLE001  the others must still close their files
                faults.append(fault)
        self._begun.clear()
        if faults:
            raise faults[0]

    def _all(self, moment: str) -> Callable[[Any], None]:
        base = getattr(Instrument, moment)
        watchers = [
            getattr(instrument, moment)
            for instrument in self.instruments
            if getattr(type(instrument), moment) is not base
        ]
        if not watchers:
            return _nobody
        if len(watchers) == 1:
            return watchers[0]  # type: ignore[no-any-return]

        def tell(seen: Any) -> None:
            for watch in watchers:
                watch(seen)

        return tell


def _nobody(seen: Any) -> None:
    """A moment that no instrument watches."""
