"""The checkpoints of trials that train together: when they are made, and which one can be gone on from.

A checkpoint is one file in the `resume` folder of the first of the trials, written beside and renamed; the
one before is kept. It is used only by the same trials, set up alike on this torch, and only where the
curves of the attempt that made it are as long as they were then.
"""

import hashlib
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree
from typing import Any

import torch

from trainlab.errors import RecordError
from trainlab.record.files import sync, writing
from trainlab.record.run_folder import TrialFolder
from trainlab.train.checkpoint.state import State
from trainlab.train.checkpoint.tensor_file import (
    SUFFIX,
    DamagedError,
    read_state,
    to_bytes,
    write_content,
)

INTERVAL_S = 30.0
LEAST_S = 1.0
"""Between two checkpoints at ends of epochs: less is not worth the writing."""
MOST_SHARE = 0.02
"""Of the time, that checkpoints at ends of epochs may take."""
VARIABLE = "TRAINLAB_CHECKPOINT_S"
"""Sets another interval; 0: at every point of the curve."""
NUM_KEPT = 2

Facts = Mapping[str, Any]
"""What a trial's settings became, as recorded."""


@dataclass(frozen=True)
class CheckpointedTrial:
    """A trial of the group, as the attempt that runs it sees it."""

    folder: TrialFolder
    attempt: int
    token: str
    facts: Facts


class Checkpoints:
    """Those of one group of trials."""

    def __init__(
        self, trials: Sequence[CheckpointedTrial], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._trials, self._clock = trials, clock
        self._folder = trials[0].folder.resume_folder
        self._interval_s = interval_s()
        self._made_s = clock()
        self._last_took_s = 0.0
        self.were_unfit = False
        self.can_be_made = True
        """Whether nothing has turned up that they cannot hold."""

    def is_due(self, *, at_epoch_end: bool) -> bool:
        """Whether one is to be made now."""
        pause_s = self._interval_s
        if at_epoch_end:
            pause_s = min(pause_s, max(LEAST_S, self._last_took_s / MOST_SHARE))
        return self.can_be_made and self._clock() - self._made_s >= pause_s

    def give_up(self) -> None:
        """No more are made: something has turned up that they cannot hold."""
        self.can_be_made = False

    def save(self, step: int, state: State) -> None:
        """Makes one after so many updates. A disk that is full is no reason to stop training; that another
        attempt has taken the trials over is."""
        for trial in self._trials:
            trial.folder.check_current(trial.token)
        begun_s = self._clock()
        values = {"trials": [self._described(trial) for trial in self._trials], **state.values}
        try:
            content = to_bytes(State(state.tensors, values | {"torch": torch.__version__}))
        except (KeyError, TypeError, ValueError):
            self.give_up()
            return
        with suppress(RecordError, OSError):
            self._write(f"{step}-{self._trials[0].attempt}", content)
        self._made_s = self._clock()
        self._last_took_s = self._made_s - begun_s

    def newest(self, suits: Callable[[State], bool] = lambda state: True) -> State | None:
        """The last one that can be gone on from, and that suits. `were_unfit` says whether a later one was
        sound and did not suit."""
        for path in self._paths():
            try:
                state = read_state(path)
            except (DamagedError, RecordError):
                continue
            if not self._fits(state.values):
                continue
            if suits(state):
                return state
            self.were_unfit = True
        return None

    def put_back(self, state: State) -> None:
        """Curves and event files, as they were then, from the attempts that were set aside."""
        for trial, told in zip(self._trials, state.values["trials"], strict=True):
            earlier = trial.folder.set_aside(told["attempt"])
            with writing(trial.folder.curve_file):
                content = earlier.curve_file.read_bytes()[: told["curve"]["bytes"]]
                trial.folder.curve_file.write_bytes(content)
            with writing(trial.folder.probes_file):
                if told["probes"] is not None:
                    content = earlier.probes_file.read_bytes()[: told["probes"]["bytes"]]
                    trial.folder.probes_file.write_bytes(content)
            with writing(trial.folder.tensorboard_folder):
                if earlier.tensorboard_folder.is_dir():
                    copytree(earlier.tensorboard_folder, trial.folder.tensorboard_folder)

    def _described(self, trial: CheckpointedTrial) -> dict[str, Any]:
        curve, probes = trial.folder.curve_file, trial.folder.probes_file
        for path in (curve, probes):
            with suppress(OSError):
                sync(path)
        return {
            "id": trial.folder.path.name,
            "attempt": trial.attempt,
            "facts": trial.facts,
            "curve": _written(curve),
            "probes": _written(probes) if probes.exists() else None,
        }

    def _fits(self, values: Mapping[str, Any]) -> bool:
        told = values.get("trials", ())
        if values.get("torch") != torch.__version__ or len(told) != len(self._trials):
            return False
        return all(
            {"id", "facts", "attempt", "curve", "probes"} <= one.keys()
            and one["id"] == trial.folder.path.name
            and one["facts"] == trial.facts
            and _are_there(trial.folder.set_aside(one["attempt"]), one)
            for one, trial in zip(told, self._trials, strict=True)
        )

    def _write(self, name: str, content: bytes) -> None:
        with writing(self._folder):
            self._folder.mkdir(exist_ok=True)
        write_content(self._folder, name, content)
        sync(self._folder)
        for old in self._paths()[NUM_KEPT:]:
            old.unlink(missing_ok=True)

    def _paths(self) -> list[Path]:
        """The last one first."""
        named = {path: path.stem.split("-")[:2] for path in self._folder.glob(f"*-*-*{SUFFIX}")}
        ours = [path for path, parts in named.items() if all(part.isdecimal() for part in parts)]
        return sorted(ours, key=lambda path: [int(part) for part in named[path]], reverse=True)


def interval_s() -> float:
    """Between two checkpoints within an epoch."""
    try:
        asked = float(os.environ.get(VARIABLE, INTERVAL_S))
    except ValueError:
        return INTERVAL_S
    return asked if math.isfinite(asked) and asked >= 0 else INTERVAL_S


def _written(path: Path, num_bytes: int | None = None) -> dict[str, Any]:
    """How long a file is, or a part of it, and its digest."""
    content = path.read_bytes()[:num_bytes]
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _are_there(earlier: TrialFolder, told: Mapping[str, Any]) -> bool:
    """Whether the files of an attempt begin with what they held then."""
    for path, wanted in (
        (earlier.curve_file, told["curve"]),
        (earlier.probes_file, told["probes"]),
    ):
        try:
            if wanted is not None and _written(path, wanted["bytes"]) != wanted:
                return False
        except OSError:
            return False
    return True
