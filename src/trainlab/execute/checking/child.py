"""The process that the preflight runs in. It imports the user's file, loads her data and makes her models.

    python -P -m trainlab.execute.checking.child '{"path": […], "files": {…}}'

It says {"ready": true} and obeys lines of JSON on its standard input:

    {"facts": WORKLOAD}                                   what a study needs to know of the workload
    {"preflight": STUDY, "each_device": true or false}    the devices, and the fingerprint of the code

Each gets one answer, a line of JSON on standard output: {"answer": …} or an error (see `answers`). Before
it come lines that say what is done: {"doing": FIELD} and {"download": [NAME, BYTES, OF]}. With an answer
come the environment variables that the user's code has set: trials are started with them.
"""

import faulthandler
import json
import os
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar, TextIO

from trainlab.data.fetch import reporting_to
from trainlab.errors import Interrupted
from trainlab.execute.checking.answers import told_error
from trainlab.execute.job import INTERRUPTED, WHERE_SIGNAL, work
from trainlab.execute.preflight import FIRST_STEP, preflight
from trainlab.execute.signals import interrupted_once
from trainlab.machine.processes import end_with_parent, own_streams
from trainlab.spec import Spec, Study
from trainlab.train.loader import Loader
from trainlab.workloads.user_code import listening

TOLD_AGAIN_S = 0.2
"""Of a field that runs again: models are made one after the other, and each may take its time."""


class Checks(Spec):
    """What the process is told as it starts."""

    module: ClassVar[str] = "trainlab.execute.checking.child"
    threads: int | None = None
    """Those of its fork server."""
    path: tuple[str, ...] = ()
    """Where the driver finds modules, looked at last."""
    files: dict[str, str] = {}
    """Those of workloads that were given as objects, by name."""


class _Checker:
    """Obeys, and tells what it does."""

    def __init__(self, load: Loader, answers: TextIO) -> None:
        self._load, self._answers, self._pid = load, answers, os.getpid()
        self._environment = dict(os.environ)
        self._doing, self._told_s = "", 0.0

    def obey(self, command: Mapping[str, Any]) -> None:
        """Does what a line says and answers it."""
        self._doing = ""
        try:
            with listening(self._about_to_run), reporting_to(self._downloaded):
                answer = self._answer(command)
        except Interrupted:
            raise
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001  the user's code may raise anything
            told = told_error(error)
            self.say(told or {"defect": "".join(traceback.format_exception(error))})
            return
        self.say({"answer": answer, "environment": self._changed_variables()})

    def say(self, told: Mapping[str, Any]) -> None:
        """Writes a line; processes that the user's code forks have nothing to say."""
        if os.getpid() == self._pid:
            self._answers.write(json.dumps(told, default=_plain) + "\n")
            self._answers.flush()

    def _answer(self, command: Mapping[str, Any]) -> Any:
        if "facts" in command:
            return asdict(self._load.workload(command["facts"]).facts)
        study = Study.model_validate_json(command["preflight"])
        devices = preflight(study, self._load, each_device=command["each_device"])
        return {"devices": devices, "code": self._load.known_code(study.workload)}

    def _about_to_run(self, field: str) -> None:
        field = FIRST_STEP if self._doing == FIRST_STEP else field
        now_s = time.monotonic()
        if field != self._doing or now_s - self._told_s > TOLD_AGAIN_S:
            self._doing, self._told_s = field, now_s
            self.say({"doing": field})

    def _downloaded(self, what: str, done: int, total: int | None) -> None:
        self.say({"download": [what, done, total]})

    def _changed_variables(self) -> dict[str, str | None]:
        """None: removed."""
        names = self._environment.keys() | os.environ.keys()
        now = {name: os.environ.get(name) for name in names}
        return {n: value for n, value in now.items() if value != self._environment.get(n)}


def _plain(value: object) -> object:
    """A number of numpy's as Python's own; anything else that JSON has no word for as it is printed."""
    item = getattr(value, "item", None)
    return item() if callable(item) and not getattr(value, "shape", ()) else repr(value)


def main() -> int:
    """Obeys until no more lines come."""
    asked = Checks.model_validate_json(sys.argv[1])
    sys.path += [place for place in asked.path if place not in sys.path]
    commands, answers = own_streams()
    faulthandler.enable()
    if WHERE_SIGNAL is not None:
        faulthandler.register(WHERE_SIGNAL)
    checker = _Checker(Loader(files=asked.files), answers)
    try:
        interrupted_once()
        checker.say({"ready": True})
        while line := commands.readline():
            checker.obey(json.loads(line))
    except Interrupted:
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    end_with_parent()
    work(main)
