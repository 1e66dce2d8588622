"""Lines of text in a terminal."""

from rich.console import Console
from rich.text import Text

from trainlab.report.wrapping import wrapped


def print_line(console: Console, text: str, style: str = "") -> None:
    """Plain text, whatever it holds; on a terminal broken at gaps, else left whole."""
    lines = wrapped(text, console.width) if console.is_terminal and text else [text]
    for line in lines:
        console.print(Text(line, style), soft_wrap=True, highlight=False)
