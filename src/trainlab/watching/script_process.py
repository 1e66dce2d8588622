"""ScriptProcess: the hold on a process that runs a script (see `trainlab.watching.script_child`)."""

import ast
import json
import math
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, ClassVar, Literal

from trainlab.errors import SpecError
from trainlab.machine.processes import end_with_parent, signal_name
from trainlab.plan import Trial
from trainlab.record.run_folder import TrialFolder
from trainlab.record.trial_record import SCRIPT_EXIT, Failure
from trainlab.spec import CostSpec, Study
from trainlab.spec.base import Spec
from trainlab.spec.probe import ProbeSpec
from trainlab.spec.script import ScriptSpec
from trainlab.watching.workplace import Workplace


class Order(Spec):
    """A script to run, and what to do with it."""

    module: ClassVar[str] = "trainlab.watching.script_child"
    mode: Literal["whole", "turns", "operators"]
    """The whole script with its curve, steps in turns, or a profiled window."""
    script: ScriptSpec
    trial: Trial
    trial_folder: str
    threads: int | None = None
    """None: torch's or the script's own choice."""
    probes: tuple[ProbeSpec, ...] = ()
    tensorboard: bool = False
    commands: int
    """The pipe that commands come by; -1: none do."""
    answers: str
    """The pipe for answers, by its path: torchrun passes no open files on."""

    @property
    def path(self) -> Path:
        """The script's file."""
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
STARTER = "TRAINLAB_STARTER"
"""The variable with the id of the process that starts a script; taken out before the script runs."""


def starter_variable() -> dict[str, str]:
    """For the environment of a process that this one starts."""
    return {STARTER: str(os.getpid())}


def end_with_starter() -> None:
    """From now on this process ends with its parent; at once, where that is another one by now."""
    starter = os.environ.pop(STARTER, "")
    end_with_parent()
    if starter and starter != str(os.getppid()):
        sys.exit(1)


PATIENCE_S = 3.0
"""How long one that was told to end may take."""
INTERRUPTED_S = 10.0
"""How long one that was interrupted may take to save what it wants to save."""
RECORDED_S = 20.0
"""How long we may then take for our records."""
LAST_S = 60.0
"""How long one may take for what comes after its last line."""
TAIL_BYTES = 4000
POLL_S = 0.1
"""Between two looks whether a process that says nothing is still alive."""


DEATH = "ProcessDied"
"""The kind of a failure without a traceback: in its place is what the script printed."""


class ScriptError(Exception):
    """The script failed, or its process died."""

    def __init__(self, failure: Failure, told: dict[str, Any] | None = None) -> None:
        """`told`: its last words, where it had time for some."""
        super().__init__(failure.message)
        self.failure, self.told = failure, told or {}


class ScriptProcess:
    """A fresh Python that runs the script of a trial."""

    def __init__(
        self,
        script: ScriptSpec,
        trial: Trial,
        folder: TrialFolder,
        mode: Literal["whole", "turns", "operators"],
        threads: int | None,
        study: Study | None = None,
    ) -> None:
        """`study`: what else a trial of the whole script is to write."""
        self._folder, self._keeps_files = folder, mode == "whole"
        self._is_cut_short = mode != "whole" or bool(script.max_steps or script.max_s)
        origin = Path(script.folder)
        self._workplace = Workplace(folder.work_folder.absolute(), origin)
        self._pipe = folder.answers_pipe
        folder.answers_pipe.unlink(missing_ok=True)
        os.mkfifo(folder.answers_pipe)
        # For both ends: it is open before the script's process is, and as long as that one runs.
        self._answers = os.open(folder.answers_pipe, os.O_RDWR | os.O_NONBLOCK)
        commands_read, self._commands = os.pipe()
        self._is_alone = is_alone = script.processes == 1
        order = Order(
            mode=mode,
            script=script,
            trial=trial,
            trial_folder=str(folder.path.absolute()),
            threads=trial.settings.threads or (threads if is_alone else None),
            probes=() if study is None else study.probes,
            tensorboard=study is not None and study.tensorboard,
            commands=commands_read if is_alone else -1,
            answers=str(folder.answers_pipe.absolute()),
        )
        # One whose driver was killed was not put in order.
        for attempt in folder.earlier_attempts():
            Workplace(attempt.work_folder.absolute(), origin).clear()
        work = self._workplace.make()
        self._output = folder.output_file.open("ab")
        self._process = subprocess.Popen(
            [*_python(script.processes), "-m", Order.module, order.model_dump_json()],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            cwd=work,
            env=_environment(script, trial),
            pass_fds=(commands_read,),
            process_group=0,  # what a terminal or a scheduler sends to all of ours, we pass on
        )
        os.close(commands_read)
        self._received = b""
        self._last_words: dict[str, Any] | None = None

    def answers(self, until_s: float = math.inf) -> Iterator[dict[str, Any]]:
        """What it says, until it has ended, or it is so late on the monotonic clock."""
        while True:
            while b"\n" not in self._received:
                is_over = self._process.poll() is not None or time.monotonic() > until_s
                if select.select([self._answers], [], [], POLL_S)[0]:
                    self._received += os.read(self._answers, 1 << 16)
                elif is_over:
                    return
            line, _, self._received = self._received.partition(b"\n")
            told = json.loads(line)
            if "ended" in told:
                self._last_words = told
            yield told

    def answer(self) -> dict[str, Any]:
        """The next thing that it says; ScriptError where that is how it failed, or where it died."""
        found = next(self.answers(), None)
        if found is None:
            raise ScriptError(self._death())
        if found.get("ended") == "failed":
            failure = self.failure(found)
            self.wait()
            raise ScriptError(failure, found)
        return found

    def interrupt(self) -> dict[str, Any] | None:
        """Ctrl-C for the script and all that it has started: its last words; None where it has none, or
        does not heed it."""
        if self._last_words is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGINT)
            told = self._until("is_recording", INTERRUPTED_S)
            if told is None and self._is_alone:  # it goes on all the same
                with suppress(ProcessLookupError):
                    self._process.send_signal(END)
                told = self._until("is_recording", PATIENCE_S)
            if told is not None and "ended" not in told:
                self._until("ended", RECORDED_S)
        if self._last_words is not None:
            self.wait(INTERRUPTED_S)
        return self._last_words

    def _until(self, word: str, seconds: float) -> dict[str, Any] | None:
        """What it says with this word in it, or at its end; None where it does not, for so long."""
        told = self.answers(time.monotonic() + seconds)
        return next((one for one in told if word in one or "ended" in one), None)

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
        for descriptor in (self._commands, self._answers):
            os.close(descriptor)
        self._output.close()
        self._pipe.unlink(missing_ok=True)
        if self._keeps_files:
            self._workplace.clear()
        else:
            self._workplace.remove()

    def wait(self, most_s: float = LAST_S) -> None:
        """Until it has ended by itself: what the script has put off until its end is still to run, and what
        it wrote may not be in its files yet. One that was cut short may wait for something that never
        comes."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(PATIENCE_S if self._is_cut_short else most_s)

    def failure(self, told: dict[str, Any]) -> Failure:
        """How it failed, by its last words."""
        kind, message, line = (str(told.get(name, "")) for name in ("kind", "message", "line"))
        trace = str(told.get("trace", ""))
        if kind == SCRIPT_EXIT:
            # It says itself why it leaves, and nothing else does.
            trace = self._tail(told["printed"] or None)
            message = _with_last_line(message, trace)
        field = "script" if line else ""
        return Failure(kind=kind, message=message, traceback=trace, field=field, line=line)

    def _death(self) -> Failure:
        code = self._process.wait()
        told = f"the script's process was ended with code {code}"
        if code < 0:
            told = f"the script's process was ended by {signal_name(-code)}"
        tail = self._tail()
        if code == -signal.SIGKILL:
            told += "; memory may have run out"
        else:
            told = _with_last_line(told, tail)
        return Failure(kind=DEATH, message=told, traceback=tail)

    def _tail(self, end: int | None = None) -> str:
        """The end of what was printed, up to so many bytes."""
        try:
            with self._folder.output_file.open("rb") as stream:
                last = stream.seek(0, os.SEEK_END) if end is None else end
                start = stream.seek(max(0, last - TAIL_BYTES))
                text = stream.read(last - start)
        except OSError:
            return ""
        return text.decode(errors="replace")


def _with_last_line(message: str, printed: str) -> str:
    """What happened, and the last thing that the script printed, which may say why."""
    lines = [line for line in re.split(r"[\n\r]", printed) if line.strip()]
    return f"{message}, and printed last: {lines[-1].strip()}" if lines else message


def _python(processes: int) -> list[str]:
    """A fresh Python, or several that torchrun starts; none of them looks for modules in its folder."""
    if processes == 1:
        return [sys.executable, "-P"]
    torchrun = ["-m", "trainlab.watching.script_process", "--standalone"]
    return [sys.executable, "-P", *torchrun, f"--nproc-per-node={processes}"]


def _environment(script: ScriptSpec, trial: Trial) -> dict[str, str]:
    """Ours, and what a level says. The script finds modules as it would by itself; we find our own."""
    own = dict(os.environ)
    own["PYTHONPATH"] = os.pathsep.join(filter(None, (own.get("PYTHONPATH"), OURS)))
    own["PYTHONUNBUFFERED"] = own["PYTHONSAFEPATH"] = "1"
    own |= starter_variable()
    return own | script.environment_for(trial.settings.script)


OURS = str(Path(__file__).parents[2])
"""Where trainlab is."""


def check_script(script: ScriptSpec) -> None:
    """SpecError where there is no such file, or where Python cannot read it."""
    source_of(Path(script.path))


def module_file(name: str, folder: Path) -> tuple[str, Path]:
    """The module that `python -m name` runs in a folder, and its file; nothing is imported. SpecError where
    there is none."""
    places: Sequence[str] | None = [str(folder), *sys.path]
    found = None
    for part in name.split("."):
        # By its last part alone: the path of a package without a file asks for the one around it.
        found = PathFinder.find_spec(part, places) if part and places else None
        places = None if found is None else found.submodule_search_locations
    if found is not None and places is not None:
        name = f"{name}.{MAIN}"
        found = PathFinder.find_spec(MAIN, places)
    if found is None or found.origin is None or Path(found.origin).suffix != ".py":
        rule = "no such module here; give it as `python -m` takes it, from the same folder"
        raise SpecError([f"-m {name}: {rule}"])
    return name, Path(found.origin)


MAIN = "__main__"
"""The module of a package that is run."""


def source_of(path: Path) -> str:
    """The text of a script; SpecError where it is none."""
    try:
        text = path.read_text(encoding="utf-8")
        ast.parse(text)
    except FileNotFoundError:
        raise SpecError([f"{path}: no such file; give the script's path"]) from None
    except OSError as error:
        raise SpecError(
            [f"{path}: cannot be read: {error.strerror or error}; give the script's path"]
        ) from None
    except SyntaxError as error:
        where = f"{path}:{error.lineno}"
        raise SpecError([f"{where}: is no Python: {error.msg}; run it by itself first"]) from None
    except ValueError as error:
        raise SpecError([f"{path}: is no Python: {error}; give a script"]) from None
    return text


if __name__ == "__main__":
    # torchrun that ends with whoever started it: by itself it would go on, with all of its processes.
    end_with_starter()
    os.environ |= starter_variable()  # so that what it starts ends with it

    from torch.distributed.run import main

    main()
