"""Digests of a run's raw records, in the form that `sha256sum` writes them; which records are damaged."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trainlab.errors import RecordError
from trainlab.record.files import COPY_AGAIN, SEAL, WAS_CHANGED, read_bytes, sha256_of
from trainlab.record.folder import RunFolder, TrialFolder

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


@dataclass(frozen=True)
class Verification:
    """Whether the records of a run are as they were written."""

    num_files: int
    num_unproven: int
    """Readable, but without a digest: an earlier version wrote them, or their trial has not ended."""
    damaged: tuple[str, ...]
    """A line for each file that is missing, not readable or not as it was written."""


def verify(run: RunFolder) -> Verification:
    """Reads every record of a run that reports are written from."""
    num_files = num_unproven = 0
    damaged: list[str] = []
    for path, digest, read in _records(run):
        num_files += 1
        try:
            content = read_bytes(path)
            if digest is not None and hashlib.sha256(content).hexdigest() != digest:
                raise RecordError(f"{path}: {WAS_CHANGED}; {COPY_AGAIN}")
            read()
        except RecordError as error:
            damaged.append(str(error))
        else:
            num_unproven += digest is None and not SEAL.search(content)
    return Verification(num_files, num_unproven, tuple(damaged))


Recorded = tuple[Path, str | None, Callable[[], object]]
"""A file, its digest where another record holds it, and what reads it."""


def _records(run: RunFolder) -> Iterator[Recorded]:
    yield run.study_file, None, run.study
    machines = run.environment_files()
    for file in machines.values():
        yield file.path, None, file.read
    try:
        planned = run.study().trials
    except RecordError:
        planned = ()
    for name in sorted(_machines_of(run, planned) - machines.keys()):
        path = run.environments_folder / f"{name}.json"
        yield path, None, lambda: None
    found = (path.name for path in run.trials_folder.glob("*") if path.is_dir())
    for trial_id in dict.fromkeys((*planned, *sorted(found))):
        yield from _trial_records(run.trial(trial_id))


def _machines_of(run: RunFolder, planned: Iterable[str]) -> set[str]:
    """The machines that trials say they ran on."""
    found: set[str] = set()
    for trial_id in planned:
        with suppress(RecordError):
            if (name := run.trial(trial_id).read().environment) is not None:
                found.add(name)
    return found


def _trial_records(files: TrialFolder) -> Iterator[Recorded]:
    """trial.json, then those that it lists or that are there."""
    yield files.trial_file, None, files.read
    try:
        digests = files.read().files
    except RecordError:
        digests = {}
    for path, read in files.readers().items():
        if path.name in digests or path.exists():
            yield path, digests.get(path.name), read


def run_digests(run: RunFolder) -> Digests:
    """Reads every raw record of a run."""
    paths = [
        run.study_file,
        *run.path.glob("environment.json"),
        *run.environments_folder.glob("*.json"),
    ]
    paths += [p for p in run.trials_folder.glob("*/*") if p.suffix in (".json", ".jsonl")]
    listed = {path.relative_to(run.path).as_posix(): sha256_of(path) for path in paths}
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
