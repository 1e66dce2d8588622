"""Help pages: names and what they mean, in groups, for the width of the terminal. Imports next to nothing,
so that help is there at once."""

import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from trainlab.report.wrapping import cells, wrapped

OF_A_VERB = "`{path} VERB --help` shows the options of a verb."
HELP_ALL = "--help-all"
REST = "`{path} --help-all` shows the other {number} options too."
YES_NO = "true|false"
"""The metavar of an option that is a flag, `--x` or `--no-x`, and also takes true, false or both."""
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
ORDER = list(GROUPS.values())
ONLY_IN_ALL = [heading for name, heading in GROUPS.items() if name.endswith("+")]

Groups = dict[str, list[tuple[str, str]]]
"""Titles, and under each names and what they mean."""


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

    def usage(self, words: str) -> str:
        """How a verb is called, after its heading; a Chinese colon brings its own space."""
        heading = self("Usage:")
        return f"{heading} {words}" if heading.isascii() else f"{heading}{words}"


def help_page(usage: str, summary: str, groups: Groups, ending: str = "") -> str:
    """The whole page; `ending` is its last line."""
    width = min(max(_terminal_width(), NARROWEST), WIDEST)
    parts = ["\n".join(wrapped(usage, width - 7, " " * 7)).strip()]
    parts += ["\n".join(wrapped(text, width)) for text in (summary,) if text]
    parts += ["\n".join(_group_lines(*group, width)) for group in groups.items() if group[1]]
    parts += ["\n".join(wrapped(ending, width))] if ending else []
    return "\n\n".join(parts) + "\n"


def _group_lines(title: str, rows: list[tuple[str, str]], width: int) -> Iterator[str]:
    is_plain = not sys.stdout.isatty() or "NO_COLOR" in os.environ
    yield title if is_plain else f"\033[1m{title}\033[0m"
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


def _terminal_width() -> int:
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal():
        return int(columns)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError):
        return 80


def verb_page(command: Any, context: Any, lang: str, *, everything: bool) -> str:
    """The page of one verb; without `everything` its basic options, in a sentence each."""
    texts = Texts(lang)
    grouped: dict[str, list[Any]] = {}
    for parameter in _without_help(command.get_params(context)):
        is_argument = parameter.param_type_name == "argument"
        own = getattr(parameter, "rich_help_panel", None)
        grouped.setdefault(own or ("Arguments" if is_argument else "Options"), []).append(parameter)
    is_brief = not everything and any(title in ONLY_IN_ALL for title in grouped)
    titles = sorted(grouped, key=lambda title: ORDER.index(title) if title in ORDER else -1)
    shown = [title for title in titles if everything or title not in ONLY_IN_ALL]
    groups = {texts(t): [_row(one, texts, is_brief=is_brief) for one in grouped[t]] for t in shown}
    groups[texts("Examples")] = [(line, "") for line in (command.epilog or "").splitlines()]
    num_left = sum(len(grouped[title]) for title in titles if title not in shown)
    ending = texts(REST, path=context.command_path, number=num_left) if num_left else ""
    return help_page(_usage(command, context, texts), texts(command.help or ""), groups, ending)


def verbs_page(command: Any, context: Any, lang: str) -> str:
    """The page of a verb that has verbs of its own."""
    texts = Texts(lang)
    inner = {name: command.get_command(context, name) for name in command.list_commands(context)}
    parameters = _without_help(command.get_params(context))
    groups = {
        texts("Verbs"): [(n, texts(verb.get_short_help_str(200))) for n, verb in inner.items()],
        texts("Options"): [_row(one, texts, is_brief=False) for one in parameters],
    }
    ending = texts(OF_A_VERB, path=context.command_path)
    return help_page(_usage(command, context, texts), texts(command.help or ""), groups, ending)


def _usage(command: Any, context: Any, texts: Texts) -> str:
    arguments = [p for p in command.get_params(context) if p.param_type_name == "argument"]
    names = [_name(p) if p.required else f"[{_name(p).strip('[]')}]" for p in arguments]
    verb = ["VERB"] if hasattr(command, "list_commands") else []
    return texts.usage(" ".join([context.command_path, *verb, "[OPTIONS]", *names]))


def _row(parameter: Any, texts: Texts, *, is_brief: bool) -> tuple[str, str]:
    meaning = " ".join((parameter.help or "").split())
    if is_brief:
        return _name(parameter), texts.first_sentence(meaning)
    default = parameter.show_default if isinstance(parameter.show_default, str) else ""
    return _name(parameter), texts(meaning) + (f" [{texts(default)}]" if default else "")


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name.upper())
    names = ", ".join((*parameter.opts, *parameter.secondary_opts))
    is_flag = parameter.is_flag or parameter.metavar == ""
    return names if is_flag else f"{names} {parameter.metavar or parameter.name.upper()}"


def _without_help(parameters: Iterable[Any]) -> list[Any]:
    """All but --help, which whoever reads its page has found."""
    return [parameter for parameter in parameters if "--help" not in parameter.opts]
