import os

import pytest
import torch

import trainlab
from trainlab.machine import process_state as process
from trainlab.machine.process_state import flushes_denormals, keeps_freed_memory
from trainlab.workloads.workload import Workload


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="two threads need two CPUs")
def test_a_run_leaves_the_process_as_it_found_it(tiny: Workload, tmp_path, monkeypatch) -> None:
    released = []
    monkeypatch.setattr(process, "release_freed_memory", lambda: released.append(True))
    before = keeps_freed_memory()
    torch.set_default_dtype(torch.float64)
    try:
        trainlab.run(tiny, out=tmp_path / "r", device="cpu", threads=2, epochs=1)
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.get_num_threads() == 1
    assert not flushes_denormals()
    assert bool(released) is (keeps_freed_memory() and not before)
