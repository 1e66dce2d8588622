"""The two labs on full data: what their published figures say must come out. Minutes, not seconds."""

import os
from itertools import pairwise
from pathlib import Path

import pytest
import torch

import trainlab
from trainlab.data.fetch import OFFLINE_VARIABLE
from trainlab.spec.probe import probe_of

SEEDS = (1, 2, 3)
PROBE = "relu:grad_input:sq_sum"


@pytest.fixture(autouse=True)
def _online(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(OFFLINE_VARIABLE, raising=False)
    torch.set_num_threads(os.cpu_count() or 1)  # these run alone


@pytest.mark.full
@pytest.mark.parametrize("seed", SEEDS)
def test_mnist_cnn_reaches_97_5_per_cent_after_one_epoch(seed: int, tmp_path: Path) -> None:
    folder = trainlab.run("mnist-cnn", seeds=[seed], out=tmp_path / "r", data="full", epochs=1)
    (trial,) = folder.trials()
    print(f"\nmnist-cnn, batch 64, seed {seed}: {trial.final}, {trial.total_s:.1f} s")
    assert trial.final["test/accuracy"] is not None
    assert trial.final["test/accuracy"] >= 0.975


@pytest.mark.full
@pytest.mark.parametrize("seed", SEEDS)
def test_fashion_mlp_reproduces_the_published_fifth_epoch(seed: int, tmp_path: Path) -> None:
    folder = trainlab.run("fashion-mlp", seeds=[seed], out=tmp_path / "r", data="full")
    (trial,) = folder.trials()
    print(f"\nfashion-mlp, base, seed {seed}: {trial.final}, {trial.total_s:.1f} s")
    assert trial.epochs_done == 5
    assert 0.290 <= (trial.final["train/loss"] or 0) <= 0.306
    assert 0.855 <= (trial.final["test/accuracy"] or 0) <= 0.885


@pytest.mark.full
def test_the_gradient_at_the_relu_falls_from_epoch_to_epoch_as_published(tmp_path: Path) -> None:
    probes = (probe_of(PROBE),)
    run = trainlab.run("fashion-mlp", seeds=8, out=tmp_path / "r", data="full", probes=probes)
    curves = [series.tolist() for _, series in run.probes().groupby("seed")["value"]]
    fall = sum(all(after < before for before, after in pairwise(curve)) for curve in curves)
    print(f"\nfashion-mlp, {PROBE}: falls at every epoch in {fall} of {len(curves)} seeds")
    assert [len(curve) for curve in curves] == [5] * 8
    assert fall >= 7
