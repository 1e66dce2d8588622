"""Energy, by the counter of a driver that is made up, and on a GPU by its own."""

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import trainlab
from own_loop import OwnLoop
from training import MakeSetup
from trainlab.measure.energy_meter import MOST_S, WINDOW_S, EnergyMeter, EnergyWindow
from trainlab.measure.timing import measure
from trainlab.record.cost_record import EnergyRecord
from trainlab.spec import CostSpec

CPU = torch.device("cpu")
WATTS, TICK_S = 250.0, 0.08


def meter(clock: Callable[[], float], watts: float = WATTS) -> EnergyMeter:
    """Of a driver that counts so many watts, and moves its counter on now and then."""
    count = lambda handle: int(1e3 * watts * (clock() // TICK_S * TICK_S))  # noqa: E731
    return EnergyMeter(0, SimpleNamespace(nvmlDeviceGetTotalEnergyConsumption=count))


def window(step_s: float, watts: float = WATTS) -> EnergyRecord | None:
    """Of steps that each take so long."""
    now_s = 7.03
    made = EnergyWindow(meter(lambda: now_s, watts), CPU, lambda: now_s)
    begun_s = now_s
    while True:
        now_s += step_s
        if made.step_ended():
            break
    assert now_s - begun_s <= MOST_S + step_s
    return made.record()


@pytest.mark.parametrize("step_s", [0.0001, 0.003, 0.07])
def test_the_energy_of_a_step_is_its_time_times_the_power(step_s: float) -> None:
    found = window(step_s)
    assert found is not None
    assert found.wall_s >= WINDOW_S
    # A step of 70 ms may end nearly a move of the counter after it.
    off = 0.012 if step_s < TICK_S / 10 else TICK_S / WINDOW_S
    assert found.joules / found.num_steps == pytest.approx(WATTS * step_s, rel=off)
    assert found.joules / found.wall_s == pytest.approx(WATTS, rel=off)


def test_where_the_counter_stands_still_or_there_is_none_nothing_is_told() -> None:
    assert window(0.01, watts=0.0) is None
    assert window(2.5) is None
    assert EnergyMeter.open(CPU) is None


def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = classmethod(lambda cls, device: meter(time.perf_counter))
    monkeypatch.setattr(EnergyMeter, "open", opened)


def test_a_cost_trial_counts_energy_where_it_can_be_counted(
    make_setup: MakeSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = CostSpec(budget_s=0.1, warmup_steps=2)
    assert measure(make_setup(), spec).energy is None
    counted(monkeypatch)
    energy = measure(make_setup(), spec).energy
    assert energy is not None
    assert energy.joules / energy.wall_s == pytest.approx(WATTS, rel=0.3)


def test_a_watched_run_counts_energy_from_epoch_to_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted(monkeypatch)
    with trainlab.watch(out=tmp_path / "run") as lab:
        OwnLoop().train(epochs=3, told=lambda name, value: time.sleep(TICK_S / 4))
    record = lab.run.trial("learn-seed1").watched.read()
    # From the first update of each epoch on, and at the end, of 64 samples each.
    assert [samples for samples, _, _ in record.energy] == [0, 64, 128, 176]
    seconds, joules = (list(one) for one in zip(*(mark[1:] for mark in record.energy), strict=True))
    assert seconds == sorted(seconds)
    assert joules == sorted(joules)
    assert joules[-1] == pytest.approx(WATTS * seconds[-1], abs=WATTS * TICK_S)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_a_gpu_that_computes_takes_more_than_one_that_waits() -> None:
    device = torch.device("cuda")
    counter = EnergyMeter.open(device)
    if counter is None:
        pytest.skip("this GPU does not count energy")
    a = torch.randn(4096, 4096, device=device)
    works: dict[str, Callable[[], Any]] = {"busy": lambda: a @ a, "idle": lambda: time.sleep(0.01)}
    watts: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(3):
        for name, work in works.items():
            steps = EnergyWindow(counter, device)
            work()
            while not steps.step_ended():
                work()
            found = steps.record()
            assert found is not None
            watts[name].append(found.joules / found.wall_s)
            print(name, found)
    assert max(watts["busy"]) < 1.15 * min(watts["busy"])
    assert min(watts["busy"]) > 1.3 * max(watts["idle"])
