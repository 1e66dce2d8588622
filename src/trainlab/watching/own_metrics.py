"""Metrics that a script tells: by `trainlab.log(accuracy=0.98)`, in what it prints, by scalars written for
TensorBoard or Lightning's CSV file, and in columns of a CSV file that was named."""

import csv
import gc
import io
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, TextIO

from trainlab.instruments.calls import Patches

Tell = Callable[[str, float], None]
listening: list[Tell] = []
"""Who is told every value that the script logs."""

WRITERS = (
    ("torch.utils.tensorboard.writer", "SummaryWriter"),
    ("tensorboardX.writer", "SummaryWriter"),
    ("lightning.fabric.loggers.csv_logs", "_ExperimentWriter"),
    ("lightning_fabric.loggers.csv_logs", "_ExperimentWriter"),
)
"""Classes that scripts write scalars with, looked for once their modules are loaded."""
METHODS: Mapping[str, Callable[..., Mapping[str, Any]]] = {
    "add_scalar": lambda tag, scalar_value, *rest, **options: {tag: scalar_value},
    "add_scalars": lambda main_tag, tag_scalar_dict, *rest, **options: {
        f"{main_tag}/{tag}": value for tag, value in tag_scalar_dict.items()
    },
    "log_metrics": lambda metrics_dict, *rest, **options: dict(metrics_dict),
}
"""How each method of a writer is given its scalars."""
PARTS: Mapping[str, str] = {
    **dict.fromkeys(("train", "training", "fit"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}
"""What a word in a tag says of the data that a metric is of."""
NO_METRICS = frozenset({"epoch", "step", "global_step", "hp_metric"})
LONGEST_LINE = 10_000
"""Letters of a printed line that are searched, the last ones: one may never end."""


def log(**metrics: float) -> None:
    """Tells whoever watches the values of metrics, as `trainlab.log(accuracy=0.98)`; does nothing where
    nobody does, so that a script can keep it."""
    for hear in listening:
        for name, value in metrics.items():
            hear(name, float(value))


def metric_of(tag: str) -> str | None:
    """`Accuracy/test` and `test_accuracy` as `test/accuracy`; a name alone where the tag does not say what
    data it is of; None for a tag that is no metric."""
    words = [word for word in re.split(r"[^A-Za-z0-9.%]+", tag.lower()) if word]
    if not words or "_".join(words) in NO_METRICS:
        return None
    # The data stands first or last, of the whole tag or of one side of a slash.
    found = next((word for word in (words[0], words[-1], *words) if word in PARTS), None)
    if found is None:
        return "_".join(words)
    words.remove(found)
    return f"{PARTS[found]}/{'_'.join(words) or 'value'}"


class OwnScalars:
    """Hears of every scalar that the script writes, but for those in a folder of ours."""

    def __init__(self, tell: Tell, ours: Path) -> None:
        self._tell, self._ours = tell, str(ours)
        self._patches, self._left = Patches(), list(WRITERS)

    def look(self) -> None:
        """Sees those whose modules have been loaded meanwhile."""
        for place, name in [one for one in self._left if one[0] in sys.modules]:
            self._left.remove((place, name))
            writer = getattr(sys.modules[place], name, None)
            for method in [one for one in METHODS if one in getattr(writer, "__dict__", {})]:
                self._hear(writer, method)

    def close(self) -> None:
        self._patches.close()

    def _hear(self, writer: Any, method: str) -> None:
        original, scalars = vars(writer)[method], METHODS[method]

        @wraps(original)
        def heard(own: Any, *arguments: Any, **options: Any) -> Any:
            result = original(own, *arguments, **options)
            if str(getattr(own, "log_dir", "")) != self._ours:
                with suppress(TypeError, ValueError, LookupError, AttributeError):
                    for tag, value in scalars(*arguments, **options).items():
                        if (name := metric_of(tag)) is not None:
                            self._tell(name, float(value))
            return result

        self._patches.put(writer, method, heard)


class CsvColumns:
    """Columns of CSV files that the script writes: every new value is told."""

    def __init__(self, columns: Mapping[str, tuple[str, str]], tell: Tell) -> None:
        """`columns`: metric to file and column; files are meant from the current folder."""
        self._tell, self._told = tell, set[str]()
        self._columns = {name: (Path(f).absolute(), of) for name, (f, of) in columns.items()}
        self._versions = {name: _version(path) for name, (path, _) in self._columns.items()}
        self._taken = {name: list(_values(*at)) for name, at in self._columns.items()}
        """What was there before, perhaps of an earlier run, and what was told."""

    def look(self, *, is_last: bool = False) -> None:
        """Reads what has been written meanwhile; `is_last`: and what is on its way to a file left open."""
        for one in gc.get_objects() if is_last and self._columns else ():
            if issubclass(type(one), io.TextIOWrapper) and not one.closed and one.writable():
                with suppress(OSError, ValueError):
                    one.flush()
        for name, (path, column) in self._columns.items():
            before, self._versions[name] = self._versions[name], _version(path)
            if self._versions[name] == before:
                continue
            values, taken = list(_values(path, column)), self._taken[name]
            # Else the file was begun anew, though by a run that repeats an earlier one it may be the same.
            is_added_to = self._versions[name][0] > before[0] or name in self._told
            num_taken = (
                len(taken) if is_added_to and repr(values).startswith(repr(taken)[:-1]) else 0
            )
            for value in values[num_taken:]:
                self._tell(name, value)
                self._told.add(name)
            self._taken[name] = values


def _version(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return -1, 0
    return found.st_size, found.st_mtime_ns


def _values(path: Path, column: str) -> Iterator[float]:
    """The numbers of a column; lines that hold none are left out."""
    with suppress(OSError), path.open(newline="", encoding="utf-8", errors="replace") as lines:
        for row in csv.DictReader(lines, skipinitialspace=True):
            with suppress(TypeError, ValueError):
                yield float(row.get(column) or "")


class Searched(io.TextIOBase):
    """A stream that passes on what is written, and looks for metrics in every line."""

    def __init__(self, stream: TextIO, patterns: Mapping[str, str], found: Tell) -> None:
        self._stream = stream
        self._patterns = {name: re.compile(pattern) for name, pattern in patterns.items()}
        self._found, self._line = found, ""

    def write(self, text: str) -> int:
        self._stream.write(text)
        self.search(text)
        return len(text)

    def search(self, text: str = "\n") -> None:
        """At the end the last line may have none."""
        *lines, last = re.split(r"[\n\r]", self._line + text)
        self._line = last[-LONGEST_LINE:]
        for line in lines:
            self._search(line)

    def _search(self, line: str) -> None:
        for name, pattern in self._patterns.items():
            if (match := pattern.search(line)) is not None:
                with suppress(AttributeError, ValueError):
                    value = float(match[1].replace(",", ""))
                    is_percentage = line[match.end(1) :].lstrip().startswith("%")
                    self._found(name, value / 100 if is_percentage else value)

    def flush(self) -> None:
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def search_output(patterns: Mapping[str, str], found: Tell) -> Callable[[], None]:
    """From now on what is printed is searched; gives what ends it."""
    if not patterns:
        return lambda: None
    streams = sys.stdout, sys.stderr
    searched = [Searched(stream, patterns, found) for stream in streams]
    sys.stdout, sys.stderr = searched

    def end() -> None:
        for one in searched:
            one.search()
        sys.stdout, sys.stderr = streams

    return end
