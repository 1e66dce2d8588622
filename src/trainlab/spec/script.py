"""ScriptSpec: a training script that is watched as it is, with its own arguments."""

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, NonNegativeFloat, NonNegativeInt, PositiveInt

from trainlab.errors import SpecError
from trainlab.spec.base import Spec
from trainlab.spec.settings import Scalar

ENVIRONMENT = "env."
"""Begins the name of a factor that is an environment variable."""


def _pattern(text: str) -> str:
    try:
        groups = re.compile(text).groups
    except re.error as error:
        raise ValueError(f"got {text!r}, which is no regular expression: {error}") from None
    if groups != 1:
        raise ValueError(f"got {text!r}, must hold one group ( ), which is the number")
    return text


def _file_and_column(text: str) -> str:
    file, _, column = text.rpartition(":")
    if not file or not column.strip():
        raise ValueError(f"got {text!r}, must be FILE:COLUMN, as log.csv:val_acc")
    return text


class DiagnosisSpec(Spec):
    """How what limits a script is found out: whoever goes on with a diagnosis needs it."""

    tries: tuple[str, ...] = ()
    """What to try, as `data` or `threads=1`; none: what promises most."""
    most: PositiveInt = 4
    """Possible limits to try."""
    processes: PositiveInt = 5
    """Fresh processes of each change, at most."""


class ScriptSpec(Spec):
    """A script, how it is started, and where its metrics are found."""

    path: str
    """Its file."""
    module: str = ""
    """Its name, where it is run as `python -m` runs it."""
    arguments: tuple[str, ...] = ()
    """Its own, as they were given."""
    folder: str = ""
    """Where it was asked for: its relative paths are meant from there."""
    workdir: str = ""
    """The folder that it runs in, as it is; empty: each trial in a copy of its own of `folder`."""
    is_seeded: bool = True
    """Whether a trial's seed is given to the script; else it draws, and seeds itself, as it would alone."""
    seed_argument: str | None = None
    """The option of the script that takes the seed, as --seed; None: it has none."""
    metrics: dict[str, Annotated[str, AfterValidator(_pattern)]] = {}
    """Metric to the pattern of a line that the script prints; the pattern's group is the value."""
    metric_files: dict[str, Annotated[str, AfterValidator(_file_and_column)]] = {}
    """Metric to a CSV file that the script writes and its column, as `log.csv:val_acc`."""
    processes: PositiveInt = 1
    """Processes that torchrun starts for one trial."""
    max_steps: NonNegativeInt = 0
    """Updates after which a trial is ended; 0: when the script ends."""
    max_s: NonNegativeFloat = 0.0
    """Seconds of training after which it is ended, but not before some dozens of updates; 0: not so."""
    is_searched: bool = False
    """Whether its statements are sampled and its containers looked at."""
    has_whole_turns: bool = False
    """Whether a turn counts all that happens in it, tests and logging too, rather than its usual steps."""
    diagnosis: DiagnosisSpec | None = None
    """What follows once it was watched; None: nothing does."""
    from_inside: bool = False
    """Whether it watched itself, by `trainlab.watch`: nobody else can start it."""

    @property
    def columns(self) -> dict[str, tuple[str, str]]:
        """Metric to file and column."""
        split = {name: text.rpartition(":") for name, text in self.metric_files.items()}
        return {name: (file, column.strip()) for name, (file, _, column) in split.items()}

    def arguments_for(self, levels: Mapping[str, Scalar], seed: int | None) -> tuple[str, ...]:
        """The script's arguments in a cell with a seed; None: as it chooses itself."""
        arguments = list(self.arguments)
        for name, level in levels.items():
            if not name.startswith(ENVIRONMENT):
                arguments = with_argument(arguments, option_of(name), level)
        if seed is not None and self.seed_argument and not self.gives_seed:
            arguments = with_argument(arguments, self.seed_argument, seed)
        return tuple(arguments)

    @property
    def gives_seed(self) -> bool:
        """Whether its own arguments hold a seed, which is then the same in every trial."""
        return any(
            word == self.seed_argument or word.startswith(f"{self.seed_argument}=")
            for word in self.arguments
        )

    def environment_for(self, levels: Mapping[str, Scalar]) -> dict[str, str]:
        return {
            name.removeprefix(ENVIRONMENT): _text(level)
            for name, level in levels.items()
            if name.startswith(ENVIRONMENT)
        }


def option_of(name: str) -> str:
    """A factor's name as the script's option: `lr` is --lr, and `-b` itself."""
    return name if name.startswith("-") else f"--{name}"


def with_argument(arguments: Sequence[str], option: str, level: Scalar) -> list[str]:
    """The arguments with an option set; true is the option by itself and false none. Where they hold it as
    `name=value`, without dashes, it is written like that."""
    assigned = f"{option.lstrip('-')}="
    if any(word.startswith(assigned) for word in arguments):
        new = f"{assigned}{_text(level)}"
        return [new if word.startswith(assigned) else word for word in arguments]
    kept = list(_without(arguments, option))
    if isinstance(level, bool):
        return [*kept, option] if level else kept
    return [*kept, option, _text(level)]


def _without(arguments: Sequence[str], option: str) -> Iterator[str]:
    is_value = False
    for word in arguments:
        if is_value and not _is_option(word):
            is_value = False
            continue
        is_value = word == option
        if not is_value and not word.startswith(f"{option}="):
            yield word


def _is_option(word: str) -> bool:
    """Whether a word is an option rather than a value: -1 and -0.5 are values."""
    return re.fullmatch(r"--?[A-Za-z].*", word) is not None


def _text(level: Scalar) -> str:
    return str(level).lower() if isinstance(level, bool) else str(level)


SEED_OPTION = re.compile(r"""["'](--(?:random[-_])?seed)["']""")
BATCH_SIZE_OPTION = re.compile(r"""["'](--(?:train[-_])?(?:batch[-_]?size|bs|bsz))["']""")
OPTION = re.compile(r"""["'](--[A-Za-z][\w-]*)["']""")
MISSPELT = 0.85
"""How similar, from 0 to 1, the name of a factor and an option in a script's text are for the one to be
taken for the other, misspelt: --lrf beside --lr may come from another file."""


def first_option(wanted: re.Pattern[str], source: str) -> str | None:
    """The option that takes the seed, or the batch size, as far as a script's text shows it."""
    found = wanted.search(source)
    return None if found is None else found[1]


def options_in(source: str) -> list[str]:
    """Those that a script's text shows, each once."""
    return list(dict.fromkeys(OPTION.findall(source)))


def misspelt_option(name: str, source: str) -> str | None:
    """The option that a factor was probably meant to be, as far as a script's text shows."""
    options, option = options_in(source), option_of(name)
    # argparse.BooleanOptionalAction makes two of one.
    known = (option, option.replace("--no-", "--", 1))
    if not option.startswith("--") or any(one.startswith(known) for one in options):
        return None
    names = [one.removeprefix("--") for one in options]
    near = get_close_matches(option.removeprefix("--"), names, n=1, cutoff=MISSPELT)
    return near[0] if near else None


ChangeName = Literal[
    "same_batch",
    "workers",
    "pin_memory",
    "fused",
    "threads",
    "batch_size",
    "evaluation",
    "no_logging",
    "no_anomaly_checks",
    "without",
    "drop",
]
CHANGE_NAMES: tuple[ChangeName, ...] = get_args(ChangeName)
WITH_VALUE = ("workers", "threads", "batch_size", "evaluation", "without", "drop")
"""Those that say how many, which line or which name."""
WITH_NUMBER = tuple(name for name in WITH_VALUE if name != "drop")


def change_parts(text: str, where: str = "change") -> tuple[ChangeName, str]:
    """The name and the value of a change as it is written; SpecError where it is none."""
    name, _, value = text.partition("=")
    for known in CHANGE_NAMES:
        if name == known:
            if known in WITH_VALUE and not value:
                raise SpecError([f"{where}: got {text!r}, must have a value, as {known}=1"])
            return known, value
    raise SpecError([f"{where}: got {text!r}, must be one of {', '.join(CHANGE_NAMES)}"])
