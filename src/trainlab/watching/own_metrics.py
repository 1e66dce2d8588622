"""Metrics that a script tells: by `trainlab.log(accuracy=0.98)`, in what it prints, by scalars given to
TensorBoard, W&B, MLflow, Trackio, Accelerate or Lightning's CSV file, and in columns of a CSV file that was
named."""

import csv
import gc
import io
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import partial, wraps
from pathlib import Path
from typing import Any, TextIO

from trainlab.instruments.calls import Patches
from trainlab.watching.imports import on_import

Tell = Callable[[str, float], None]
listening: list[Tell] = []
"""Who is told every value that the script logs."""

Given = Mapping[str, Any]
"""Tags and values."""


def _many(scalars: Any = None, *rest: Any, **named: Any) -> Given:
    """All in one argument, which has a name of its own in every library."""
    names = ("metrics_dict", "metrics", "values", "data")
    return next((named[name] for name in names if name in named), scalars)


SCALAR: Mapping[str, Callable[..., Given]] = {
    "add_scalar": lambda tag, scalar_value, *rest, **named: {tag: scalar_value},
    "add_scalars": lambda main_tag, tag_scalar_dict, *rest, **named: {
        f"{main_tag}/{tag}": value for tag, value in tag_scalar_dict.items()
    },
}
LOG: Mapping[str, Callable[..., Given]] = {"log": _many}
"""How each function is given its scalars."""
WRITERS: Sequence[tuple[str, str, Mapping[str, Callable[..., Given]]]] = (
    ("torch.utils.tensorboard.writer", "SummaryWriter", SCALAR),
    ("tensorboardX.writer", "SummaryWriter", SCALAR),
    ("lightning.fabric.loggers.csv_logs", "_ExperimentWriter", {"log_metrics": _many}),
    ("lightning_fabric.loggers.csv_logs", "_ExperimentWriter", {"log_metrics": _many}),
    ("wandb", "", LOG),
    ("wandb.sdk.wandb_run", "Run", LOG),
    ("wandb.sdk.lib.noop_run", "NoopRun", LOG),
    ("mlflow", "", {
        "log_metric": lambda key, value, *rest, **named: {key: value},
        "log_metrics": _many,
    }),
    ("trackio", "", LOG),
    ("trackio.run", "Run", LOG),
    ("accelerate.accelerator", "Accelerator", LOG),
)  # fmt: skip
"""Modules, and the class in them or the module itself, whose functions scripts log with."""
PARTS: Mapping[str, str] = {
    **dict.fromkeys(("train", "training", "fit"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}
"""What a word in a tag says of the data that a metric is of."""
NO_METRICS = frozenset({"epoch", "step", "global_step", "trainer_global_step", "hp_metric"})
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
    if (rest := "_".join(words)) in NO_METRICS:
        return None
    return f"{PARTS[found]}/{rest or 'value'}"


def number_of(value: object) -> float | None:
    """A number, or a tensor or an array that holds one; None for texts, mappings, images, yes and no."""
    if isinstance(value, str | bytes | bool):
        return None
    detach: Callable[[], Any] = getattr(value, "detach", lambda: value)
    try:
        return float(detach())
    except (TypeError, ValueError, ArithmeticError, RuntimeError):
        return None


_is_logging = ContextVar("_is_logging", default=False)
"""Whether a library that logs is under way: what it gives to another was heard."""


class OwnScalars:
    """Hears of every scalar that the script gives to a library that logs, whatever that makes of it; but
    for those in a folder of ours."""

    def __init__(self, tell: Tell, ours: Path) -> None:
        self._tell, self._ours, self._patches = tell, str(ours), Patches()
        self._ends = [
            on_import(place, partial(self._see, name, functions))
            for place, name, functions in WRITERS
        ]

    def close(self) -> None:
        """A function that the library has kept elsewhere goes on being called, and tells nobody."""
        self._tell = lambda *told: None
        for end in self._ends:
            end()
        self._patches.close()

    def _see(self, name: str, functions: Mapping[str, Callable[..., Given]], module: Any) -> None:
        owner = getattr(module, name, None) if name else module
        for function in [one for one in functions if one in getattr(owner, "__dict__", {})]:
            self._hear(owner, function, functions[function])

    def _hear(self, owner: Any, name: str, given: Callable[..., Given]) -> None:
        original, num_own = vars(owner)[name], int(isinstance(owner, type))

        @wraps(original)
        def heard(*arguments: Any, **options: Any) -> Any:
            if _is_logging.get():
                return original(*arguments, **options)
            before = _is_logging.set(True)
            try:
                return original(*arguments, **options)
            finally:
                _is_logging.reset(before)
                # Afterwards: the library has waited for the device where it had to.
                if str(getattr(next(iter(arguments), None), "log_dir", "")) != self._ours:
                    with suppress(TypeError, ValueError, AttributeError):
                        self._take(given(*arguments[num_own:], **options))

        self._patches.put(owner, name, heard)

    def _take(self, scalars: Given) -> None:
        for tag, value in scalars.items():
            name, number = metric_of(str(tag)), number_of(value)
            if name is not None and number is not None:
                self._tell(name, number)


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


class Searched:
    """What is written to a stream, in every line of which metrics are looked for."""

    def __init__(self, patterns: Mapping[str, str], found: Tell) -> None:
        self._patterns = {name: re.compile(pattern) for name, pattern in patterns.items()}
        self._found, self._line = found, ""

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


def hear_stream(stream: TextIO, hear: Callable[[str], object], patches: Patches) -> None:
    """Tells what is written to a stream, which stays what it is."""
    write = stream.write

    @wraps(write)
    def heard(text: str) -> int:
        number = write(text)
        hear(text)
        return number

    patches.put(stream, "write", heard)


def search_output(patterns: Mapping[str, str], found: Tell) -> Callable[[], None]:
    """From now on what is printed is searched; gives what ends it."""
    if not patterns:
        return lambda: None
    patches, searched = Patches(), [Searched(patterns, found) for _ in range(2)]
    for stream, one in zip((sys.stdout, sys.stderr), searched, strict=True):
        hear_stream(stream, one.search, patches)

    def end() -> None:
        patches.close()
        for one in searched:
            one.search()

    return end
