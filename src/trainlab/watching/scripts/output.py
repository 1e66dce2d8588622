"""What a script prints, searched for its metrics."""

import io
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, TextIO

Found = Callable[[str, float], None]
LONGEST_LINE = 10_000
"""Letters of a line that are searched, the last ones: one may never end."""


class Searched(io.TextIOBase):
    """A stream that passes on what is written, and looks for metrics in every line."""

    def __init__(self, stream: TextIO, patterns: Mapping[str, str], found: Found) -> None:
        self._stream = stream
        self._patterns = {name: re.compile(pattern) for name, pattern in patterns.items()}
        self._found, self._line = found, ""

    def write(self, text: str) -> int:
        self._stream.write(text)
        *lines, last = re.split(r"[\n\r]", self._line + text)
        self._line = last[-LONGEST_LINE:]
        for line in lines:
            self._search(line)
        return len(text)

    def finish(self) -> None:
        """The last line may have no end."""
        self._search(self._line)
        self._line = ""

    def _search(self, line: str) -> None:
        for name, pattern in self._patterns.items():
            if (match := pattern.search(line)) is not None:
                try:
                    value = float(match[1].replace(",", ""))
                except (AttributeError, ValueError):
                    continue
                is_percentage = line[match.end(1) :].lstrip().startswith("%")
                self._found(name, value / 100 if is_percentage else value)

    def flush(self) -> None:
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def search_output(patterns: Mapping[str, str], found: Found) -> Callable[[], None]:
    """From now on what is printed is searched; gives what ends it."""
    if not patterns:
        return lambda: None
    streams = sys.stdout, sys.stderr
    searched = [Searched(stream, patterns, found) for stream in streams]
    sys.stdout, sys.stderr = searched

    def end() -> None:
        for one in searched:
            one.finish()
        sys.stdout, sys.stderr = streams

    return end
