"""Checkpoints of trials that train together, so that a curve that was cut is the same to the last bit.

A checkpoint is one file of `torch.save` in the `resume` folder of the first of the trials, written beside
and renamed; the one before is kept. It is used only by the same trials, set up alike on this torch, and
only where the curves of the attempt that made it are still there.
"""

import io
import os
import pickle
import time
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from shutil import copytree
from typing import Any

import torch

from trainlab.errors import RecordError
from trainlab.record.files import replacing, sync, writing
from trainlab.record.run_folder import TrialFolder
from trainlab.train import end_if_asked, is_asked_to_end
from trainlab.train.engines.capture import attributes_of
from trainlab.train.engines.engine import Member, Session, State

INTERVAL_S = 30.0
VARIABLE = "TRAINLAB_CHECKPOINT_S"
"""Sets another interval; 0: at every point of the curve."""
NUM_KEPT = 2


@dataclass
class Place:
    """Where in an epoch the training of a group is."""

    epoch: int = 1
    steps: int = 0
    """Updates of the epoch that are done."""
    totals: list[dict[str, float]] = field(default_factory=list)
    """Of each member: loss and metrics of the epoch so far, times their samples."""
    train_s: float = 0.0
    """Of the epoch so far."""


@dataclass(frozen=True)
class CheckpointedTrial:
    """A trial of the group, as the attempt that runs it sees it."""

    folder: TrialFolder
    attempt: int
    token: str
    facts: Mapping[str, Any]
    """What its settings became, as recorded."""


class Checkpoints:
    """Those of one group of trials, opened before the first update: the files of its members are put back
    as they were at the last checkpoint that can be gone on from, where there is one."""

    def __init__(self, trials: Sequence[CheckpointedTrial], group: Sequence[Member]) -> None:
        self._trials, self._group = trials, group
        self._folder = trials[0].folder.resume_folder
        self._interval_s, self._made_s = interval_s(), time.monotonic()
        self._attributes = self._attributes_now()
        self._can_be_made = True
        self._found = self._newest()
        if self._found is not None:
            self._put_back(self._found)

    def steps_before(self, number: int) -> int:
        """Updates of that member that are not made again."""
        return 0 if self._found is None else int(self._found["members"][number]["steps_done"])

    def instruments(self, number: int) -> Sequence[Mapping[str, Any]]:
        """What was saved of those that watch that member."""
        return () if self._found is None else self._found["instruments"][number]

    def restored(self, session: Session) -> tuple[Place, State | None]:
        """Where the group goes on, and the state of the session within that epoch."""
        if self._found is None:
            return Place(), None
        found, self._found = self._found, None
        session.restore(found["session"])
        for member, told in zip(self._group, found["members"], strict=True):
            vars(member.progress).update(told)
        place = Place(**found["place"])
        return place, found["session"] if place.steps else None

    def save_if_due(self, session: Session, place: Place) -> None:
        """Makes a checkpoint where enough time has passed since the last one. One is made, too, where the
        process was asked to end: Interrupted then."""
        if is_asked_to_end() or time.monotonic() - self._made_s >= self._interval_s:
            self._save(session, place)
        end_if_asked()

    def _save(self, session: Session, place: Place) -> None:
        """A disk that is full is no reason to stop training; that another attempt has taken the trials over
        is."""
        if self._attributes_now() != self._attributes:
            self._can_be_made = False  # a counter in Python, say, which no checkpoint holds
        instruments = [member.moments.saved_state() for member in self._group]
        if not self._can_be_made or None in instruments:
            return
        for member in self._group:
            if member.progress.state == "running":
                member.moments.flush()
        for trial in self._trials:
            trial.folder.check_current(trial.token)
        saved = {
            "torch": str(torch.__version__),
            "trials": [_described(trial) for trial in self._trials],
            "place": asdict(place),
            "members": [asdict(member.progress) for member in self._group],
            "instruments": instruments,
            "session": session.state(),
        }
        stream = io.BytesIO()
        try:
            torch.save(saved, stream)
        except (pickle.PickleError, AttributeError, TypeError, RuntimeError, ValueError):
            self._can_be_made = False  # something in it cannot be saved
        else:
            step = max(member.progress.steps_done for member in self._group)
            with suppress(RecordError, OSError):
                self._write(f"{step}-{self._trials[0].attempt}.pt", stream.getvalue())
        self._made_s = time.monotonic()

    def _write(self, name: str, content: bytes) -> None:
        with writing(self._folder):
            self._folder.mkdir(exist_ok=True)
        with replacing(self._folder / name) as part:
            part.write_bytes(content)
        sync(self._folder)
        for old in self._paths()[NUM_KEPT:]:
            old.unlink(missing_ok=True)

    def _newest(self) -> dict[str, Any] | None:
        """The last one that can be gone on from; one that cannot be read is noted."""
        for path in self._paths():
            try:
                found = _read(path)
                if self._fits(found):
                    return found
            except Exception:  # noqa: BLE001  what a file that is none makes torch raise
                for member in self._group:
                    member.setup.note_once("checkpoint_unfit")
        return None

    def _fits(self, found: Mapping[str, Any]) -> bool:
        """Whether it is of the same trials, set up alike, whose files still hold what they held then."""
        told = found["trials"]
        if found["torch"] != str(torch.__version__) or len(told) != len(self._trials):
            return False
        for one, trial in zip(told, self._trials, strict=True):
            if one["id"] != trial.folder.path.name or one["facts"] != trial.facts:
                return False
            earlier = _appended_to(trial.folder.set_aside(one["attempt"]))
            if any(_size_of(path) < size for path, size in zip(earlier, one["sizes"], strict=True)):
                return False
        return True

    def _put_back(self, found: Mapping[str, Any]) -> None:
        """Curves and event files, as they were then, from the attempts that were set aside."""
        for trial, told in zip(self._trials, found["trials"], strict=True):
            folder, earlier = trial.folder, trial.folder.set_aside(told["attempt"])
            sources = zip(_appended_to(earlier), told["sizes"], strict=True)
            for path, (source, size) in zip(_appended_to(folder), sources, strict=True):
                with writing(path):
                    if size:
                        path.write_bytes(source.read_bytes()[:size])
            with writing(folder.tensorboard_folder):
                if earlier.tensorboard_folder.is_dir():
                    copytree(earlier.tensorboard_folder, folder.tensorboard_folder)

    def _paths(self) -> list[Path]:
        """The last one first."""

        def order(path: Path) -> list[int]:
            return [int(one) for one in path.stem.split("-")]

        return sorted(self._folder.glob("[0-9]*-[0-9]*.pt"), key=order, reverse=True)

    def _attributes_now(self) -> list[dict[str, Any]]:
        return [attributes_of(member.setup.model) for member in self._group]


def interval_s() -> float:
    """Between two checkpoints within an epoch."""
    try:
        return float(os.environ.get(VARIABLE, INTERVAL_S))
    except ValueError:
        return INTERVAL_S


def _read(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as file:
        if (damaged := file.testzip()) is not None:
            raise pickle.UnpicklingError(damaged)
    found: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return found


def _appended_to(folder: TrialFolder) -> tuple[Path, Path]:
    """What instruments append to."""
    return folder.curve_file, folder.probes_file


def _size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _described(trial: CheckpointedTrial) -> dict[str, Any]:
    paths = _appended_to(trial.folder)
    for path in paths:
        with suppress(OSError):
            sync(path)
    return {
        "id": trial.folder.path.name,
        "attempt": trial.attempt,
        "facts": dict(trial.facts),
        "sizes": [_size_of(path) for path in paths],
    }
