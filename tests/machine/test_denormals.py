"""Denormals count as zero in all of torch's threads, where they were told before they started."""

import subprocess
import sys

import pytest

SCRIPT = """
import torch
from trainlab.machine.process_state import flushes_denormals, prepare_process, process_restored
from trainlab.spec import TrainSpec
torch.set_num_threads(2)
{}
print(flushes_denormals())
"""


def told(lines: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(lines)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_process_whose_threads_had_started_is_found_out() -> None:
    assert told("torch.ones(1 << 20).mul_(2); torch.set_flush_denormal(True)") == "None"


@pytest.mark.slow
def test_all_threads_do_as_told_when_told_before_they_start() -> None:
    assert told("torch.set_flush_denormal(True)") == "True"
    assert told("torch.set_flush_denormal(False)") == "False"
    # Restoring the process later does not start threads too early.
    inside = "with process_restored():\n    prepare_process(TrainSpec(threads=2))"
    assert told(f"{inside}\n    print(flushes_denormals())").startswith("True")
