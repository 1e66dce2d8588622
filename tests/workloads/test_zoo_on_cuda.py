"""Every kind of model in the zoo is trained, probed and profiled on a GPU."""

import math
from functools import cache
from pathlib import Path

import pytest
import torch
from test_zoo import BRIEFEST, asked_of
from zoo import ZOO

import trainlab
from trainlab.execute import worker
from trainlab.measure.limits import measured_limits
from trainlab.spec.probe import probe_of

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
    kind = ZOO[name]
    run = trainlab.run(
        kind.workload,
        vary=kind.vary,
        seeds=2,
        profile=BRIEFEST,
        probes=tuple(map(probe_of, kind.probes)),
        on="inline",
        out=tmp_path / "r",
        **asked_of(kind) | {"device": "cuda"},
    )
    trials = run.trials()
    assert {trial.id: trial.error for trial in trials if trial.state != "done"} == {}
    learned = [trial for trial in trials if trial.kind == "learn"]
    print(name, *sorted({str(trial.resolved["engine"]) for trial in learned}))
    for trial in learned:
        assert all(math.isfinite(value) for value in trial.final.values()), trial.final
    watched = {row.split("@")[0] for row in run.probes()["probe"]} if kind.probes else set()
    assert watched == set(kind.probes)
