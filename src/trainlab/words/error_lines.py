"""Error lines in Chinese: made from the parts in errors.toml, in whatever order a line has them.

The code says what is wrong in English, in one line; only the command line translates it.
"""

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files

from trainlab.words import Words

HOLE = re.compile(r"\{(\w+)\}")
NESTED = ("part", "other")
"""Holes whose content is translated too."""
QUESTION_MARK = "？"
VERBATIM = r"(?:(?![;:] ).)+?"
"""What a hole takes: nothing beyond a semicolon or a colon, for what follows is a part of its own."""


def error_line(line: str, lang: str) -> str:
    """The line in a language; as it is where a part of it has no translation."""
    return line if lang == "en" else _translated(line) or line


@cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    """The English parts, and the Chinese of each."""
    text = (files("trainlab.words") / "errors.toml").read_text(encoding="utf-8")
    tables: dict[str, dict[str, str]] = tomllib.loads(text)
    return [(_pattern(en), zh) for table in tables.values() for en, zh in table.items()]


def _pattern(part: str) -> re.Pattern[str]:
    expression, end = "", 0
    for hole in HOLE.finditer(part):
        content = ".+" if hole[1] in ("text", *NESTED) else VERBATIM
        expression += re.escape(part[end : hole.start()]) + f"(?P<{hole[1]}>{content})"
        end = hole.end()
    return re.compile(expression + re.escape(part[end:]))


@cache
def _translated(text: str) -> str | None:
    """A part, or parts that stand in one another; None where one of them has no translation."""
    words = Words("zh")
    for pattern, chinese in _patterns():
        if (match := pattern.fullmatch(text)) and (filled := _filled(chinese, match)) is not None:
            return filled
    for problem, remedy in _splits(text, "; "):
        both = _translated(problem), _translated(remedy)
        if both[0] is not None and both[1] is not None:
            joint = "" if both[0].endswith(QUESTION_MARK) else words("list_semicolon")
            return f"{both[0]}{joint}{both[1]}"
    for value, rule in _splits(text.removeprefix("got "), ", ") if text.startswith("got ") else ():
        if (said := _translated(rule)) is not None:
            return words("error_got", value=value, rule=said)
    for place, problem in _splits(text, ": "):
        if (said := _translated(problem)) is not None:
            return f"{place}{words('colon')}{said}"
    return None


def _filled(chinese: str, match: re.Match[str]) -> str | None:
    values: dict[str, str] = {}
    for name, value in match.groupdict().items():
        said = _translated(value) if name in NESTED else value
        if said is None:
            return None
        values[name] = said
    # Not `format`: other braces, as in {"f1": f1}, stay as they are.
    return HOLE.sub(lambda hole: values[hole[1]], chinese)


def _splits(text: str, joint: str) -> Iterator[tuple[str, str]]:
    """The text before and after each place where the joint is."""
    for match in re.finditer(re.escape(joint), text):
        yield text[: match.start()], text[match.end() :]
