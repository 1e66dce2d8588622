"""What Python's fault handler wrote of a process that crashed or hung: where in the user's code it was."""

import linecache
import re
from dataclasses import dataclass
from pathlib import Path

from trainlab.workloads.user_code import is_own

BEGIN = re.compile(rb"^(?:Fatal Python error: |(?:Current thread|Thread) 0x)", re.MULTILINE)
CURRENT = re.compile(r"^Current thread 0x.*\n((?:  .*\n)*)", re.MULTILINE)
FRAME = re.compile(r'  File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>.*)')


@dataclass(frozen=True)
class Fault:
    """Where a process was when it ended."""

    printed: bytes
    """What it had printed before."""
    line: str = ""
    """`file.py:12`, the innermost line of the user's; empty where that is not known."""
    trace: str = ""
    """Her lines, most recent last, as Python shows a traceback."""


def fault_in(log: bytes) -> Fault:
    """The fault in a log; all of it is what was printed where it tells of none in the user's code."""
    begin = BEGIN.search(log)
    if begin is None:
        return Fault(log)
    current = CURRENT.search(log[begin.start() :].decode("utf-8", "replace"))
    frames = FRAME.finditer(current[1]) if current else ()
    own = [one for one in frames if not one["file"].startswith("<") and is_own(one["file"])]
    if not own:
        return Fault(log)
    line = f"{Path(own[0]['file']).name}:{own[0]['line']}"
    return Fault(log[: begin.start()], line, "".join(map(_shown, reversed(own))))


def _shown(frame: re.Match[str]) -> str:
    place = f'  File "{frame["file"]}", line {frame["line"]}, in {frame["function"]}\n'
    source = linecache.getline(frame["file"], int(frame["line"])).strip()
    return f"{place}    {source}\n" if source else place
