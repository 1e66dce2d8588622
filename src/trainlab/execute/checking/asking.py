"""The driver's side of the process that the preflight runs in: what it is asked, and how it died."""

import json
import os
import select
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NoReturn

from trainlab.data.fetch import report
from trainlab.errors import WorkloadError
from trainlab.execute.checking.answers import raise_told
from trainlab.execute.checking.child import Checks
from trainlab.execute.checking.fault_text import fault_in
from trainlab.execute.launch.death import Death
from trainlab.execute.launch.ends import end_at_once, end_hanging, end_within
from trainlab.execute.launch.launcher import ForkedProcess, JobProcess, Launcher
from trainlab.execute.preflight import FIRST_STEP
from trainlab.machine.host import num_killed_for_memory
from trainlab.spec import Study
from trainlab.spec.facts import WorkloadFacts
from trainlab.workloads.user_code import ToldMistakeError, UserMistake

POLL_S = 0.2
LEAVE_S = 2.0
"""How long one that is done may take to end."""
SHOWN_BYTES = 8 * 1024
"""Of what the user's code printed, the end."""
DOING = {
    "": "starting",
    "import": "importing the file",
    "data": "loading the data",
    "model": "building the model",
    FIRST_STEP: "making the first step",
}
"""What is done, by the field of the workload that runs."""


class CheckingProcess:
    """Started when first asked; to be closed. Asks and answers are those of `child`."""

    def __init__(
        self, launcher: Launcher, files: Mapping[str, str], limit_s: float | None = None
    ) -> None:
        """`limit_s`: how long any part of the checks may take, a download not counted."""
        self._launcher, self._files, self._limit_s = launcher, dict(files), limit_s
        self._process: JobProcess | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed in close()
        self._num_shown = 0
        """Bytes of the log that the user has seen."""
        self._received, self._doing, self._is_overdue = b"", "", False
        self._num_killed_for_memory = num_killed_for_memory()

    def facts(self, workload: str) -> WorkloadFacts:
        """What a study needs to know of a workload."""
        told = self._ask({"facts": workload}, workload)
        names = ("parameters", "metrics", "loss_parameters", "data_parameters")
        listed = {name: None if told[name] is None else tuple(told[name]) for name in names}
        return WorkloadFacts(**told | listed)

    def preflight(self, study: Study, *, each_device: bool) -> tuple[tuple[str, ...], str | None]:
        """The devices of this machine, and the fingerprint of the workload's code."""
        asked = {"preflight": study.model_dump_json(), "each_device": each_device}
        told = self._ask(asked, study.workload)
        return tuple(told["devices"]), told["code"]

    def close(self) -> None:
        """Lets the process end by itself if it has nothing to do, not for long."""
        if self._process is not None:
            process, self._process = self._process, None
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                process.stdin.close()
            try:
                end_within(process, LEAVE_S)
            finally:
                end_at_once(process)
        self._log.close()

    def _ask(self, command: Mapping[str, Any], workload: str) -> Any:
        try:
            told = self._told(command)
            if told is None and self._was_lost():
                # With its fork server, through no fault of its own: the next one starts without.
                self._end()
                told = self._told(command)
            if told is None:
                self._raise_death(workload)
        except BaseException:
            # Whatever it does, it is to end now.
            self._end()
            raise
        finally:
            self._show_printed()
        assert told is not None
        if "defect" in told:
            raise RuntimeError(told["defect"])
        raise_told(told)
        for name, value in told["environment"].items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        return told["answer"]

    def _told(self, command: Mapping[str, Any]) -> dict[str, Any] | None:
        """The answer; None where the process has died or was ended for taking too long."""
        if self._process is None and self._start() is None:
            return None
        assert self._process is not None
        assert self._process.stdin is not None
        self._doing = ""
        with suppress(BrokenPipeError):  # a process that has died is noticed by its answer
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
        while (told := self._line(self._limit_s)) is not None:
            if "doing" in told:
                self._doing = told["doing"]
            elif "download" in told:
                report(*told["download"])
            else:
                return told
        return None

    def _start(self) -> dict[str, Any] | None:
        asked = Checks(
            threads=self._launcher.ready_threads(), path=tuple(sys.path), files=self._files
        )
        self._received = b""
        self._process = self._launcher.launch(asked, self._log)
        return self._line(None)

    def _line(self, limit_s: float | None) -> dict[str, Any] | None:
        """The next line that it says within so many seconds."""
        process = self._process
        assert process is not None
        assert process.stdout is not None
        pipe, begun_s = process.stdout.fileno(), time.monotonic()
        while b"\n" not in self._received:
            # Before the look into the pipe: what it wrote before it died still counts.
            is_dead = process.poll() is not None
            if select.select([pipe], [], [], 0 if is_dead else POLL_S)[0]:
                received = os.read(pipe, 1 << 16)
                self._received += received
                if received:
                    continue
                process.wait()
                return None
            if is_dead:
                return None
            if limit_s is not None and time.monotonic() - begun_s > limit_s:
                self._is_overdue = True
                end_hanging(process)
                return None
        line, _, self._received = self._received.partition(b"\n")
        told: dict[str, Any] = json.loads(line)
        return told

    def _was_lost(self) -> bool:
        process = self._process
        return isinstance(process, ForkedProcess) and process.was_lost

    def _end(self) -> None:
        """At once."""
        if self._process is not None:
            process, self._process = self._process, None
            end_at_once(process)

    def _raise_death(self, workload: str) -> NoReturn:
        assert self._process is not None
        limit_s = self._limit_s if self._is_overdue else None
        death = Death.of(self._process.returncode, limit_s, self._num_killed_for_memory)
        what = DOING.get(self._doing) or f"running {self._doing}"
        message = f"{what} failed before any trial: {_reason(death)}"
        log = self._printed()
        self._num_shown += len(log)
        fault = fault_in(log)
        _show(fault.printed)
        mistake = UserMistake(self._doing, fault.line, "ProcessDied", message, fault.trace)
        raise WorkloadError(f"{fault.line or workload}: {message}") from ToldMistakeError(mistake)

    def _printed(self) -> bytes:
        """What the user has not seen."""
        return os.pread(self._log.fileno(), 1 << 30, self._num_shown)

    def _show_printed(self) -> None:
        """What the user's code printed is not lost: the end of it goes to this process's errors."""
        printed = self._printed()
        self._num_shown += len(printed)
        _show(printed)


def _show(printed: bytes) -> None:
    if printed:
        shown = printed[-SHOWN_BYTES:].decode("utf-8", "backslashreplace")
        sys.stderr.write(shown if shown.endswith("\n") else f"{shown}\n")
        sys.stderr.flush()


def _reason(death: Death) -> str:
    if death.ran_out_of_memory:
        return "its process was killed because memory ran out"
    return death.failure("").message
