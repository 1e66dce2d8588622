"""Watching a program from inside: what an instrument offers where the steps of a group are a program.

The Python of a program's step runs once for all trials of the group, and on a GPU only until the step is
captured. So what a watch does in a step is queued on the device and stays in tensors; the host reads them
between steps.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, get_args

import torch
from torch import Tensor, nn

from trainlab.plan import Trial
from trainlab.record.run_folder import TrialFolder
from trainlab.record.schema import Note, Value
from trainlab.record.trial_record import Progress


@dataclass(frozen=True)
class ProgramView:
    """What a program shows of itself. A lane is one trial's share of a tensor."""

    model: nn.Module
    """Whose modules are called, for all trials."""
    device: torch.device
    precision: str
    num_lanes: int
    is_vectorised: bool
    """Whether the model's tensors are those of all lanes, seen through vmap; else there is one lane."""
    parameters: Mapping[str, Tensor]
    """By name, with the lanes as first dimension."""
    constants: Sequence[Tensor]
    """The tensors that the model's parameters and buffers are in the program."""


class ProgramWatch(Protocol):
    """Sees every step of a group. Moments of the step come first, then those between steps. In a step
    nothing may depend on numbers of the host that change from step to step."""

    @property
    def tensors(self) -> Sequence[Tensor]:
        """All that a step changes, once each kind of step has run; changed in place only."""

    def forward(self, num_samples: int) -> AbstractContextManager[None]:
        """Entered around model and loss of a step of so many samples per trial."""

    def backward_ends(self) -> None:
        """All gradients of the step have been computed."""

    def gradients_ready(self, gradients: Mapping[str, Tensor]) -> None:
        """The gradients that the optimizer gets, by parameter, with the lanes as first dimension."""

    def update_ends(self) -> None:
        """The optimizer has updated the parameters."""

    def reference(self, num_samples: int) -> AbstractContextManager[AbstractContextManager[None]]:
        """Entered around a step that eager makes of the first trial; what it gives, around its model and
        loss. A watch that sees something else in the program raises `Unsuited` when that opens."""

    def opened(self) -> None:
        """The program stands ready; what was seen so far does not count."""

    def go_on(self, is_running: Sequence[bool]) -> None:
        """Before further steps: which of the trials still run."""

    def next_steps(self, most: int) -> int:
        """How many of that many steps are to be made now; `steps_done` follows them."""

    def steps_done(self, num_samples: int, num_steps: int) -> None:
        """So many steps of so many samples have been made, or queued."""


# The moments of a trial that an instrument can watch, called by the loop.

Phase = Literal[
    "data", "transfer", "prepare", "zero_grad", "forward", "loss", "backward", "optimizer"
]
Arguments = tuple[tuple[Any, ...], Mapping[str, Any]]
"""By place and by name."""
ParameterIds = frozenset[int] | None
"""Which parameters, by `id`; None: all."""
Grain = Literal["point", "step", "phase", "call"]
"""How finely a trial is watched: at the points of its curve, at every step, within each step, or at every
call that the model makes."""
GRAINS: tuple[Grain, ...] = get_args(Grain)
"""The coarsest first."""


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


@dataclass(frozen=True)
class TrialView:
    """What an instrument gets to see: the trial, its model, and where its records go."""

    trial: Trial
    device: torch.device
    model: nn.Module
    folder: TrialFolder
    num_steps: int
    """Updates from the start of the trial to its end."""
    num_epochs: int
    """Passes over the training set that those take."""
    samples_by: Callable[[int], int]
    """Training samples seen once so many updates are done."""
    stored_inputs: Callable[[int], Tensor | None]
    """The first so many test inputs, as they are stored; None where they are no tensor."""
    model_call: Callable[[int], tuple[nn.Module, Arguments]]
    """A copy of the model as it was when the trial began, with what it is called with, on the device. The
    user's code runs for it, which her own loop would not call: only once the training is over."""
    notes: list[Note]
    steps_before: int = 0
    """Updates that an earlier attempt made, from whose checkpoint this one goes on; 0: it starts anew."""

    def note(self, code: str, **values: Value) -> None:
        """Records something that the instrument could not do; `trainlab.words` has the sentence."""
        self.notes.append(Note(code=code, values=values))


class Instrument:
    """Watches a trial and writes records; overrides the moments it needs and steers nothing."""

    goes_on: ClassVar[bool] = False
    """Whether it can watch a trial that goes on from a checkpoint (`TrialView.steps_before`): its files are
    then put back as they were. Trials that others watch start anew."""

    def trial_begins(self, view: TrialView) -> None:
        """Model, optimizer and data stand ready; no update has happened."""
        self._view = view

    def epoch_begins(self, epoch: int) -> None:
        """Epochs count from 1."""

    def step_begins(self, step: int) -> None:
        """Updates count from 1 over the whole trial."""

    def batch_ready(self, inputs: Any, targets: Any) -> None:
        """The batch as the model and the loss will get it, on the device; where the workload's own step
        gets it, the whole as inputs."""

    def forward_begins(self) -> None:
        """The model is about to run on the batch."""

    def phase_ends(self, phase: Phase) -> None:
        """A part of the step is over; on a GPU its work is queued, not done."""

    def passes_go_on(self) -> None:
        """Of a workload's own update: a backward pass is over, and further passes may come."""

    def passes_end(self) -> None:
        """Of a workload's own update: it has returned."""

    def gradients_ready(self, parameters: ParameterIds = None) -> None:
        """The gradients of these parameters are what their optimizer applies: its own hooks, which may clip
        them, have run. Where it asks for the loss again (a closure), each time it has got an answer."""

    def update_begins(self, parameters: ParameterIds = None) -> None:
        """Their optimizer is about to change these parameters."""

    def step_ends(self, step: int) -> None:
        """The update has been made."""

    def point_logged(self, point: Point) -> None:
        """Means over the updates since the last point."""

    def flush(self) -> None:
        """A checkpoint will be made: what was written so far must be in files."""

    def saved_state(self) -> Mapping[str, Any] | None:
        """What a checkpoint must hold of it besides its files, as JSON has it; None: not now."""
        return {}

    def restore_state(self, saved: Mapping[str, Any]) -> None:
        """Takes that over, once the trial has begun."""

    def test_begins(self, epoch: int) -> None:
        """The model is about to run the test set in eval mode: hooks fire there too."""

    def test_ends(self, epoch: int) -> None:
        """The test set has been run."""

    def epoch_ends(self, point: Point) -> None:
        """Means over the epoch, and the test set's."""

    def trial_ends(self, progress: Progress) -> None:
        """However it ended; the last chance to write and to close."""


class ProgramInstrument(Instrument, ABC):
    """One that can watch from inside where the steps of a group are a program, and then needs no moments
    finer than points."""

    @abstractmethod
    def in_program(self, group: Sequence[Instrument], view: ProgramView) -> ProgramWatch:
        """What watches the steps for the group's instruments of this kind, one per trial in order."""


FINER_THAN_POINTS: Mapping[str, Grain] = {
    "step_begins": "step",
    "step_ends": "step",
    "batch_ready": "phase",
    "forward_begins": "call",
    "phase_ends": "phase",
    "passes_go_on": "call",
    "passes_end": "call",
    "gradients_ready": "phase",
    "update_begins": "phase",
}
"""Moments that not every engine can show."""


class Moments:
    """The instruments of one trial: `moments.step_begins(3)` calls all that watch that moment."""

    def __init__(self, instruments: Sequence[Instrument]) -> None:
        self.instruments = tuple(instruments)
        self._begun: list[Instrument] = []

    def __getattr__(self, moment: str) -> Callable[..., None]:
        watchers = _watchers(self.instruments, moment)

        def call_all(*arguments: Any) -> None:
            for watcher in watchers:
                watcher(*arguments)

        # Looked up once: an unwatched moment costs nothing.
        vars(self)[moment] = watchers[0] if len(watchers) == 1 else call_all
        return vars(self)[moment]  # type: ignore[no-any-return]

    def is_watched(self, moment: str) -> bool:
        return bool(_watchers(self.instruments, moment))

    @property
    def go_on(self) -> bool:
        """Whether all instruments can watch a trial that goes on from a checkpoint."""
        return all(instrument.goes_on for instrument in self.instruments)

    @property
    def grain(self) -> Grain:
        """The finest that any of the instruments needs."""
        needed = [g for name, g in FINER_THAN_POINTS.items() if self.is_watched(name)]
        return max(needed, key=GRAINS.index, default="point")

    @property
    def grain_in_program(self) -> Grain:
        """The finest needed where those that can watch a program from inside do so."""
        others = [one for one in self.instruments if not isinstance(one, ProgramInstrument)]
        return Moments(others).grain

    def trial_begins(self, view: TrialView, saved: Sequence[Mapping[str, Any]] = ()) -> None:
        """Calls every instrument; the end of the trial is reported to those that began without a fault.
        `saved` is what a checkpoint holds of them."""
        for instrument in self.instruments:
            instrument.trial_begins(view)
            self._begun.append(instrument)
        for instrument, own in zip(self.instruments, saved, strict=False):
            instrument.restore_state(own)

    def saved_state(self) -> list[Mapping[str, Any]] | None:
        """What a checkpoint must hold of the instruments; None where one of them cannot be saved now."""
        found = [instrument.saved_state() for instrument in self.instruments]
        return None if None in found else [one for one in found if one is not None]

    def trial_ends(self, progress: Progress) -> None:
        """Calls every instrument that began, whatever another one raises; then raises the first fault."""
        faults: list[BaseException] = []
        for instrument in self._begun:
            try:
                instrument.trial_ends(progress)
            except BaseException as fault:  # noqa: BLE001  the others must still close their files
                faults.append(fault)
        self._begun.clear()
        if faults:
            raise faults[0]


def program_watch(group: Sequence[Moments], view: ProgramView) -> ProgramWatch | None:
    """What watches the steps of these trials from inside their program, where an instrument does."""
    watching = [
        [one for one in moments.instruments if isinstance(one, ProgramInstrument)]
        for moments in group
    ]
    if not any(watching):
        return None
    assert all(len(of_trial) == 1 for of_trial in watching), "one such instrument per trial"
    alike = [instrument for (instrument,) in watching]
    return alike[0].in_program(alike, view)


def _watchers(instruments: Sequence[Instrument], moment: str) -> list[Callable[..., None]]:
    base = getattr(Instrument, moment)
    return [
        getattr(instrument, moment)
        for instrument in instruments
        if getattr(type(instrument), moment) is not base
    ]
