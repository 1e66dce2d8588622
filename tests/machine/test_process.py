import os
from pathlib import Path

import pytest
import torch

import trainlab
from trainlab.machine import process_state
from trainlab.workloads.workload import Workload


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
    assert asked[0]
    assert not asked[-1]
