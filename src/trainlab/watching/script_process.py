"""ScriptProcess: the hold on a process that runs a script (see `trainlab.watching.script_child`), and the
folder that it runs in."""

import ast
import filecmp
import json
import math
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Literal

from trainlab.errors import SpecError
from trainlab.machine.processes import QUIET, end_with_parent, signal_name
from trainlab.plan import Trial
from trainlab.record.run_folder import TrialFolder
from trainlab.record.trial_record import Failure
from trainlab.spec import CostSpec, Study
from trainlab.spec.base import Spec
from trainlab.spec.probe import ProbeSpec
from trainlab.spec.script import ScriptSpec

Mode = Literal["learn", "turns", "operators"]
"""The script from its start to its end with its curve; steps in turns; or a profiled window of steps."""


class Order(Spec):
    """A script to run, and what to do with it."""

    module: ClassVar[str] = "trainlab.watching.script_child"
    mode: Mode
    script: ScriptSpec
    trial: Trial
    trial_folder: str
    threads: int | None = None
    """None: torch's or the script's own choice."""
    probes: tuple[ProbeSpec, ...] = ()
    tensorboard: bool = False
    is_shown: bool = False
    """Whether it prints where we do, and records itself what it prints."""
    commands: int
    """The pipe that commands come by; -1: none do."""
    answers: str
    """The pipe for answers, by its path: torchrun passes no open files on."""

    @property
    def path(self) -> Path:
        return Path(self.script.path)

    @property
    def arguments(self) -> tuple[str, ...]:
        """Those of the script in this trial."""
        return self.script.arguments_for(self.trial.settings.script, self.trial.seed)

    @property
    def cost(self) -> CostSpec:
        """How the cost is measured; of a trial that measures none, what is usual."""
        return self.trial.cost or CostSpec()


END = signal.SIGRTMIN + 3 if hasattr(signal, "SIGRTMIN") else signal.SIGUSR2
"""The signal to a script that was interrupted and goes on; scripts have no use for it themselves."""
PATIENCE_S = 3.0
"""How long one that was told to end may take."""
INTERRUPTED_S = 10.0
"""How long one that was interrupted may take to save what it wants to save."""
RECORDED_S = 20.0
"""How long it, and we for our records, may then still take."""
LAST_S = 60.0
"""How long one may take for what comes after its last line."""
TAIL_BYTES = 4000
POLL_S = 0.1
"""Between two looks whether a process that says nothing is still alive."""
DEATH = "ProcessDied"
"""The kind of a failure without a traceback: in its place is what the script printed."""
HOME = str(Path(__file__).parents[2])
"""Where trainlab is."""


def python(module: str) -> list[str]:
    """A Python that runs the `main` of a module of ours: it finds ours first and nothing in its folder, and
    neither its flags nor its environment, which the script would pass on, say so. SIGINT ends it until
    the script is there to catch it."""
    found = f"import sys; sys.path[: not sys.flags.safe_path] = [{HOME!r}]"
    ended = "from signal import SIG_DFL, SIGINT, signal; signal(SIGINT, SIG_DFL)"
    code = f"{found}; {ended}; from {module} import main; sys.exit(main())"
    return [sys.executable, "-u", "-c", code]


class ScriptError(Exception):
    """The script failed, or its process died."""

    def __init__(self, failure: Failure, told: dict[str, Any] | None = None) -> None:
        """`told`: its last words, where it had time for some."""
        super().__init__(failure.message)
        self.failure, self.told = failure, told or {}


class ScriptProcess:
    """A fresh Python that runs the script of a trial."""

    is_amid_line: ClassVar[bool] = False
    """Whether the last that a script printed beside our standard error did not end a line."""

    def __init__(
        self,
        script: ScriptSpec,
        trial: Trial,
        folder: TrialFolder,
        mode: Mode,
        threads: int | None = None,
        study: Study | None = None,
        *,
        is_shown: bool = False,
    ) -> None:
        """`study`: what else a learn trial is to write; `is_shown`: it prints where we do."""
        self._folder, self._place = folder, folder.work_folder.resolve()
        self._keeps_files = mode == "learn"
        self._is_cut_short = mode != "learn" or bool(script.max_steps or script.max_s)
        self._is_alone = is_alone = script.processes == 1
        folder.answers_pipe.unlink(missing_ok=True)
        os.mkfifo(folder.answers_pipe)
        # For both ends: it is open before the script's process is, and as long as that one runs.
        self._answers = os.open(folder.answers_pipe, os.O_RDWR | os.O_NONBLOCK)
        commands_read, self._commands = os.pipe()
        order = Order(
            mode=mode,
            script=script,
            trial=trial,
            trial_folder=str(folder.path.absolute()),
            threads=trial.settings.threads or (threads if is_alone else None),
            probes=() if study is None else study.probes,
            tensorboard=study is not None and study.tensorboard,
            is_shown=is_shown,
            commands=commands_read if is_alone else -1,
            answers=str(folder.answers_pipe.absolute()),
        )
        torchrun = []
        if not is_alone:
            asked = ["--standalone", f"--nproc-per-node={script.processes}", "--no-python"]
            torchrun = [*python("trainlab.watching.script_process"), *asked]
        # Attempts whose driver was killed were not put in order.
        for attempt in map(TrialFolder, folder.attempts_folder.glob("*")):
            clear_workplace(attempt.work_folder.resolve())
        own = {n: v for n, v in os.environ.items() if QUIET.get(n) != v}
        self._output = folder.output_file.open("ab")
        streams: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": self._output,
            "stderr": subprocess.STDOUT,
        }
        if is_shown:
            streams = {}
        # On a terminal it is in our group, as all that a shell starts: keys and Ctrl-C are the script's.
        self._is_on_terminal = is_shown and any(map(os.isatty, range(3)))
        self._process = subprocess.Popen(
            [*torchrun, *python(Order.module), order.model_dump_json()],
            **streams,
            cwd=folder_of(script, study) or make_workplace(self._place, Path(script.folder)),
            env=own | script.environment_for(trial.settings.script),
            pass_fds=(commands_read,),
            # What a scheduler sends to all of ours, we pass on.
            process_group=None if self._is_on_terminal else 0,
        )
        os.close(commands_read)
        self._former = signal.getsignal(signal.SIGINT)
        if self._is_on_terminal:
            _handle_interrupts(lambda number, frame: None)
        self._received = b""
        self._last_words: dict[str, Any] | None = None

    def answers(self, until_s: float = math.inf) -> Iterator[dict[str, Any]]:
        """What it says, until its process has ended, or it is so late on the monotonic clock."""
        while True:
            while b"\n" not in self._received:
                is_over = self._process.poll() is not None or time.monotonic() > until_s
                if select.select([self._answers], [], [], POLL_S)[0]:
                    self._received += os.read(self._answers, 1 << 16)
                elif is_over:
                    return
            line, _, self._received = self._received.partition(b"\n")
            told = json.loads(line)
            ScriptProcess.is_amid_line = told.pop("is_amid_line", False)
            if "ended" in told:
                self._last_words = told
            yield told

    def answer(self) -> dict[str, Any]:
        """The next thing that it says; ScriptError where that is how it failed, or where it died."""
        found = next(self.answers(), None)
        if found is None:
            raise ScriptError(self._death())
        if found.get("ended") == "failed":
            self.wait()
            raise ScriptError(Failure.model_validate(found["failure"]), found)
        return found

    def interrupt(self) -> dict[str, Any] | None:
        """Ctrl-C for the script and all that it has started: its last words; None where it has none."""
        send = os.kill if self._is_on_terminal else os.killpg
        self._signal(send, signal.SIGINT, INTERRUPTED_S)
        # It goes on all the same, or writes its records: then it does not heed this.
        self._signal(os.kill, END if self._is_alone else 0, RECORDED_S)
        if self._last_words is not None:
            self.wait(INTERRUPTED_S)
        return self._last_words

    def _signal(self, send: Callable[[int, int], None], number: int, seconds: float) -> None:
        """Sends a signal, if it has not said its last words, and waits for them, for so long."""
        if self._last_words is None:
            with suppress(ProcessLookupError):
                send(self._process.pid, number)
            told = self.answers(time.monotonic() + seconds)
            next((one for one in told if "ended" in one), None)

    def tell(self, command: str) -> None:
        """A process that has died is noticed by its answer."""
        with suppress(BrokenPipeError):
            os.write(self._commands, f"{command}\n".encode())

    def close(self) -> None:
        """Ends it, if it has not ended, and puts its working folder in order."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._is_on_terminal:
            _handle_interrupts(self._former)
        for descriptor in (self._commands, self._answers):
            os.close(descriptor)
        self._output.close()
        self._folder.answers_pipe.unlink(missing_ok=True)
        if self._keeps_files:
            clear_workplace(self._place)
        else:
            shutil.rmtree(self._place, ignore_errors=True)

    def wait(self, most_s: float = LAST_S) -> None:
        """Until it has ended by itself: what the script has put off until its end is still to run, and what
        it wrote may not be in its files yet. One that was cut short may wait for something that never
        comes."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(PATIENCE_S if self._is_cut_short else most_s)

    def _death(self) -> Failure:
        code = self._process.wait()
        told = f"the script's process was ended with code {code}"
        if code < 0:
            told = f"the script's process was ended by {signal_name(-code)}"
        if code == -signal.SIGKILL:
            told += "; memory may have run out"
        shells = 128 - code if code < 0 else code
        return failure_without_error(DEATH, told, shells, self._folder.output_file)


def _handle_interrupts(handler: Any) -> None:
    """Only the main thread may say what a signal does."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)


def begin_line() -> None:
    """What we print to standard error next is on a line of its own, whatever a script has printed."""
    if ScriptProcess.is_amid_line:
        os.write(2, b"\n")
        ScriptProcess.is_amid_line = False


def failure_without_error(kind: str, message: str, exit_code: int, output: Path) -> Failure:
    """Of a script that ended, and only what it printed last may say why."""
    printed = ""
    with suppress(OSError), output.open("rb") as stream:
        stream.seek(max(0, stream.seek(0, os.SEEK_END) - TAIL_BYTES))
        printed = stream.read().decode(errors="replace")
    lines = [line.strip() for line in re.split(r"[\n\r]", printed) if line.strip()]
    if lines:
        message += f", and printed last: {lines[-1]}"
    return Failure(kind=kind, message=message, traceback=printed, exit_code=exit_code)


# The folder that one of several trials runs in: its own, as deep below the trial's folder as the one where
# the script was asked for lies below the root, so that every path that leads up finds what it would find
# there. What is in that one, and in the folder above it, is copied: a script may write over it, and no
# trial reads what another wrote. What is too large for that, or too much, and all further above is there as
# a link; so is what was a link.


def folder_of(script: ScriptSpec, study: Study | None) -> str:
    """Where it runs without a copy: that which was asked for, or where a single learn trial was."""
    return script.workdir or (script.folder if study is not None and study.is_one_script else "")


MOST_FILE_BYTES = 64 * 2**20
"""Of a file that is copied."""
MOST_BYTES = 256 * 2**20
"""Of all copies together, and no more than a quarter of what is free."""
MOST_ENTRIES = 1000
"""Files and folders in all; beside the folder above, `MOST_ABOVE`."""
MOST_ABOVE = 200
MOST_IN_FOLDER = 500
"""A folder of more, as of many pictures, is a link."""
LINKED = ("venv", "node_modules", "__pycache__")
"""Folders that no training writes to. What is hidden is a link, too: it may be secret."""


def make_workplace(place: Path, origin: Path) -> Path:
    """The working folder, made below `place`, of a script that was asked for in `origin`."""
    work = place / origin.relative_to(origin.anchor)
    work.mkdir(parents=True, exist_ok=True)
    num_bytes = min(MOST_BYTES, shutil.disk_usage(work).free // 4)
    _mirror(origin, place, MOST_ENTRIES, num_bytes)
    for folder in origin.parents:
        is_near = folder == origin.parent and folder.name  # of all of a machine, links are enough
        _mirror(folder, place, MOST_ABOVE if is_near else 0, num_bytes // 4)
    return work


def _mirror(source: Path, place: Path, num_entries: int, num_bytes: int) -> None:
    """Folders nearer by first, and small files: what there is no room for any more are links."""
    left, run = deque([source]), place.parents[2]
    while left:
        folder = left.popleft()
        try:
            entries = sorted(folder.iterdir(), key=lambda one: (one.lstat().st_size, one.name))
        except OSError:  # not ours to list: the script may not need it
            continue
        num_entries -= len(entries)
        for own in entries:
            path, most = place / own.relative_to(own.anchor), min(MOST_IN_FOLDER, num_entries)
            if own in (run, place) or os.path.lexists(path):
                continue
            is_copied = num_entries > 0 and not (own.is_symlink() or own.is_mount())
            is_copied &= not own.name.startswith(".") and own.name not in LINKED
            try:
                # A link to one around the run folder would lead round in circles.
                if own in run.parents or (is_copied and own.is_dir() and _count(own) <= most):
                    path.mkdir()
                    left.append(own)
                    continue
                size = own.lstat().st_size
                if is_copied and own.is_file() and size <= min(MOST_FILE_BYTES, num_bytes):
                    shutil.copy2(own, path)
                    num_bytes -= size
                    continue
            except OSError:  # not ours to read, or the disk is full
                path.unlink(missing_ok=True)
            with suppress(OSError):
                path.symlink_to(own)


def _count(folder: Path) -> int:
    return sum(1 for _ in folder.iterdir())


def clear_workplace(place: Path) -> None:
    """Takes links and unchanged copies away; what the script wrote stays. Nothing is left of one that wrote
    nothing."""
    for parent, folders, files in os.walk(place, topdown=False):
        for path in (Path(parent, name) for name in (*folders, *files)):
            original = Path(place.anchor) / path.relative_to(place)
            with suppress(OSError):
                if path.is_symlink() or (path.is_file() and filecmp.cmp(path, original)):
                    path.unlink()
                elif original.is_dir():
                    path.rmdir()  # OSError where something is in it
    with suppress(OSError):
        place.rmdir()


# What is asked for: a file or a module.

MAIN = "__main__"
"""The module of a package that is run."""


def module_file(name: str, folder: Path) -> tuple[str, Path]:
    """The module that `python -m name` runs in a folder, and its file; nothing is imported. SpecError where
    there is none."""
    for place in (folder, *map(Path, sys.path)):
        at = place.joinpath(*name.split("."))
        for found, path in ((f"{name}.{MAIN}", at / f"{MAIN}.py"), (name, at.with_suffix(".py"))):
            if name and path.is_file():
                return found, path
    rule = "no such module here; give it as `python -m` takes it, from the same folder"
    raise SpecError([f"-m {name}: {rule}"])


def source_of(path: Path) -> str:
    """The text of a script; SpecError where there is none, or where Python cannot read it."""
    try:
        text = path.read_text(encoding="utf-8")
        ast.parse(text)
    except OSError as error:
        is_missing = isinstance(error, FileNotFoundError)
        rule = "no such file" if is_missing else f"cannot be read: {error.strerror or error}"
        raise SpecError([f"{path}: {rule}; give the script's path"]) from None
    except SyntaxError as error:
        where = f"{path}:{error.lineno}"
        raise SpecError([f"{where}: is no Python: {error.msg}; run it by itself first"]) from None
    except ValueError as error:
        raise SpecError([f"{path}: is no Python: {error}; give a script"]) from None
    return text


def main() -> None:
    """torchrun that ends with whoever started it: by itself it would go on, with all of its processes."""
    end_with_parent()

    from torch.distributed.run import main

    main()
