"""Every kind of model in the zoo is trained, probed and profiled on a GPU."""

from functools import cache
from pathlib import Path

import pytest
import torch
from test_zoo import run_of
from zoo import ZOO

from trainlab.execute import worker
from trainlab.measure.limits import measured_limits

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]
limits = cache(measured_limits)


@pytest.mark.parametrize("name", ZOO)
def test_a_kind_of_model_on_a_gpu(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "measured_limits", limits)
    _, learned = run_of(ZOO[name], tmp_path, device="cuda")
    print(name, *sorted({str(trial.resolved["engine"]) for trial in learned}))
