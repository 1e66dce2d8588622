"""Help pages: names and what they mean, in groups, for the width of the terminal. Imports next to nothing,
so that help is there at once."""

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import get_terminal_size
from typing import Literal

from trainlab.report.wrapping import cells, wrapped

HELP_ALL = "--help-all"
NARROWEST, WIDEST = 60, 100
STOPS = "[。；]"  # noqa: RUF001
NAME_WIDTH = 25
"""Columns for names; beside a longer one its meaning begins on the next line."""

GROUPS = {
    "what": "What to run",
    "what+": "What to run: more",
    "settings": "Settings people change most (defaults: trainlab workloads)",
    "settings+": "All other settings (defaults are the workload's)",
    "measuring": "Measuring",
    "measuring+": "Measuring: more",
    "output": "Output",
    "output+": "Output: more",
}
"""Headings of verbs with many options, as they follow on each other."""
ORDER = ["Arguments", "Options", *GROUPS.values()]
ONLY_IN_ALL = [heading for name, heading in GROUPS.items() if name.endswith("+")]

Groups = dict[str, list[tuple[str, str]]]
"""Titles, and under each names and what they mean."""


@dataclass(frozen=True)
class Option:
    """What the command line and its help have of a field."""

    field: str
    names: tuple[str, ...]
    """As `--quiet` and `-q`; of a word that stands by itself, none."""
    kind: Literal["text", "texts", "flag", "yes-no"]
    """A `yes-no` is a flag that also takes true, false or both."""
    metavar: str
    group: str
    help: str
    default: str = ""
    is_required: bool = False
    negative: str = ""
    """`--no-report` of the flag `--report`."""
    owner: str = ""
    """The verb's field of which it is one entry."""

    @property
    def key(self) -> str:
        """Its name among the words of a command line."""
        return self.names[0][2:].replace("-", "_") if self.names else self.field


class Texts:
    """Texts of help pages in a language: as the code has them, or their Chinese in words/help.toml."""

    def __init__(self, lang: str) -> None:
        self._chinese: dict[str, str] = {}
        if lang == "zh":
            import tomllib

            file = Path(__file__).parents[1] / "words" / "help.toml"
            for table in tomllib.loads(file.read_text(encoding="utf-8")).values():
                self._chinese.update(table)

    def __call__(self, text: str, **values: object) -> str:
        """A text with the values filled in for the names in it; in English where it has no Chinese."""
        found = self._chinese.get(text, text)
        return found.format(**values) if values else found

    def first_sentence(self, text: str) -> str:
        """The text up to its first full stop or semicolon, for a table of contents."""
        is_chinese = text in self._chinese
        first = re.split(STOPS if is_chinese else "[.;] |[.]$", self(text))[0]
        return first + ("。" if is_chinese else ".")


def help_page(usage: str, summary: str, groups: Groups, texts: Texts, ending: str = "") -> str:
    """The whole page: how the verb is called, what it does, its groups, and a last line."""
    width = min(max(get_terminal_size().columns, NARROWEST), WIDEST)
    is_plain = not sys.stdout.isatty() or "NO_COLOR" in os.environ
    heading = texts("Usage:")
    usage = f"{heading} {usage}" if heading.isascii() else f"{heading}{usage}"
    parts = [
        ["\n".join(wrapped(usage, width - 7, " " * 7)).strip()],
        wrapped(texts(summary), width),
    ]
    for title, rows in groups.items():
        if rows:
            heading = texts(title) if is_plain else f"\033[1m{texts(title)}\033[0m"
            parts.append([heading, *_row_lines(rows, width)])
    if ending:
        parts.append(wrapped(ending, width))
    return "\n\n".join(map("\n".join, parts)) + "\n"


def _row_lines(rows: Sequence[tuple[str, str]], width: int) -> Iterator[str]:
    column = max((cells(name) for name, _ in rows if cells(name) <= NAME_WIDTH), default=0)
    indent = " " * (column + 4)
    for name, meaning in rows:
        lines = wrapped(meaning, width - len(indent))
        if cells(name) > column:
            yield from (f"  {line}" for line in wrapped(name, width - 2))
        else:
            first = next(lines, "")
            yield f"  {name}{' ' * (column - cells(name) + 2)}{first}".rstrip()
        yield from (indent + line for line in lines)


FIRST = {
    "trainlab run mnist-lab": "A study that comes with it: minutes, then an answer and a report.",
    "trainlab watch train.py": "Your own training script, unchanged.",
    "trainlab init mine": "Files of your own to start from.",
}
"""What a newcomer types."""


def verbs_page(path: str, meaning: str, verbs: Mapping[str, Mapping[str, str]], lang: str) -> str:
    """The page of trainlab itself, or of a verb that has verbs of its own; verbs by what they are for."""
    texts = Texts(lang)
    verbs = {**({"To begin": FIRST} if path == "trainlab" else {}), **verbs}
    groups = {title: [(n, texts(verb)) for n, verb in own.items()] for title, own in verbs.items()}
    if path == "trainlab":
        groups["Options"] = [
            ("--version", texts("Print the version and exit.")),
            ("--help", texts("Show this page and exit.")),
        ]
    ending = texts("`{path} VERB --help` shows the options of a verb.", path=path)
    return help_page(f"{path} VERB [OPTIONS]", meaning, groups, texts, ending)


def verb_page(
    path: str,
    meaning: str,
    options: Sequence[Option],
    examples: Sequence[str],
    lang: str,
    *,
    everything: bool,
) -> str:
    """The page of one verb; without `everything` its basic options, in a sentence each."""
    texts, grouped = Texts(lang), dict[str, list[Option]]()
    for one in options:
        grouped.setdefault(one.group or ("Options" if one.names else "Arguments"), []).append(one)
    left = [] if everything else [title for title in ONLY_IN_ALL if title in grouped]
    groups: Groups = {}
    for title in sorted(grouped.keys() - left, key=ORDER.index):
        groups[title] = []
        for one in grouped[title]:
            name = f"{', '.join(filter(None, (*one.names, one.negative)))} {one.metavar}".strip()
            default = f" [{texts(one.default)}]" if one.default else ""
            whole = texts(one.help) + default
            groups[title].append((name, texts.first_sentence(one.help) if left else whole))
    groups["Examples"] = [(line, "") for line in examples]
    ending = ""
    if number := sum(len(grouped[title]) for title in left):
        text = "`{path} --help-all` shows the other {number} options too."
        ending = texts(text, path=path, number=number)
    words = [one for one in options if not one.names]
    names = [w.metavar if w.is_required else f"[{w.metavar.strip('[]')}]" for w in words]
    return help_page(" ".join([path, "[OPTIONS]", *names]), meaning, groups, texts, ending)
