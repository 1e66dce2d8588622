"""That the right thing is timed; how well, on a quiet machine, is for benchmarks/cost.py to say."""

import dataclasses
import mmap
import statistics
import time
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from training import MakeSetup
from trainlab import Split
from trainlab.analysis.cost import round_ratios
from trainlab.measure import steps as stopwatch_module
from trainlab.measure import timing
from trainlab.measure.steps import CudaStopwatch, HostStopwatch
from trainlab.measure.timing import StepTimer, measure
from trainlab.spec import CostSpec
from trainlab.workloads.workload import Workload

QUICK = CostSpec(budget_s=0.6, warmup_steps=4, tight=1e-9)


def taking(tiny: Workload, seconds: float, first: float = 0.0, spin: bool = False) -> Workload:
    """The tiny workload with a loss that sleeps or spins for a known time, longer at its first call."""
    calls = iter([first])

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        end = time.perf_counter() + seconds + next(calls, 0.0)
        if not spin:
            time.sleep(max(0.0, end - time.perf_counter()))
        while time.perf_counter() < end:
            pass
        return F.cross_entropy(outputs, targets)

    return dataclasses.replace(tiny, loss=loss)


@pytest.mark.parametrize("spin", [True, False], ids=["spins", "sleeps"])
@pytest.mark.slow
def test_a_step_that_takes_a_known_time_is_measured_so(
    make_setup: MakeSetup, tiny: Workload, spin: bool
) -> None:
    spec = QUICK.model_copy(update={"budget_s": 3.0})
    record = measure(make_setup(workload=taking(tiny, 0.1, spin=spin)), spec)
    # The least of them: other programs only ever add. The tiny model's own work is under 1 ms.
    assert min(record.step_ms) >= 100
    assert min(record.step_ms) == pytest.approx(100, rel=0.02)
    assert min(record.phases_ms["loss"]) == pytest.approx(100, rel=0.02)


def test_the_first_step_is_told_apart_phase_by_phase(make_setup: MakeSetup, tiny: Workload) -> None:
    record = measure(make_setup(workload=taking(tiny, 0.001, first=0.2)), QUICK)
    assert record.cold[0].phases_ms["loss"] > 200
    assert all(step.phases_ms["loss"] < 100 for step in record.settled)
    assert sum(record.cold[0].phases_ms.values()) == record.warmup_ms[0]


def test_what_the_first_step_loads_and_touches_is_counted(
    make_setup: MakeSetup, tiny: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "loaded_by_the_first_step.py").write_text("")
    kept: list[mmap.mmap] = []

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        import_module("loaded_by_the_first_step")
        if not kept:
            # Straight from the system: the allocator may have pages that were touched before.
            kept.append(mmap.mmap(-1, 64 << 20))
            kept[0].write(bytes(64 << 20))
        return F.cross_entropy(outputs, targets)

    record = measure(make_setup(workload=dataclasses.replace(tiny, loss=loss)), QUICK)
    first = record.cold[0]
    assert first.modules_imported >= 1
    # 64 MiB in pages of 4 KiB, or fewer where the system hands out larger ones.
    assert first.page_faults is not None
    assert first.page_faults >= 32
    assert all(step.modules_imported == 0 for step in record.settled)


def test_warm_up_is_recorded_and_kept_apart(make_setup: MakeSetup, tiny: Workload) -> None:
    record = measure(make_setup(workload=taking(tiny, 0.001, first=0.2)), QUICK)
    assert len(record.warmup_ms) >= 4
    assert record.warmup_ms[0] > 200
    assert max(record.step_ms) < 100


def test_steps_are_warmed_up_until_they_no_longer_get_faster(
    make_setup: MakeSetup, tiny: Workload
) -> None:
    """They fall from 60 to 1 ms: after four of them most of that would be measured."""
    left = [0.06 * 0.93 ** (59 - number) for number in range(60)]

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        time.sleep(left.pop() if left else 0.001)
        return F.cross_entropy(outputs, targets)

    record = measure(make_setup(workload=dataclasses.replace(tiny, loss=loss)), QUICK)
    assert len(record.warmup_ms) > 25
    assert statistics.median(record.step_ms) < 15


def test_steps_that_never_settle_are_not_warmed_up_for_ever(
    make_setup: MakeSetup, tiny: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "WARMUP_S", 0.3)
    seconds = (0.05 * 0.99**number for number in count())

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        time.sleep(next(seconds))
        return F.cross_entropy(outputs, targets)

    record = measure(make_setup(workload=dataclasses.replace(tiny, loss=loss)), QUICK)
    assert 4 <= len(record.warmup_ms) < 30


def test_the_first_steps_of_a_turn_are_recorded_apart(
    make_setup: MakeSetup, tiny: Workload
) -> None:
    """Those after a pause take longer here, as they do where another process has filled the caches."""
    last = [time.perf_counter()]

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if time.perf_counter() - last[0] > 0.1:
            time.sleep(0.05)
        time.sleep(0.004)
        last[0] = time.perf_counter()
        return F.cross_entropy(outputs, targets)

    timer = StepTimer(make_setup(workload=dataclasses.replace(tiny, loss=loss)), QUICK)
    timer.warm_up()
    for number in range(1, 6):
        time.sleep(0.15)
        timer.turn(number)
    record = timer.finish("bench", "budget")
    assert all(turn.lead_ms[0] > 50 for turn in record.turns)
    assert max(record.step_ms) < 50
    assert [turn.round for turn in record.turns] == [1, 2, 3, 4, 5]


@pytest.mark.slow
def test_the_smaller_last_batch_of_an_epoch_is_measured(
    make_setup: MakeSetup, tiny: Workload
) -> None:
    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        time.sleep(0.002 * len(targets))
        return F.cross_entropy(outputs, targets)

    workload = dataclasses.replace(tiny, loss=loss)
    for mode in ("train", "inference"):
        spec = QUICK.model_copy(update={"mode": mode})
        record = measure(make_setup(workload=workload, batch_size=10), spec)
        rest = record.num_samples % 10
        assert rest
        assert min(record.last_ms) == pytest.approx(2 * rest, rel=0.5)
        whole = measure(make_setup(workload=workload, batch_size=record.num_samples), spec)
        assert whole.last_ms == []


@pytest.mark.parametrize("mode", ["train", "inference"])
def test_phases_add_up_to_the_step(mode: str, make_setup: MakeSetup, tiny: Workload) -> None:
    spec = QUICK.model_copy(update={"mode": mode})
    record = measure(make_setup(workload=taking(tiny, 0.004)), spec)
    steps = [sum(parts) for parts in zip(*record.phases_ms.values(), strict=True)]
    # The least of each: what else runs only ever adds.
    assert min(steps) == pytest.approx(min(record.step_ms), rel=0.2)
    expected = {"prepare", "forward", "loss", "other"}
    if mode == "train":
        expected |= {"data", "transfer", "zero_grad", "backward", "optimizer"}
    assert set(record.phases_ms) == expected


def test_a_tight_interval_ends_the_measurement_and_the_budget_does_otherwise(
    make_setup: MakeSetup, tiny: Workload
) -> None:
    steady = taking(tiny, 0.005)
    easy = CostSpec(budget_s=20, warmup_steps=1, tight=0.9)
    start = time.monotonic()
    assert measure(make_setup(workload=steady), easy).stopped == "tight"
    assert time.monotonic() - start < 10
    assert measure(make_setup(workload=steady), QUICK).stopped == "budget"


def test_only_full_batches_are_among_the_steps(make_setup: MakeSetup, tiny: Workload) -> None:
    """The smaller last one of an epoch is timed by itself, after all others."""
    for mode in ("train", "inference"):
        sizes: list[int] = []

        def loss(
            outputs: torch.Tensor, targets: torch.Tensor, sizes: list[int] = sizes
        ) -> torch.Tensor:
            sizes.append(len(targets))
            return F.cross_entropy(outputs, targets)

        spec = CostSpec(mode=mode, budget_s=0.1, warmup_steps=30)
        workload = dataclasses.replace(tiny, loss=loss)
        record = measure(make_setup(workload=workload, batch_size=10), spec)
        assert record.steps_per_epoch == (11 if mode == "train" else 4)
        num_last = len(record.last_ms) + 1
        assert set(sizes[:-num_last]) == {10}
        assert set(sizes[-num_last:]) == {record.num_samples % 10}


def test_inference_updates_nothing(make_setup: MakeSetup) -> None:
    setup = make_setup()
    before = [p.detach().clone() for p in setup.model.parameters()]
    measure(setup, CostSpec(mode="inference", budget_s=0.1))
    assert all(torch.equal(a, b) for a, b in zip(before, setup.model.parameters(), strict=True))
    assert all(p.grad is None for p in setup.model.parameters())


def test_a_stopwatch_gives_the_time_between_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    nanoseconds = iter([5_000_000, 25_000_000, 25_300_000])
    monkeypatch.setattr(stopwatch_module.time, "perf_counter_ns", lambda: next(nanoseconds))
    watch = HostStopwatch()
    for label in ("start", "a", "b"):
        watch.mark(label)
    assert watch.laps_ms() == [("a", 20.0), ("b", 0.3)]
    assert watch.laps_ms() == []


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_a_gpu_step_is_timed_when_it_is_done_not_when_it_is_queued() -> None:
    big = torch.randn(8192, 8192, device="cuda")
    big @ big
    torch.cuda.synchronize()
    watch, queued = CudaStopwatch(), HostStopwatch()
    for stopwatch in (watch, queued):
        stopwatch.mark("start")
    for _ in range(20):
        big @ big
    for stopwatch in (queued, watch):
        stopwatch.mark("done")
    host_ms, device_ms = queued.laps_ms()[0][1], watch.laps_ms()[0][1]
    start = time.perf_counter()
    for _ in range(20):
        big @ big
    torch.cuda.synchronize()
    true_ms = (time.perf_counter() - start) * 1e3
    assert device_ms == pytest.approx(true_ms, rel=0.1)
    assert host_ms < true_ms / 5


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_phases_add_up_to_the_step_on_a_gpu(make_setup: MakeSetup) -> None:
    from trainlab.workloads.find import find_workload

    setup = make_setup(workload=find_workload("mnist-cnn"), device="cuda", data="bundled")
    record = measure(setup, CostSpec(budget_s=6, tight=1e-9))
    # Pairs of neighbouring rounds; benchmarks/cost.py holds them to 3%.
    assert statistics.median(round_ratios(record)) == pytest.approx(1, abs=0.1)


class Slow(TorchDataset[tuple[torch.Tensor, torch.Tensor]]):
    """Fetching a sample takes 4 ms."""

    def __init__(self, split: Split) -> None:
        self._split = split

    def __len__(self) -> int:
        return len(self._split)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, torch.Tensor]:
        time.sleep(0.004)
        return self._split.inputs[row], self._split.targets[row]


@pytest.mark.parametrize("batch_size", [2, 8])
def test_what_a_loader_costs_is_the_phase_of_the_data(
    batch_size: int, make_setup: MakeSetup, tiny: Workload
) -> None:
    given = tiny.dataset("auto")
    loader: DataLoader[Any] = DataLoader(Slow(given.train), 5, shuffle=True)
    own = dataclasses.replace(tiny, data=dataclasses.replace(given, train=loader))
    record = measure(make_setup(workload=own, batch_size=batch_size), QUICK)
    assert record.batch_size == batch_size
    assert min(record.phases_ms["data"]) >= 4 * batch_size
    others = (ms for phase, ms in record.phases_ms.items() if phase != "data")
    assert sum(map(min, others)) < 4 * batch_size
