"""The folder a script runs in: one of its own, in which it finds what lies where it was asked for.

What it writes stays in there. Everything beside it, and beside the folder above, is there too, so that
`data` and `../data` are found: folders as folders, files as copies, so that a script may write over them.
What is too large for that, or too much, is there as a link.
"""

import os
import shutil
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MOST_FILE_BYTES = 64 * 2**20
"""Of a file that is copied."""
MOST_BYTES = 256 * 2**20
"""Of all copies together, and no more than a quarter of what is free."""
MOST_ENTRIES = 1000
"""Files and folders in all; beside the folder above, `MOST_ABOVE`."""
MOST_ABOVE = 200
MOST_IN_FOLDER = 500
"""A folder of more, as of many pictures, is a link."""
LINKED = ("venv", "node_modules", "__pycache__")
"""Folders that no training writes to. What is hidden is a link, too: it may be secret."""


@dataclass
class _Room:
    """What may still be made."""

    num_entries: int
    num_bytes: int

    def holds(self, num_bytes: int) -> bool:
        """Whether a file of this size is copied; it then counts."""
        if self.num_entries <= 0 or num_bytes > min(MOST_FILE_BYTES, self.num_bytes):
            return False
        self.num_bytes -= num_bytes
        return True


class Workplace:
    """The folder `place`, for a script that was asked for in `origin`."""

    def __init__(self, place: Path, origin: Path) -> None:
        self._place, self._origin = place, origin
        self._copies: dict[Path, tuple[int, int]] = {}
        self._folders: set[Path] = set()

    def make(self) -> Path:
        """The working folder, which is one in `place`."""
        place, origin = self._place, self._origin
        work = place / (origin.name or "work")
        work.mkdir(parents=True, exist_ok=True)
        num_bytes = min(MOST_BYTES, shutil.disk_usage(work).free // 4)
        for source, target, most in (
            (origin, work, MOST_ENTRIES),
            (origin.parent, place, MOST_ABOVE),
        ):
            is_machine = source == Path(source.anchor)  # of all of it, links are enough
            self._mirror(source, target, _Room(0 if is_machine else most, num_bytes))
            num_bytes //= 4
        return work

    def clear(self) -> None:
        """Takes links and unchanged copies away; what the script wrote stays. Nothing is left of one that
        wrote nothing."""
        for parent, folders, files in os.walk(self._place, topdown=False):
            for name in (*folders, *files):
                path = Path(parent, name)
                original = self._origin.parent / path.relative_to(self._place)
                with suppress(OSError):
                    if path.is_symlink() or self._is_copy(path, original):
                        path.unlink()
                    elif path in self._folders or (path.is_dir() and original.is_dir()):
                        path.rmdir()  # OSError where something is in it
        for folder in (self._place / "work", self._place):
            with suppress(OSError):
                folder.rmdir()

    def remove(self) -> None:
        """With all that was written in it; links are not followed."""
        shutil.rmtree(self._place, ignore_errors=True)

    def _is_copy(self, path: Path, original: Path) -> bool:
        """Whether a file is as it was copied; by another process, whether it is as its original."""
        if not path.is_file():
            return False
        return _version(path) == (self._copies.get(path) or _version(original))

    def _mirror(self, source: Path, target: Path, room: _Room) -> None:
        """Folders nearer by first: what there is no room for any more are links."""
        if not source.is_dir():
            return
        device, left, seen = source.stat().st_dev, deque([(source, target)]), set[Path]()
        while left:
            folder, made = left.popleft()
            entries = _entries(folder)
            is_small = len(entries or ()) <= min(MOST_IN_FOLDER, room.num_entries)
            # A folder that was seen before is a link, which may lead round in circles.
            if entries is None or (made != target and (not is_small or folder.resolve() in seen)):
                _link(folder, made)
                continue
            seen.add(folder.resolve())
            room.num_entries -= len(entries)
            made.mkdir(exist_ok=True)
            self._folders.add(made)
            for entry in entries[:MOST_ENTRIES]:
                path, own = made / entry.name, Path(entry.path)
                # The run folder itself may lie there: what is in it would lead round in circles.
                is_around = own == self._place or own in self._place.parents
                if is_around or os.path.lexists(path):
                    continue
                if _is_mirrored(entry, device):
                    left.append((own, path))
                elif not self._is_copied(entry, path, room):
                    _link(own, path)

    def _is_copied(self, entry: os.DirEntry[str], path: Path, room: _Room) -> bool:
        try:
            if entry.name.startswith(".") or not entry.is_file():
                return False
            if not room.holds(entry.stat().st_size):
                return False
            shutil.copy2(entry.path, path)
            self._copies[path] = _version(path)
        except OSError:  # not ours to read, or the disk is full
            path.unlink(missing_ok=True)
            return False
        return True


def _link(entry: Path, path: Path) -> None:
    with suppress(OSError):
        path.symlink_to(entry)


def _is_mirrored(entry: os.DirEntry[str], device: int) -> bool:
    """Whether a folder is one in the workplace, too; another disk, or /proc, is a link."""
    is_plain = not entry.name.startswith(".") and entry.name not in LINKED
    try:
        return is_plain and entry.is_dir() and entry.stat().st_dev == device
    except OSError:
        return False


def _entries(folder: Path) -> list[os.DirEntry[str]] | None:
    """Small files first; None where they are not ours to list: the script may not need them."""

    def size(entry: os.DirEntry[str]) -> int:
        try:
            return entry.stat().st_size if entry.is_file() else 0
        except OSError:
            return 0

    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: (size(entry), entry.name))
    except OSError:
        return None


def _version(path: Path) -> tuple[int, int]:
    """Size and time; not every file system keeps nanoseconds."""
    found = path.stat()
    return found.st_size, found.st_mtime_ns // 1000
