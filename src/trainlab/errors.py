"""Every error a user can cause or meet, in one tree.

    TrainlabError                 one line: where, what, the rule, the remedy
    ├── SpecError                 a setting, a study file: all problems at once
    ├── WorkloadError             a workload that cannot be found or does not fit
    ├── DataError                 data that cannot be had
    │   ├── MissingFileError      a folder lacks a file of the set
    │   └── FetchError            a place that did not give the file
    ├── DeviceError               a device this machine or this torch lacks
    ├── MissingExtraError         an optional package that is not installed
    └── RecordError               a run folder that cannot be written or read

Only the command line catches them. Anything else that escapes is our defect. A trial that fails is a
record; from Python a TrialsFailedWarning tells of it. A signal that ends a run is an Interrupted.
"""

from collections.abc import Iterable
from itertools import takewhile

MOST_SAID = 2000
"""Letters of what an error of the user's code says."""
LONGEST_REASON = 300
"""Letters of that where it is part of a sentence."""
GRAPH = ("Graph diff:", "graph(")
"""Where one begins that torch has printed."""


def said_by(error: BaseException) -> str:
    """What an error says, shortened."""
    text = writable(str(error))
    return text if len(text) <= MOST_SAID else f"{text[:MOST_SAID]} … ({len(text):,} letters)"


def writable(text: str) -> str:
    """The text as a file can hold it: what is not valid Unicode is escaped."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def cut_lines(text: str) -> str:
    """A traceback as it is recorded: lines that are too long are cut."""
    lines = text.splitlines(keepends=True)
    return writable(
        "".join(line if len(line) <= MOST_SAID else f"{line[:MOST_SAID]} …\n" for line in lines)
    )


def reason_in(error: BaseException) -> str:
    """The same in one line: without the graph that torch prints below some."""
    lines = said_by(error).splitlines()
    first = takewhile(lambda line: not line.lstrip().startswith(GRAPH), lines)
    return " ".join(" ".join(first).split())[:LONGEST_REASON]


class TrainlabError(Exception):
    """Base of all errors that are shown to the user as one line."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in place of a traceback."""
        return [f"{type(self).__name__}: {self}"]


class SpecError(TrainlabError):
    """What was asked for breaks a rule; carries every problem, each after its file or flag if given."""

    def __init__(self, problems: Iterable[str], where: str = "") -> None:
        self.problems = tuple(f"{where}: {problem}" if where else problem for problem in problems)
        super().__init__("\n".join(self.problems))


class WorkloadError(TrainlabError):
    """A workload cannot be found, loaded, or used as asked."""


class DataError(TrainlabError):
    """Data cannot be had."""


class MissingFileError(DataError):
    """A folder lacks a file of the set."""


class FetchError(DataError):
    """A mirror or package did not deliver."""


class DeviceError(TrainlabError):
    """The device asked for is not usable here."""


class MissingExtraError(TrainlabError):
    """An optional package is not installed; names the extra that brings it."""


class RecordError(TrainlabError):
    """A run folder cannot be written or read."""


class Interrupted(KeyboardInterrupt):
    """A signal ends what runs. A bare KeyboardInterrupt in a trial was raised by the user's code."""


class TrialsFailedWarning(RuntimeWarning):
    """Trials of a run that was asked for from Python have failed; the others have their results."""
