import json
import os
import subprocess
from pathlib import Path

import psutil
import pytest
import torch

from trainlab.machine.environment import capture
from trainlab.machine.host import usable_vcpus
from trainlab.record.study_record import Environment


def test_the_environment_is_what_the_system_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    found = capture(Path.cwd())
    assert found.variables["OMP_NUM_THREADS"] == "3"
    assert found.num_vcpus == os.cpu_count()
    assert found.packages["torch"] == torch.__version__
    assert found.torch_threads == torch.get_num_threads()
    assert found.memory_gib == pytest.approx(psutil.virtual_memory().total / 2**30, abs=0.1)
    assert found.cpu
    assert found.os
    assert Environment.model_validate(json.loads(found.model_dump_json())) == found


def test_usable_vcpus_follow_the_affinity() -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert usable_vcpus() == 1
    finally:
        os.sched_setaffinity(0, before)


class Repository:
    """A git repository in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.git("init")

    def git(self, *words: str) -> str:
        who = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
        who += ["-c", "protocol.file.allow=always"]
        command = ["git", "-C", str(self.folder), *who, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self, **files: str) -> None:
        for name, text in files.items():
            (self.folder / name).write_text(text)
        self.git("add", ".")
        self.git("commit", "-m", "files")

    def is_dirty(self) -> bool | None:
        return capture(self.folder).git_dirty


def test_the_git_commit_and_whether_it_is_changed_are_found(tmp_path: Path) -> None:
    assert capture(tmp_path).git_commit is None
    own = Repository(tmp_path)
    own.commit(a="1", b="1")
    assert capture(tmp_path).git_commit == own.git("rev-parse", "HEAD")
    (tmp_path / "untracked").write_text("1")
    assert own.is_dirty() is False
    (tmp_path / "a").write_text("2")
    assert own.is_dirty() is True
    own.git("add", "a")
    assert own.is_dirty() is True
    own.commit()
    (tmp_path / "b").unlink()
    assert own.is_dirty() is True
