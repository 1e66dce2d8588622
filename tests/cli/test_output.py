"""Standard output: what cannot be written, what others print, and numbers in JSON."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from fabricate import Fabricated, made_study
from trainlab.cli.output import print_json


def test_a_full_disk_behind_standard_output_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "trainlab", "studies"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    told = "trainlab: standard output: cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (2, told)


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


def test_a_reader_that_has_gone_is_no_fault(tmp_path: Path) -> None:
    Fabricated().write(tmp_path / "r", made_study(seeds=1))
    words = f"{sys.executable} -P -m trainlab show r | head -c 1"
    done = subprocess.run(["bash", "-c", words], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_numbers_that_json_cannot_hold_are_null(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": math.inf, "b": [math.nan, 1.5, (-math.inf, "x")], "c": {"d": 2, "e": None}})
    told = {"a": None, "b": [None, 1.5, [None, "x"]], "c": {"d": 2, "e": None}}
    assert json.loads(capsys.readouterr().out) == told
