"""The pages that people read, and what they show: blocks, command lines, options, links."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "README.zh", "CONTRIBUTING", "examples/README")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs/zh").glob("*.md")),
]
LANGUAGES = ("bash", "console", "python", "toml", "text", "markdown", "ipython")
"""`bash`: every line is a command. `console`: those after a `$ ` are, the rest is what they printed.
`text`, `markdown`: nothing is run."""


@dataclass(frozen=True)
class Block:
    """What stands between two fences."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        """Where to look for it."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@dataclass(frozen=True)
class Command:
    """One command line, without its comment."""

    place: str
    words: tuple[str, ...]

    @property
    def text(self) -> str:
        """As one would type it."""
        return shlex.join(self.words)


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page, in order."""
    found, opened, inner = [], None, list[str]()
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if not line.startswith("```"):
            inner.append(line)
        elif opened is None:
            opened, inner = (number + 1, line.removeprefix("```")), []
        else:
            found.append(Block(page, *opened, "\n".join(inner)))
            opened = None
    assert opened is None, f"{page.name}: a fence is not closed"
    return found


def commands(block: Block) -> list[Command]:
    """The command lines of a block; two with a semicolon between them are two."""
    if block.language not in ("bash", "console"):
        return []
    found = []
    for number, line in enumerate(block.text.splitlines(), block.line):
        if block.language == "console" and not line.startswith("$ "):
            continue
        words = list(words_of(line.removeprefix("$ ")))
        place = f"{block.page.relative_to(ROOT)}:{number}"
        while words:
            end = words.index(";") if ";" in words else len(words)
            found.append(Command(place, tuple(words[:end])))
            words = words[end + 1 :]
    return found


def words_of(line: str) -> Iterator[str]:
    """As a shell reads them."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";")
    lexer.whitespace_split = True
    yield from lexer


def prose(page: Path) -> str:
    """The page without its blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def inline_code(page: Path) -> list[str]:
    """What stands in backticks in the text, in one line each."""
    found = re.findall(r"``?([^`]+)``?", prose(page))
    return [" ".join(code.split()) for code in found]


def links(page: Path) -> list[str]:
    """The targets of links and pictures that lie in the project."""
    targets = re.findall(r"\]\(([^)\s]+)\)", prose(page))
    return [target for target in targets if "://" not in target]


def anchors(page: Path) -> set[str]:
    """The names that headings are linked by, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), flags=re.M)
    plain = (re.sub(r"[^\w\s-]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}
