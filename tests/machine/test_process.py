"""What is set for a whole process, seen in fresh ones; and that a run leaves its own as it was."""

import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import trainlab
from trainlab.machine import process_state
from trainlab.workloads.workload import Workload


def told(code: str) -> str:
    """What a fresh process prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


DENORMALS = """
import torch
from trainlab.machine.process_state import flushes_denormals, prepare_process, process_restored
from trainlab.spec import TrainSpec
torch.set_num_threads(2)
{}
print(flushes_denormals())
"""


def test_a_process_whose_threads_had_started_is_found_out() -> None:
    late = "torch.ones(1 << 20).mul_(2); torch.set_flush_denormal(True)"
    assert told(DENORMALS.format(late)) == "None"


@pytest.mark.slow
def test_denormals_count_as_zero_in_all_threads_when_told_before_they_start() -> None:
    for flush in ("True", "False"):
        assert told(DENORMALS.format(f"torch.set_flush_denormal({flush})")) == flush
    # Restoring the process later does not start threads too early.
    inside = "with process_restored():\n    prepare_process(TrainSpec(threads=2))"
    lines = f"{inside}\n    print(flushes_denormals())"
    assert told(DENORMALS.format(lines)).startswith("True")


FAULTS = """
import resource, torch
from trainlab.machine.process_state import keep_freed_memory
{first}
def faults(count):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(count):
        torch.ones(2 ** 18 * 40)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults(40)
print(faults(10))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library's allocator")
@pytest.mark.slow
def test_kept_memory_is_reused_without_page_faults() -> None:
    # 40 MiB are 10,240 pages, faulted in anew each time they are asked for; kept, not once.
    assert int(told(FAULTS.format(first="keep_freed_memory()"))) < 100
    given_back = int(told(FAULTS.format(first="")))
    if given_back < 100:
        pytest.skip("this build of torch has an allocator of its own, which keeps memory anyhow")
    assert given_back > 10_000


AGE = """
import time
from trainlab.machine.processes import process_age_s
age_s, now_s = process_age_s(), time.monotonic()
print(now_s - age_s)
"""


def test_a_process_began_when_it_was_started() -> None:
    """Within a few ticks, though the system knows the time of its boot to a second only."""
    before_s = time.monotonic()
    began_s = float(told(AGE))
    assert before_s - 0.03 < began_s < time.monotonic()


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="two threads need two CPUs")
def test_a_run_leaves_the_process_as_it_found_it(
    tiny: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def noted(*, keep: bool = True) -> None:
        asked.append(keep)

    monkeypatch.setattr(process_state, "keep_freed_memory", noted)
    monkeypatch.setattr(process_state, "_keeps_memory", False)
    torch.set_default_dtype(torch.float64)
    try:
        trainlab.run(tiny, out=tmp_path / "r", device="cpu", threads=2, epochs=1)
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.get_num_threads() == 1
    assert not process_state.flushes_denormals()
    assert (asked[0], asked[-1]) == (True, False)
