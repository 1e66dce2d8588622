"""Standard output that cannot be written, and output of others that must not mix with it."""

import subprocess
import sys
from pathlib import Path

import pytest

from fabricate import Fabricated, made_study


@pytest.mark.parametrize("words", [["--help"], ["studies"]])
def test_a_full_disk_behind_standard_output_is_one_line(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "trainlab", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.stderr == (
        "trainlab: standard output: cannot be written: No space left on device\n"
    )
    assert done.returncode == 2


def test_what_children_print_does_not_mix_with_what_is_printed_for_programs() -> None:
    code = """
import os
from trainlab.cli.output import output_for_programs
with output_for_programs():
    print("from Python")
    os.system("echo from a child")
print("{}")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "{}\n"
    assert sorted(done.stderr.split("\n")) == ["", "from Python", "from a child"]


def test_a_reader_that_has_gone_is_no_fault() -> None:
    command = f"{sys.executable} -P -m trainlab studies mnist-lab | head -c 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stderr == ""


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_nobody_who_reads(closed: str, tmp_path: Path) -> None:
    Fabricated().write(tmp_path / "r", made_study(seeds=1))
    words = f"{sys.executable} -P -m trainlab show r {closed}"
    done = subprocess.run(["sh", "-c", words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
