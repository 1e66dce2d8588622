"""Orders: what is started from the page, as the commands that a user would type, in processes that outlive
the server."""

import itertools
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainlab.cli.help_pages import Option
from trainlab.cli.options import CHANGED_MOST, FieldsOf
from trainlab.errors import SpecError
from trainlab.execute.lease import holder_of
from trainlab.record.files import make_folder
from trainlab.record.run_folder import RunFolder
from trainlab.spec import TrainSpec
from trainlab.spec.base import plain
from trainlab.studies import study_names
from trainlab.workloads.reference import BUILTIN

BEGUN_S = 20.0
PLAN_S = 60.0
"""How long the plan of a study may take to be made."""
TAIL_BYTES = 20_000


@dataclass
class Command:
    """A command that was started, what it prints, and the run folder that it makes."""

    words: tuple[str, ...]
    process: "subprocess.Popen[bytes]"
    log: Path
    run: Path

    @property
    def command(self) -> str:
        return shlex.join(["trainlab", *self.words])

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self.process.poll()

    def begun(self) -> None:
        """Waits until it drives its run, or has ended: SpecError with why where it was refused."""
        deadline_s, run = time.monotonic() + BEGUN_S, RunFolder(self.run)
        while self.code is None and time.monotonic() < deadline_s:
            driver = holder_of(run)
            if driver is not None and driver.pid == self.process.pid:
                break
            time.sleep(0.1)
        if self.code:
            raise SpecError(told_in(self.printed()))

    @property
    def has_run(self) -> bool:
        """Whether its run folder is there."""
        return RunFolder(self.run).study_file.is_file()

    def printed(self) -> str:
        """The last that it printed."""
        with self.log.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - TAIL_BYTES))
            return stream.read().decode("utf-8", "replace")


def trainlab(words: Sequence[str]) -> list[str]:
    """The command line of this very trainlab, whatever modules lie in the current folder."""
    return [sys.executable, "-P", "-m", "trainlab", *words]


def environment() -> dict[str, str]:
    """That of commands: without what the server alone needs."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}


def started(words: Sequence[str], logs: Path, run: Path) -> Command:
    """Starts a command in a session of its own: neither the page's end nor its Ctrl-C reaches it."""
    make_folder(logs)
    log = logs / f"{time.time_ns()}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            trainlab(words),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment(),
        )
    return Command(tuple(words), process, log, run)


def finished(words: Sequence[str]) -> str:
    """What a command prints; SpecError with its own line where it was refused or took too long."""
    try:
        done = subprocess.run(
            trainlab(words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=environment(),
            timeout=PLAN_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SpecError([f"{shlex.join(words)}: took longer than {PLAN_S:.0f} s"]) from None
    text = done.stdout.decode("utf-8", "replace")
    if done.returncode:
        raise SpecError(told_in(done.stderr.decode("utf-8", "replace") or text))
    return text


def told_in(printed: str) -> list[str]:
    """The lines of an error, as the command line prints them."""
    return [line.removeprefix("trainlab: ") for line in printed.strip().splitlines()[-12:]]


def in_folder(words: Sequence[str], folder: Path) -> tuple[list[str], Path]:
    """The words of `run WHAT …` with its run folder in the folder that the page shows; and that."""
    kept = list[str]()
    for word, before in zip(words, ("", *words), strict=False):
        if word not in ("--out", "--page") and before != "--out" and not word.startswith("--out="):
            kept.append(word)
    name = re.sub(r"[^\w.-]", "-", Path(kept[1]).name.rpartition(":")[2].removesuffix(".toml"))
    stem = folder / f"{name}-{time.strftime('%Y-%m-%dT%H-%M-%S')}"
    later = (stem.with_name(f"{stem.name}-{number}") for number in itertools.count(2))
    run = next(path for path in itertools.chain([stem], later) if not path.exists())
    return [*kept, f"--out={run}"], run


# The form of a new study: from the same specs as the command line.


def workload_names() -> tuple[str, ...]:
    """Built-in studies and workloads."""
    return (*study_names(), *BUILTIN)


def settings() -> list[Option]:
    """An option of the command line per setting; those that people change most first."""
    return [*FieldsOf(TrainSpec, "settings", CHANGED_MOST).options("settings")]


def words_of(form: Mapping[str, Any]) -> list[str]:
    """The words of `run` for a form that was filled in; SpecError for what no form of ours sends. A value
    stands in the same word as its option: none can be taken for another option."""
    texts = {name: value.strip() for name, value in form.items() if isinstance(value, str)}
    what = texts.pop("own", "") or texts.pop("what", "")
    texts.pop("what", None)
    if not what or what.startswith("-"):
        raise SpecError(["what: name a workload, a study or FILE.py:NAME"])
    known = {"--seeds", *(one.names[0] for one in settings())}
    words = ["run", what, *(["--profile"] if texts.pop("--profile", "") else [])]
    if unknown := [name for name in texts if name not in known]:
        raise SpecError([f"{unknown[0][:40]}: no such setting"])
    if any(plain(text) != text for text in (what, *texts.values())):
        raise SpecError(["values: must be plain text"])
    return [*words, *(f"{name}={value}" for name, value in texts.items() if value)]
