import subprocess
import sys

import pytest

CHECK = """
import torch
from trainlab.machine.process_state import flushes_denormals
torch.set_num_threads(2)
{before}
torch.set_flush_denormal({flush})
print(flushes_denormals())
"""


def told(flush: bool, before: str = "") -> str:
    script = CHECK.format(before=before, flush=flush)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("flush", [True, False])
@pytest.mark.slow
def test_all_threads_do_as_told_when_told_before_they_start(flush: bool) -> None:
    assert told(flush) == str(flush)


def test_a_process_whose_threads_had_started_is_found_out() -> None:
    assert told(True, "torch.ones(1 << 20).mul_(2)") == "None"


def test_restoring_the_process_later_does_not_start_threads_too_early() -> None:
    script = """
from trainlab.machine.process_state import flushes_denormals
from trainlab.machine.process_state import prepare_process, process_restored
from trainlab.spec import TrainSpec
with process_restored():
    prepare_process(TrainSpec(threads=2))
    print(flushes_denormals())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "True", done.stderr
