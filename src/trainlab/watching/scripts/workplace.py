"""The folder a script runs in: one of its own, in which it finds what lies where it was asked for.

What it writes stays in there. Everything beside it, and beside the folder above, is there as a link: `data`
and `../data` are found.
"""

import shutil
from contextlib import suppress
from pathlib import Path

MOST_LINKS = 2000


def make_workplace(place: Path, origin: Path) -> Path:
    """The working folder in `place`, for a script that was asked for in `origin`."""
    work = place / (origin.name or "work")
    work.mkdir(parents=True, exist_ok=True)
    _link_all(origin, work, place)
    _link_all(origin.parent, place, place)
    return work


def clear_workplace(place: Path) -> None:
    """Takes the links away; what the script wrote stays. Nothing is left of one that wrote nothing."""
    folders = [place, *(one for one in place.iterdir() if one.is_dir() and not one.is_symlink())]
    for folder in folders:
        for one in folder.iterdir():
            if one.is_symlink():
                one.unlink()
    for folder in reversed(folders):
        with suppress(OSError):  # not empty
            folder.rmdir()


def remove_workplace(place: Path) -> None:
    """With all that was written in it; links are not followed."""
    shutil.rmtree(place, ignore_errors=True)


def _link_all(source: Path, target: Path, place: Path) -> None:
    try:
        entries = sorted(source.iterdir())[:MOST_LINKS]
    except OSError:
        return  # not ours to list: the script may not need it
    for entry in entries:
        # The run folder itself may lie there: a link to it would lead round in circles.
        is_around = entry == place or entry in place.parents
        link = target / entry.name
        if not is_around and not link.exists() and not link.is_symlink():
            with suppress(OSError):
                link.symlink_to(entry)
