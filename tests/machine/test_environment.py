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


def test_the_git_commit_and_whether_it_is_changed_are_found(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        who = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
        command = ["git", "-C", str(tmp_path), *who, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    assert capture(tmp_path).git_commit is None
    git("init")
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "-m", "first")
    found = capture(tmp_path)
    assert (found.git_commit, found.git_dirty) == (git("rev-parse", "HEAD"), False)
    (tmp_path / "a").write_text("2")
    assert capture(tmp_path).git_dirty is True
