"""Lines of a terminal, also of Chinese, which has no gaps to break a line at. Imports next to nothing."""

from collections.abc import Iterator
from unicodedata import east_asian_width

CLOSING = "，。；：、）］”？…"  # noqa: RUF001
"""What never begins a line."""
OPENING = "（［“"  # noqa: RUF001
"""What never ends one."""


def wrapped(text: str, width: int, indent: str = "") -> Iterator[str]:
    """Lines of at most so many columns, broken at gaps and between Chinese characters."""
    line = ""
    for piece in _pieces(text):
        if line and cells(line) + cells(piece.rstrip()) > width:
            yield indent + line.rstrip()
            line = ""
        line += piece
    if line:
        yield indent + line.rstrip()


def _pieces(text: str) -> Iterator[str]:
    """What must stay on one line: a word with the gap after it, a Chinese character with its brackets and
    stops."""
    piece = ""
    for letter in text:
        closes = letter == " " or letter in CLOSING
        is_joint = _is_wide(letter) or _is_wide(piece[-1:]) or piece[-1:] == " "
        if piece and is_joint and not closes and piece[-1] not in OPENING:
            yield piece
            piece = ""
        piece += letter
    if piece:
        yield piece


def cells(text: str) -> int:
    """Its width in Latin letters: a Chinese character is as wide as two."""
    return sum(1 + _is_wide(letter) for letter in text)


def _is_wide(letter: str) -> bool:
    return bool(letter) and east_asian_width(letter) in "WF"
