"""The folder of one trial."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from typing import Any

from trainlab.errors import RecordError
from trainlab.record.confusion import ConfusionRecord
from trainlab.record.cost import (
    CostRecord,
    LayersRecord,
    LimitsRecord,
    MemoryRecord,
    NetworkRecord,
    OperatorsRecord,
    ProbeCostRecord,
)
from trainlab.record.curve import CurveLine, EpochLine
from trainlab.record.files import (
    COPY_AGAIN,
    WAS_CHANGED,
    make_folder,
    read_json,
    remove_parts,
    replacing,
    sha256_of,
    sync,
    write_json,
    writing,
)
from trainlab.record.folder.records import RecordFile, checked_lines, read_record
from trainlab.record.probe import ProbeRecord, ProbesRecord
from trainlab.record.scripts.watched import WatchedRecord
from trainlab.record.trial import TrialRecord

SPARE_BYTES = 16 * 1024
"""Kept free while a trial runs: more than the record of how it ended takes, but for the longest errors."""


class TrialFolder:
    """The records of one trial."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.trial_file = path / "trial.json"
        self.curve_file = path / "curve.jsonl"
        self.network = RecordFile(path / "network.json", NetworkRecord)
        self.confusion = RecordFile(path / "confusion.json", ConfusionRecord)
        self.cost = RecordFile(path / "cost.json", CostRecord)
        self.operators = RecordFile(path / "operators.json", OperatorsRecord)
        self.layers = RecordFile(path / "layers.json", LayersRecord)
        self.memory = RecordFile(path / "memory.json", MemoryRecord)
        self.limits = RecordFile(path / "limits.json", LimitsRecord)
        self.probe_price = RecordFile(path / "probe_price.json", ProbeCostRecord)
        self.probes = RecordFile(path / "probes.json", ProbesRecord)
        self.watched = RecordFile(path / "watched.json", WatchedRecord)
        self.answers_pipe = path / ".answers"
        self.output_file = path / "output.txt"
        self.work_folder = path / "work"
        self.probes_file = path / "probes.jsonl"
        self.trace_file = path / "trace.json.gz"
        self.tensorboard_folder = path / "tensorboard"
        self.checkpoint_folder = path / "checkpoint"
        self.model_file = self.checkpoint_folder / "model.pt"
        self.resume_folder = path / "resume"
        self.attempts_folder = path / "attempts"
        self._spare_file = path / ".spare"
        self._ended_file = path / ".ended.json"

    def write(self, record: TrialRecord, *, synced: bool = True) -> None:
        """Writes trial.json; RecordError where another attempt has taken the trial over meanwhile."""
        make_folder(self.path)
        self.check_current(record.token)
        self._replace(record, synced=synced)

    def check_current(self, token: str | None) -> None:
        """RecordError where the last attempt at the trial, as it is recorded, has another token."""
        try:
            is_current = self.read().token == token
        except RecordError:
            return  # not written yet, or damaged: nobody else's
        if not is_current:
            raise RecordError(
                f"{self.trial_file}: another attempt runs this trial now; this one is given up"
            )

    def _replace(self, record: TrialRecord, *, synced: bool = True) -> None:
        write_json(self.trial_file, record.model_dump(mode="json"), synced=synced)

    def read(self) -> TrialRecord:
        """Reads trial.json."""
        return read_record(self.trial_file, TrialRecord)

    def end(self, record: TrialRecord) -> None:
        """Writes trial.json for the last time, where the disk is full into the room kept for it. The other
        records are on the disk before it says that the trial has ended, and it holds their digests."""
        with writing(self._spare_file):
            self._spare_file.unlink(missing_ok=True)
        records = [path for path in self.readers() if path.exists()]
        for path in records:
            with suppress(OSError):  # what a failing disk loses is noticed by its digest
                sync(path)
        files = {path.name: sha256_of(path) for path in records}
        self.write(record.model_copy(update={"files": files}))
        with suppress(OSError):  # not every file system can
            sync(self.path)
        with writing(self._ended_file):
            self._ended_file.unlink(missing_ok=True)

    def prepare_end(self, record: TrialRecord, together: Sequence[str]) -> None:
        """Leaves beside trial.json what will be its last content, once the trials that trained together
        have all done so: should the process die then, none of them needs to train again by itself."""
        write_json(self._ended_file, {**record.model_dump(mode="json"), "together": list(together)})

    def prepared_end(self) -> tuple[TrialRecord, Sequence[str]] | None:
        """What the last attempt left so, with the trials that trained together."""
        try:
            ended, together = (
                read_record(self._ended_file, TrialRecord),
                read_json(self._ended_file),
            )
            is_of_last = self.read().token == ended.token
        except RecordError:
            return None
        return (ended, together.get("together", ())) if is_of_last else None

    def check_files(self, record: TrialRecord) -> None:
        """RecordError where a record is missing or not as it was when the trial ended."""
        for name, digest in record.files.items():
            path = self.path / Path(name).name
            if sha256_of(path) != digest:
                raise RecordError(f"{path}: {WAS_CHANGED}; {COPY_AGAIN}")

    def begin_attempt(self, **changes: Any) -> TrialRecord:
        """Writes trial.json with the next attempt counted; what an earlier one left is set aside, not lost.

        Room is kept for how it ends, since the disk may be full by then; none where it cannot even begin.
        """
        record = self.read()
        with replacing(self._spare_file) as part:
            # Random: a disk that compresses must keep room for it, too.
            part.write_bytes(os.urandom(SPARE_BYTES))
        try:
            if record.attempt:
                self._set_aside(record)
            begun = record.next_attempt().model_copy(update=changes)
            self._replace(begun)
        except BaseException:
            self._spare_file.unlink(missing_ok=True)
            raise
        return begun

    def set_aside(self, attempt: int) -> "TrialFolder":
        """Where an earlier attempt's files are once another has begun."""
        return TrialFolder(self.attempts_folder / str(attempt))

    def earlier_attempts(self) -> "list[TrialFolder]":
        """All that were set aside."""
        if not self.attempts_folder.is_dir():
            return []
        return [TrialFolder(path) for path in self.attempts_folder.iterdir() if path.is_dir()]

    def remove_checkpoints(self) -> None:
        """The trial is finished: nobody will go on with it."""
        with writing(self.resume_folder):
            if self.resume_folder.is_dir():
                rmtree(self.resume_folder)

    @property
    def _kept_in_place(self) -> tuple[Path, ...]:
        return self.trial_file, self._spare_file, self.attempts_folder, self.resume_folder

    def _set_aside(self, record: TrialRecord) -> None:
        """Moves what an attempt left into a folder of its own; a half-written file is nobody's record."""
        aside = self.set_aside(record.attempt).path
        with writing(aside):
            aside.mkdir(parents=True, exist_ok=True)
            remove_parts(self.path)
            for path in self.path.iterdir():
                if path not in self._kept_in_place:
                    path.rename(aside / path.name)
        write_json(aside / self.trial_file.name, record.model_dump(mode="json"))

    def readers(self) -> dict[Path, Callable[[], object]]:
        """Every record of a trial beside trial.json, and what reads and checks it."""
        files: tuple[RecordFile[Any], ...] = (
            *(self.network, self.cost, self.operators, self.layers, self.memory, self.limits),
            *(self.probe_price, self.probes, self.confusion, self.watched),
        )
        read: dict[Path, Callable[[], object]] = {file.path: file.read for file in files}
        return read | {self.curve_file: self.curve, self.probes_file: self.probe_lines}

    def watched_by(self, rank: int) -> RecordFile[WatchedRecord]:
        """What one of the processes that torchrun started was seen to do."""
        return (
            RecordFile(self.path / f"watched-rank{rank}.json", WatchedRecord)
            if rank
            else self.watched
        )

    def curve_of(self, rank: int) -> Path:
        """The curve that this process saw; that of the first is the trial's."""
        return self.path / f"curve-rank{rank}.jsonl" if rank else self.curve_file

    def curve(self) -> list[dict[str, Any]]:
        """The points of the curve so far, oldest first."""
        return [line for line, _ in checked_lines(self.curve_file, CurveLine)]

    def epochs(self) -> list[dict[str, Any]]:
        """The points of kind `epoch` alone: few of many, and the others are never parsed."""
        return [line for line, _ in checked_lines(self.curve_file, EpochLine, '"epoch",')]

    def probe_lines(self) -> list[ProbeRecord]:
        """The values of the probes so far, oldest first."""
        return [record for _, record in checked_lines(self.probes_file, ProbeRecord)]
