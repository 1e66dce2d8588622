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
    name: str
    title: str
    workload: str
    settings: str
    num_seeds: int
    created: str
    mark: tuple[int, ...]
    """Another one where its records may have changed."""
    summary: Outcome | None = None

    @property
    def begun_s(self) -> float:
        """Seconds since 1970; 0 where that is not told."""
        with suppress(ValueError, OverflowError):
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
    """What the study of a run says, read lightly; of one that cannot be read its name alone."""
    found: dict[str, Any] = {}
    with suppress(OSError, ValueError, RecursionError):
        if (path / "study.json").stat().st_size <= MOST_STUDY_BYTES:
            found = _mapping(json.loads((path / "study.json").read_bytes()))
    study = _mapping(found.get("study"))
    levels: dict[str, dict[str, None]] = {}
    for cell in map(_mapping, _items(study.get("cells"))):
        for name, level in _mapping(cell.get("levels")).items():
            levels.setdefault(plain(name), {})[plain(str(level))] = None
    settings = "; ".join(f"{name}={', '.join(values)}" for name, values in levels.items())
    return ListedRun(
        id=run_id(folder, path),
        path=path,
        label=plain(path.name),
        name=plain(str(found.get("name") or path.name)),
        title=plain(str(study.get("title") or "")),
        workload=plain(str(study.get("workload") or "")),
        settings=settings,
        num_seeds=len(_items(study.get("seeds"))),
        created=plain(str(found.get("created") or "")),
        mark=mark_of(path),
    )


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
