"""Attempt: one try at a trial, and how it ended."""

import math
import os
import socket
import traceback
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from shutil import rmtree
from typing import TYPE_CHECKING, Any

from trainlab.errors import Interrupted, cut_lines, said_by
from trainlab.execute.planned_run import planned_trial
from trainlab.execute.signals import signals_held
from trainlab.record.cost_record import LoadRecord
from trainlab.record.files import LineWriter, make_folder
from trainlab.record.run_folder import RunFolder, TrialFolder
from trainlab.record.schema import Note, note
from trainlab.record.study_record import Event
from trainlab.record.trial_record import OUT_OF_MEMORY, DataRecord, Failure, Progress
from trainlab.watching.script_process import ScriptError
from trainlab.workloads.user_code import mistake_in

if TYPE_CHECKING:
    from trainlab.train.checkpoints import CheckpointedTrial
    from trainlab.train.setup import Setup


class Attempt:
    """Entered around whatever may raise: it swallows the error and keeps the first one, so that the trial's
    record is always written. The user's code may raise anything, and a signal interrupts at any moment."""

    def __init__(
        self, folder: TrialFolder, environment: str | None, token: str | None = None
    ) -> None:
        """`environment`: the machine; None where only its end tells. `token` tells this attempt from
        any other at the trial; one is made up where none is given."""
        self.folder = folder
        self._token = token or new_token()
        self.progress = Progress()
        before = folder.read()
        self.notes: list[Note] = list(before.notes) if before.state == "pending" else []
        self.refused_by = {one.values.get("engine") for one in self.notes}
        """Engines that could not train it in an earlier process."""
        self.engine_facts: dict[str, Any] = {}
        self.load: LoadRecord | None = None
        self.trial = planned_trial(folder)
        self.environment = environment
        self._raised: BaseException | None = None
        self._failure: Failure | None = None
        self._is_open = False
        self._place = ""
        """Where the user makes the workload, once that is known."""

    def begin(self) -> None:
        """Records that the trial runs; what an earlier attempt left is set aside."""
        before = self.folder.read()
        if before.state in ("running", "failed"):
            # Killed, and tried once more; one that was interrupted, and goes on, is nothing to tell of.
            self.notes.append(note("tried_again", number=before.attempt + 1))
        with signals_held():
            self._record = self.folder.begin_attempt(
                state="running", started=_now(), environment=self.environment, token=self._token
            )
            self._is_open = True

    def record_setup(self, setup: "Setup", engine: Mapping[str, Any]) -> None:
        """Records what the settings became on this machine, and the data that is really used."""
        self._place = setup.workload.place
        dataset, train, test = setup.dataset, setup.train_batches, setup.test_batches
        data = DataRecord(
            name=dataset.name,
            source=dataset.source,
            is_subset=dataset.is_subset,
            num_train=train.num_stored,
            num_test=test.num_stored,
            num_val=0 if setup.val_batches is None else setup.val_batches.num_stored,
            note=dataset.note,
        )
        self._record = self._record.model_copy(
            update={"resolved": setup.resolved() | dict(engine), "data": data}
        )
        self.folder.write(self._record)

    def checkpointed(self) -> "CheckpointedTrial":
        """The trial as its checkpoints know it, once its set-up is recorded."""
        from trainlab.train.checkpoints import CheckpointedTrial

        facts = self._record.model_dump(mode="json")["resolved"]
        return CheckpointedTrial(self.folder, self._record.attempt, self._token, facts)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if error is not None and self._raised is None:
            if not isinstance(error, Interrupted):
                self._failure = _failure(error, self._place)
            # Without its traceback: the frames would keep the model alive beside the next one.
            self._raised = error.with_traceback(None)
        return error is not None

    def end(self) -> None:
        progress, state = self.progress, self.progress.state
        if self._raised is not None:
            state = "interrupted" if self.is_interrupted else "failed"
        outcome = {
            "state": state,
            "resolved": self._record.resolved | self.engine_facts,
            "environment": self.environment,
            "ended": _now(),
            "total_s": progress.total_s,
            "load": self.load,
            "epochs_done": progress.epochs_done,
            "steps_done": progress.steps_done,
            "final": {n: v if math.isfinite(v) else None for n, v in progress.final.items()},
            "diverged_at_step": progress.diverged_at_step,
            "diverged_loss": progress.diverged_loss,
            "error": self._failure,
            "notes": tuple(self.notes),
        }
        ended = self._record.model_copy(update=outcome)
        with signals_held():
            self.folder.end(ended)
            self._is_open = False
            if ended.is_finished:
                # Nobody will go on with it.
                rmtree(self.folder.resume_folder, ignore_errors=True)

    def interrupt(self) -> None:
        """Records that it was interrupted, where it has begun and not ended."""
        if self._is_open:
            self._raised = self._raised or Interrupted()
            self.end()

    @property
    def is_interrupted(self) -> bool:
        return isinstance(self._raised, Interrupted)

    def pass_on_interrupt(self) -> None:
        """Raises the interrupt that ended the trial, if one did: it is meant for the whole run."""
        if isinstance(self._raised, Interrupted):
            raise self._raised


@contextmanager
def ending_together(attempts: Sequence[Attempt]) -> Iterator[None]:
    """What is raised in this block ends every one of the attempts."""
    try:
        yield
    except BaseException as error:  # noqa: BLE001  recorded by each of them
        for attempt in attempts:
            attempt.__exit__(type(error), error, error.__traceback__)


def new_token() -> str:
    return uuid.uuid4().hex[:12]


def _failure(error: BaseException, place: str) -> Failure:
    """What is recorded of an error; of one of the user's code, its traceback from her file on. `place`:
    where she makes the workload."""
    if isinstance(error, ScriptError):
        return error.failure
    from trainlab.machine.device import is_out_of_memory

    failure = mistake_in(error, place)
    if failure is None:
        failure = Failure(kind=type(error).__name__, message=said_by(error), traceback="")
    trace = failure.traceback or cut_lines("".join(traceback.format_exception(error)))
    kind = OUT_OF_MEMORY if is_out_of_memory(error) else failure.kind
    return failure.model_copy(update={"kind": kind, "traceback": trace})


def _now(timespec: str = "seconds") -> str:
    return datetime.now(UTC).isoformat(timespec=timespec)


class EventWriter:
    """This process's file of what happens in a run, in the run folder; made with the first event."""

    def __init__(self, run: RunFolder) -> None:
        self._path = run.events_folder / f"{socket.gethostname()}-{os.getpid()}.jsonl"
        self._lines: LineWriter | None = None

    def write(self, event: Event) -> None:
        if self._lines is None:
            make_folder(self._path.parent)
            self._lines = LineWriter(self._path, append=True)
        content = event.model_dump(mode="json", exclude_defaults=True)
        self._lines.write({**content, "at": _now("milliseconds")})

    def close(self) -> None:
        if self._lines is not None:
            self._lines.close()
