"""The runs of a folder: where they are, and what their studies say; read lightly, by the server itself."""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from stat import S_ISREG
from typing import Any

from trainlab.page.reading import Outcome
from trainlab.spec.base import plain

DEEPEST = 3
"""Folders below the one that is served in which runs are looked for."""
MOST_STUDY_BYTES = 64 * 2**20


@dataclass(frozen=True)
class ListedRun:
    """A run as the list has it: what was asked, by its study, and what came of it, once that is read."""

    id: str
    path: Path
    label: str
    """The name of its folder, as it can be shown."""
    mark: tuple[int, ...]
    """Another one where its records may have changed."""
    name: str
    title: str = ""
    workload: str = ""
    settings: str = ""
    num_seeds: int = 0
    created: str = ""
    summary: Outcome | None = None

    @property
    def begun_s(self) -> float:
        """Seconds since 1970; 0 where that is not told."""
        with suppress(ValueError, OverflowError, TypeError):
            return datetime.fromisoformat(self.created).timestamp()
        return 0.0


def find_runs(folder: Path) -> Iterator[Path]:
    """Run folders in a folder, not in each other, nor behind links; the folder itself may be one."""

    def inside(place: Path, depth: int) -> Iterator[Path]:
        with suppress(OSError):
            if S_ISREG((place / "study.json").lstat().st_mode):
                yield place
                return
        entries = list[os.DirEntry[str]]()
        with suppress(OSError):
            entries = sorted(os.scandir(place), key=lambda one: one.name)
        for one in entries if depth else ():
            with suppress(OSError):
                if one.is_dir(follow_symlinks=False) and not one.name.startswith("."):
                    yield from inside(Path(one.path), depth - 1)

    yield from inside(folder, DEEPEST)


def run_id(folder: Path, path: Path) -> str:
    """What a run is called in addresses: nothing of a path, so that none can lead elsewhere."""
    return hashlib.sha256(os.fsencode(path.relative_to(folder))).hexdigest()[:16]


def mark_of(path: Path) -> tuple[int, ...]:
    """When what says most of a run's state changed last."""
    places = [path / "study.json", path / "trials", path / "results.csv", path / "diagnosis.json"]
    for name in ("events", "drivers"):
        with suppress(OSError):
            places += [Path(one) for one in os.scandir(path / name)]
    marks = list[int]()
    for place in places:
        with suppress(OSError):
            marks.append(place.stat(follow_symlinks=False).st_mtime_ns)
    return tuple(marks)


def listed(folder: Path, path: Path) -> ListedRun:
    """What the study of a run says, read lightly; of one that makes no sense its name alone."""
    about: dict[str, Any] = {"name": path.name}
    with suppress(OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        if (path / "study.json").stat().st_size <= MOST_STUDY_BYTES:
            found = json.loads((path / "study.json").read_bytes())
            study, levels = found["study"], dict[str, dict[str, None]]()
            for cell in study["cells"]:
                for name, level in cell["levels"].items():
                    levels.setdefault(name, {})[str(level)] = None
            about = {
                "name": found["name"],
                "title": study.get("title") or "",
                "workload": study["workload"],
                "settings": "; ".join(f"{name}={', '.join(some)}" for name, some in levels.items()),
                "created": found["created"],
                "num_seeds": len(study["seeds"]),
            }
    about = {key: plain(text) if isinstance(text, str) else text for key, text in about.items()}
    return ListedRun(run_id(folder, path), path, plain(path.name), mark_of(path), **about)
