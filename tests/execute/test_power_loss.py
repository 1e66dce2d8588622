"""The run folder as it would be after a power loss at every point of a run: always readable, and what has
ended is whole."""

import os
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import trainlab
from trainlab.analysis.evidence import gather
from trainlab.record.run_folder import RunFolder, check_run
from trainlab.workloads.workload import Workload

Files = dict[str, bytes]
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@dataclass
class Disk:
    """What lies in a folder before every operation on it, and what of that is known to be on the disk."""

    folder: Path
    states: list[tuple[Files, Files]] = field(default_factory=list)
    """All files as a reader sees them; and those that were synced, as they were then."""
    _synced: Files = field(default_factory=dict)
    _is_looking: bool = False

    def audit(self, event: str, args: tuple[Any, ...]) -> None:
        """Called by Python before it opens, renames, makes or removes a file."""
        if self._is_looking or event not in ("open", "os.rename", "os.mkdir", "os.remove"):
            return
        path = str(args[0])
        if not path.startswith(str(self.folder)) or (event == "open" and not args[2] & WRITES):
            return
        self.look()
        if event == "os.rename":
            self._synced[str(args[1])] = self._synced.pop(path, b"")

    def synced(self, descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.is_file():
            self._is_looking = True
            self._synced[str(path)] = path.read_bytes()
            self._is_looking = False

    def look(self) -> None:
        self._is_looking = True
        files = (path for path in sorted(self.folder.rglob("*")) if path.is_file())
        self.states.append(({str(path): path.read_bytes() for path in files}, dict(self._synced)))
        self._is_looking = False


def after_power_loss(disk: Disk) -> Iterator[Files]:
    """For each point: all that was written is there; only what was synced is; and, of lines that were being
    appended, a part."""
    draw, seen = random.Random(1), set()
    for files, synced in disk.states:
        least = {path: synced.get(path, b"") for path in files}
        some = {
            path: content[: draw.randint(len(least[path]), len(content))]
            if content.startswith(least[path])
            else content
            for path, content in files.items()
        }
        for world in (files, least, some):
            key = tuple(world.items())
            if key not in seen:
                seen.add(key)
                yield world


def test_after_a_power_loss_at_any_point_the_run_is_readable_and_what_ended_is_whole(
    tiny: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, fsync = Disk(tmp_path / "r"), os.fsync

    def noted_fsync(descriptor: int) -> None:
        fsync(descriptor)
        disk.synced(descriptor)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    is_over = False
    sys.addaudithook(lambda event, args: None if is_over else disk.audit(event, args))
    trainlab.run(tiny, seeds=2, out=tmp_path / "r", device="cpu", tensorboard=False)
    disk.look()
    is_over = True

    last, _ = disk.states[-1]
    num_read = num_ended = 0
    for number, world in enumerate(after_power_loss(disk)):
        copy = tmp_path / "worlds" / str(number)
        for path, content in world.items():
            target = copy / Path(path).relative_to(tmp_path / "r")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        if not (copy / "study.json").exists():
            continue  # the trials were being planned, and nobody was told of the run
        check_run(copy)
        evidence = gather(RunFolder(copy))
        num_read += 1
        assert evidence.damaged == ()
        for trial in evidence.trials:
            if trial.state == "done":
                num_ended += 1
                name = f"trials/{trial.id}/curve.jsonl"
                assert (copy / name).read_bytes() == last[str(tmp_path / "r" / name)]
    assert num_read > 20
    assert num_ended > 10
