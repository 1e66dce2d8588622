"""Every kind of model in the zoo is trained, probed, profiled and reported."""

import math
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from zoo import ZOO, Specimen
from zoo.generative import Temperature

import trainlab
from training import ON_A_GPU
from trainlab.errors import WorkloadError
from trainlab.execute import worker
from trainlab.measure.limits import measured_limits
from trainlab.record.trial_record import TrialRecord
from trainlab.spec.probe import probe_of

BRIEFEST = {"processes": 1, "budget_s": 0.1, "warmup_steps": 1, "active_steps": 1}
BRIEFEST |= {"trace_mb": 0, "weights": "untrained"}
PAGE = Path(__file__).parents[2] / "docs/what-works.md"
ROWS = {
    row[0]: row[1:]
    for row in re.findall(r"^\| `(\S+)` \| (.*) \| (.*) \| (.*) \| .* \|$", PAGE.read_text(), re.M)
}
"""Kind to what it has, its fields and its engine."""


@pytest.fixture(autouse=True)
def _limits_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine's limits are measured again for every trial, and no model changes them."""
    monkeypatch.setattr(worker, "measured_limits", limits)


limits = cache(measured_limits)


def asked_of(kind: Specimen) -> dict[str, Any]:
    """The settings of the zoo, those of the kind above them."""
    settings = {"epochs": 1, "batch_size": 8, "test_batch_size": 16, "optimizer": "adam"}
    settings |= {"device": "cpu", "log_every_steps": 1, **kind.settings}
    return {name: value for name, value in settings.items() if name not in kind.vary}


def run_of(kind: Specimen, path: Path, **settings: Any) -> tuple[trainlab.Run, list[TrialRecord]]:
    """A study of it in which everything has ended well, and the trials that learned."""
    run = trainlab.run(
        kind.workload,
        vary=kind.vary,
        seeds=2,
        profile=BRIEFEST,
        probes=tuple(map(probe_of, kind.probes)),
        on="inline",
        out=path / "r",
        **asked_of(kind) | settings,
    )
    trials = run.trials()
    assert {trial.id: trial.error for trial in trials if trial.state != "done"} == {}
    learned = [trial for trial in trials if trial.kind == "learn"]
    assert len(learned) == 4
    for trial in learned:
        assert all(math.isfinite(value) for value in trial.final.values()), trial.final
    watched = {row.split("@")[0] for row in run.probes()["probe"]} if kind.probes else set()
    assert watched == set(kind.probes)
    return run, learned


SLOW = ("gpt", "graph-convolution", "early-exit", "compiled-model", "lbfgs", "vae")


def marked(name: str) -> Any:
    """A few kinds are in `make test`, a few more among the slower tests, all in `make test-full`."""
    if ZOO[name].is_fast:
        return name
    return pytest.param(name, marks=pytest.mark.slow if name in SLOW else pytest.mark.full)


@pytest.mark.parametrize("name", [*map(marked, ZOO)])
def test_a_kind_of_model_is_trained_probed_profiled_and_reported(name: str, tmp_path: Path) -> None:
    kind = ZOO[name]
    run, learned = run_of(kind, tmp_path)
    for trial in learned:
        assert "test/loss" in trial.final
        assert trial.resolved["engine"] == ROWS[name][2].split(";")[0]
    if kind.learns:
        assert falls(run)
    measured = [part for part in run.evidence().measured if not part.trial.again]
    assert len(measured) == 2
    assert all(part.operators and part.layers and part.memory for part in measured)
    page = run.report().read_text()
    assert kind.workload.name in page


@pytest.mark.parametrize("name", [pytest.param(name, marks=ON_A_GPU) for name in ZOO])
def test_a_kind_of_model_on_a_gpu(name: str, tmp_path: Path) -> None:
    _, learned = run_of(ZOO[name], tmp_path, device="cuda")
    print(name, *sorted({str(trial.resolved["engine"]) for trial in learned}))


def test_the_page_of_what_works_tells_the_fields_of_every_kind() -> None:
    assert list(ROWS) == list(ZOO)
    for name, kind in ZOO.items():
        fields = ("loss", "step", "update", "evaluate", "optimizer")
        given = [f"`{field}`" for field in fields if getattr(kind.workload, field) is not None]
        assert ROWS[name][1] == ", ".join(given)


def test_a_loss_with_a_parameter_is_refused_with_the_way_that_works() -> None:
    problem = r"loss: has parameters of its own, log_scale, which nothing would train; keep them"
    with pytest.raises(WorkloadError, match=problem):
        replace(ZOO["contrastive"].workload, step=None, loss=Temperature())


def test_a_probe_of_complex_weights_is_refused_by_name(tmp_path: Path) -> None:
    kind, probe = ZOO["complex-weights"], probe_of("filters:grad:norm")
    problem = "probe filters:grad:norm@epoch: filters is complex, which cannot be probed"
    with pytest.warns(trainlab.TrialsFailedWarning, match=problem):
        trainlab.run(kind.workload, probes=(probe,), out=tmp_path / "r", **asked_of(kind))


def falls(run: trainlab.Run) -> bool:
    """Whether the loss of the last quarter of updates lies below that of the first, over all trials."""
    first = last = 0.0
    for trial in run.trials():
        if trial.kind == "learn":
            lines = run.trial(trial.id).curve()
            losses = [line["train/loss"] for line in lines if line["kind"] == "step"]
            quarter = -(-len(losses) // 4)
            first += sum(losses[:quarter]) / quarter
            last += sum(losses[-quarter:]) / quarter
    return last < first
