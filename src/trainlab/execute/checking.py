"""The preflight of a user's own workload, in a process of its own: her code may crash or hang there, which
is then an answer, and the driver lives on."""

import linecache
import os
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from trainlab.data.fetch import report
from trainlab.errors import WorkloadError
from trainlab.execute.launch import DONE_S, TAIL_BYTES, Job, JobProcess, Launcher
from trainlab.execute.preflight import FIRST_STEP, raise_told
from trainlab.spec import Study
from trainlab.spec.facts import WorkloadFacts
from trainlab.workloads.user_code import ToldMistakeError, UserMistake, is_own

DOING = {
    "": "starting",
    "import": "importing the file",
    "data": "loading the data",
    "model": "building the model",
    FIRST_STEP: "making the first step",
}
"""What is done, by the field of the workload that runs."""
BEGIN = re.compile(rb"^(?:Fatal Python error: |(?:Current thread|Thread) 0x)", re.MULTILINE)
CURRENT = re.compile(r"^Current thread 0x.*\n((?:  .*\n)*)", re.MULTILINE)
FRAME = re.compile(r'  File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>.*)')
"""What Python's fault handler writes of a process that crashed or hung."""


class CheckingProcess:
    """Started when first asked; to be closed."""

    def __init__(
        self, launcher: Launcher, files: Mapping[str, str], limit_s: float | None = None
    ) -> None:
        """`limit_s`: how long any part of the checks may take, a download not counted."""
        self._launcher, self._limit_s = launcher, limit_s
        self._job = Job(threads=launcher.threads, files=dict(files))
        self._process: JobProcess | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="trainlab-checks-")
        self._log = Path(self._folder.name, "log")
        self._num_shown = 0
        """Bytes of the log that the user has seen."""
        self._doing = ""

    def facts(self, workload: str) -> WorkloadFacts:
        """What a study needs to know of a workload."""
        told = self._ask(workload, "facts", workload)
        names = ("parameters", "metrics", "loss_parameters", "data_parameters")
        listed = {name: None if told[name] is None else tuple(told[name]) for name in names}
        return WorkloadFacts(**told | listed)

    def preflight(self, study: Study, *, each_device: bool) -> tuple[tuple[str, ...], str | None]:
        """The devices of this machine, and the fingerprint of the workload's code."""
        told = self._ask(study.workload, "preflight", study.model_dump_json(), each_device)
        return tuple(told["devices"]), told["code"]

    def close(self) -> None:
        """Ends the process; one that has nothing to do leaves by itself."""
        if self._process is not None:
            self._process.tell()
            self._process.end_within(DONE_S)
        self._end()
        self._folder.cleanup()

    def _ask(self, workload: str, *command: object) -> Any:
        try:
            told = self._told(*command)
            if told is None:
                self._raise_exit(workload)
        except BaseException:
            self._end()  # whatever it does
            raise
        finally:
            self._show(self._printed())
        if "defect" in told:
            raise RuntimeError(told["defect"])
        raise_told(told)
        for name, value in told["environment"].items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        return told["answer"]

    def _told(self, *command: object) -> dict[str, Any] | None:
        """The answer; None where the process has died or was ended for taking too long."""
        if self._process is None:
            self._process = JobProcess(self._launcher, self._job, self._log, self._limit_s)
            if self._process.receive() is None:
                return None
        self._doing, process = "", self._process
        process.restart_clock()
        process.tell(*command)
        while (told := process.receive()) is not None:
            if "doing" in told:
                self._doing = told["doing"]
            elif "download" in told:
                report(*told["download"])
            else:
                return told
            process.restart_clock()
        return None

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None

    def _raise_exit(self, workload: str) -> NoReturn:
        assert self._process is not None
        what = DOING.get(self._doing) or f"running {self._doing}"
        ended = self._process.exit()
        reason = ended.reason if ended.ran_out_of_memory else ended.failure("").message
        message = f"{what} failed before any trial: {reason}"
        printed, line, trace = fault_in(self._printed())
        self._show(printed)
        mistake = UserMistake(self._doing, line, "ProcessDied", message, trace)
        raise WorkloadError(f"{line or workload}: {message}") from ToldMistakeError(mistake)

    def _printed(self) -> bytes:
        """What the user's code has printed and the user has not seen."""
        printed = self._log.read_bytes()[self._num_shown :] if self._log.exists() else b""
        self._num_shown += len(printed)
        return printed

    def _show(self, printed: bytes) -> None:
        """The end of it goes to this process's errors."""
        if printed:
            shown = printed[-TAIL_BYTES:].decode("utf-8", "backslashreplace")
            sys.stderr.write(shown if shown.endswith("\n") else f"{shown}\n")
            sys.stderr.flush()


def fault_in(log: bytes) -> tuple[bytes, str, str]:
    """What was printed before a fault; `file.py:12`, the innermost line of the user's code then; and her
    lines, as Python shows a traceback. All of it is what was printed where it tells of none in her code."""
    begin = BEGIN.search(log)
    if begin is None:
        return log, "", ""
    current = CURRENT.search(log[begin.start() :].decode("utf-8", "replace"))
    frames = FRAME.finditer(current[1]) if current else ()
    own = [one for one in frames if not one["file"].startswith("<") and is_own(one["file"])]
    if not own:
        return log, "", ""
    trace = ""
    for frame in reversed(own):
        trace += f'  File "{frame["file"]}", line {frame["line"]}, in {frame["function"]}\n'
        if source := linecache.getline(frame["file"], int(frame["line"])).strip():
            trace += f"    {source}\n"
    return log[: begin.start()], f"{Path(own[0]['file']).name}:{own[0]['line']}", trace
