"""The log of a worker's process: what it printed, on disk and never in memory."""

import os
from pathlib import Path
from typing import IO

TAIL_BYTES = 8 * 1024
"""Of a log, for the record of a trial whose process died."""
KEPT_BYTES = 1024 * 1024
"""Of a log that has grown longer, its end, once the process is gone."""


class Log:
    """One file, which is appended to: a process may be started once more."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.stream = self._opened()
        self._begin = self.stream.seek(0, os.SEEK_END)

    def tail(self) -> str:
        """The end of what this process printed."""
        return tail_of(self._path, self._begin)

    def close(self) -> None:
        """Removes an empty log; of a long one the end stays."""
        self.stream.close()
        try:
            size = self._path.stat().st_size
            if not size:
                self._path.unlink()
                self._path.parent.rmdir()  # where this was the last
            elif size > KEPT_BYTES:
                kept = _end_of(self._path, KEPT_BYTES)
                left_out = f"… {size - len(kept):,} bytes left out …\n".encode()
                self._path.write_bytes(left_out + kept)
        except OSError:
            return  # a log is no record

    def _opened(self) -> IO[bytes]:
        try:
            self._path.parent.mkdir(exist_ok=True)
            return self._path.open("ab")
        except OSError:
            return Path(os.devnull).open("ab")  # a log that cannot be written fails no trial


def tail_of(path: Path, begin: int = 0) -> str:
    """The end of a log, from so many bytes on at the earliest; nothing where it cannot be read."""
    try:
        return _end_of(path, TAIL_BYTES, begin).decode("utf-8", "backslashreplace")
    except OSError:
        return ""


def _end_of(path: Path, most_bytes: int, begin: int = 0) -> bytes:
    with path.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(begin, size - most_bytes))
        return stream.read(most_bytes)
