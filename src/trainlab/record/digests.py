"""Digests of a run's raw records, in the form that `sha256sum` writes them."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainlab.record.files import reading
from trainlab.record.folder import RunFolder

COMMAND = r"""cd RUN
find study.json environment* trials -maxdepth 2 \( -name '*.json' -o -name '*.jsonl' \) -print0 \
  | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum"""
"""Gives the digest of all records, without trainlab."""


@dataclass(frozen=True)
class Digests:
    """What the records of a run are, in a few characters; any change of a record changes them."""

    all: str
    """Of everything that reports are written from."""
    parts: Mapping[str, str]
    """Of `study.json`, of the machines and of each trial, by their paths in the run folder."""
    num_files: int


def run_digests(run: RunFolder) -> Digests:
    """Reads every raw record of a run."""
    paths = [
        run.study_file,
        *run.path.glob("environment.json"),
        *run.environments_folder.glob("*.json"),
    ]
    paths += [p for p in run.trials_folder.glob("*/*") if p.suffix in (".json", ".jsonl")]
    listed = {path.relative_to(run.path).as_posix(): _digest(path) for path in paths}
    parts: dict[str, dict[str, str]] = {}
    for name in sorted(listed, key=str.encode):
        parts.setdefault(_part(name), {})[name] = listed[name]
    return Digests(
        all=_digest_of(listed),
        parts={
            part: next(iter(files.values())) if part in files else _digest_of(files)
            for part, files in parts.items()
        },
        num_files=len(listed),
    )


def _part(name: str) -> str:
    """`trials/<id>` for a file of a trial, and the file itself for others."""
    return "/".join(name.split("/")[:2])


def _digest_of(files: Mapping[str, str]) -> str:
    return hashlib.sha256(b"".join(_lines(files))).hexdigest()


def _lines(files: Mapping[str, str]) -> Iterable[bytes]:
    for name in sorted(files, key=str.encode):
        yield f"{files[name]}  {name}\n".encode()


def _digest(path: Path) -> str:
    with reading(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
