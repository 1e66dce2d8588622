"""A disk that is really full: a small one, mounted where only the test sees it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trainlab.lab.run_progress import RunProgress
from trainlab.record.run_folder import RunFolder

MOUNTED = ["unshare", "--map-root-user", "--mount"]

FILLING = """
_loss = tiny.loss
def filling(outputs, targets):
    with open("small/filler", "ab", buffering=0) as stream:
        try:
            while stream.write(bytes(4096)):
                pass
        except OSError:
            pass
    return _loss(outputs, targets)
import dataclasses
tiny = dataclasses.replace(tiny, loss=filling)
"""


@pytest.mark.slow
def test_a_trial_that_fills_the_disk_ends_the_run_in_one_line(
    tiny_file: Path, tmp_path: Path
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(small)]
    may_mount = shutil.which("unshare") and not subprocess.run([*MOUNTED, *mount]).returncode
    if not may_mount:
        pytest.skip("this user may not mount a disk of its own")
    tiny_file.write_text(tiny_file.read_text() + FILLING)
    run = f"{sys.executable} -m trainlab run {tiny_file}:tiny --seeds 2 --device cpu"
    script = (
        f"{' '.join(mount)} && {run} --no-tensorboard --out small/r\n"
        "code=$?; rm small/filler; cp -r small/r kept; exit $code"
    )
    done = subprocess.run(
        [*MOUNTED, "sh", "-c", script], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode in (1, 2), done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert "No space left on device; free some space" in done.stdout + done.stderr
    # Nobody could write that a trial has ended; that nobody runs it any more can be seen.
    states = RunProgress(RunFolder(tmp_path / "kept")).counts()
    assert states["running"] == 0
    assert states["interrupted"] + states["failed"] > 0
    assert not list((tmp_path / "kept").rglob(".*"))
