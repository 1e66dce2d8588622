"""That the right thing is timed; how well, on a quiet machine, is for benchmarks/cost.py to say."""

import dataclasses
import sys
import time
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

from training import MakeSetup
from trainlab.measure.timing import measure
from trainlab.spec import CostSpec
from trainlab.workloads.workload import Workload

QUICK = CostSpec(turns_s=0.6, warmup_steps=4, ratio_within=1e-9)


def test_the_first_step_is_told_apart_phase_by_phase(
    make_setup: MakeSetup, tiny: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits_s = iter([0.2])

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        time.sleep(next(waits_s, 0.001))
        monkeypatch.setitem(sys.modules, "made_up_by_a_test", sys)
        return F.cross_entropy(outputs, targets)

    record = measure(make_setup(workload=dataclasses.replace(tiny, loss=loss)), QUICK)
    assert record.cold[0].phases_ms["loss"] > 200
    # What is counted in a phase happened in it.
    first = record.cold[0].in_phases
    assert (first["loss"]["modules_imported"], first["backward"]["modules_imported"]) == (1, 0)
    assert record.cold[0].page_faults == sum(one["page_faults"] for one in first.values())
    assert min(step.phases_ms["loss"] for step in record.settled) < 200
    assert sum(record.cold[0].phases_ms.values()) == record.warmup_ms[0]
    assert len(record.warmup_ms) >= 4
    assert min(record.step_ms) < 200


def test_only_full_batches_are_among_the_steps(make_setup: MakeSetup, tiny: Workload) -> None:
    """The smaller last one of an epoch is timed by itself, after all others."""
    for mode in ("train", "inference"):
        sizes: list[int] = []

        def loss(
            outputs: torch.Tensor, targets: torch.Tensor, sizes: list[int] = sizes
        ) -> torch.Tensor:
            sizes.append(len(targets))
            return F.cross_entropy(outputs, targets)

        spec = CostSpec(mode=mode, turns_s=0.1, warmup_steps=30)
        workload = dataclasses.replace(tiny, loss=loss)
        record = measure(make_setup(workload=workload, batch_size=10), spec)
        assert record.steps_per_epoch == (11 if mode == "train" else 4)
        num_last = len(record.last_ms) + 1
        assert set(sizes[:-num_last]) == {10}
        assert set(sizes[-num_last:]) == {record.num_samples % 10}


def test_inference_updates_nothing(make_setup: MakeSetup) -> None:
    setup = make_setup()
    before = [p.detach().clone() for p in setup.model.parameters()]
    measure(setup, CostSpec(mode="inference", turns_s=0.1))
    assert all(torch.equal(a, b) for a, b in zip(before, setup.model.parameters(), strict=True))
    assert all(p.grad is None for p in setup.model.parameters())


def test_what_a_loader_costs_is_the_phase_of_the_data(
    make_setup: MakeSetup, tiny: Workload
) -> None:
    batch_size = 8

    class Slow(TensorDataset):
        def __getitem__(self, row: int) -> tuple[torch.Tensor, ...]:
            time.sleep(0.004)
            return super().__getitem__(row)

    given = tiny.dataset("auto")
    loader: DataLoader[Any] = DataLoader(
        Slow(given.train.inputs, given.train.targets), 5, shuffle=True
    )
    own = dataclasses.replace(tiny, data=dataclasses.replace(given, train=loader))
    record = measure(make_setup(workload=own, batch_size=batch_size), QUICK)
    assert record.batch_size == batch_size
    assert min(record.phases_ms["data"]) >= 4 * batch_size
    others = (ms for phase, ms in record.phases_ms.items() if phase != "data")
    assert sum(map(min, others)) < 4 * batch_size
