"""What must hold on a GPU as well; skipped where there is none."""

from collections.abc import Callable

import pytest
import torch

from trainlab.data.load import load_images
from trainlab.machine.device import pick_device
from trainlab.train.loop import train
from trainlab.train.meter import Meter
from trainlab.train.moments import Moments, Progress
from trainlab.train.seeds import data_order
from trainlab.train.setup import Bench
from trainlab.train.step import make_step
from trainlab.workloads.find import find_workload

MakeBench = Callable[..., Bench]

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]


def test_the_same_seed_gives_the_same_weights_and_order_as_on_the_cpu(
    make_bench: MakeBench,
) -> None:
    on_cpu, on_gpu = make_bench(seed=3, device="cpu"), make_bench(seed=3, device="cuda")
    for a, b in zip(on_cpu.model.parameters(), on_gpu.model.parameters(), strict=True):
        assert b.is_cuda
        assert torch.equal(a, b.cpu())
    order = data_order(3, 1, 103)
    rows = zip(on_cpu.train_batches.rows(order), on_gpu.train_batches.rows(order), strict=True)
    assert all(torch.equal(a, b.cpu()) for a, b in rows)


def test_without_dropout_the_curves_of_both_devices_agree(make_bench: MakeBench) -> None:
    finals = []
    for device in ("cpu", "cuda"):
        progress = Progress()
        bench = make_bench(device=device, model={"dropout": 0.0}, epochs=3)
        train(bench, Moments([]), progress)
        finals.append(progress.final)
    for name, value in finals[0].items():
        assert finals[1][name] == pytest.approx(value, rel=1e-3, abs=1e-4), name


def test_a_step_never_waits_for_the_device(make_bench: MakeBench) -> None:
    bench = make_bench(workload=find_workload("mnist-cnn"), device="cuda", data="bundled")
    step = make_step(bench, Moments([]))
    meter = Meter(bench.workload.metrics, bench.device)
    rows = bench.train_batches.rows(data_order(1, 1, 6000))
    step(rows[0])
    torch.cuda.set_sync_debug_mode("error")
    try:
        for batch in rows[1:81]:
            meter.add(*step(batch))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert meter.means()["loss"] > 0


def test_data_lies_on_the_device_as_bytes(make_bench: MakeBench) -> None:
    bench = make_bench(workload=find_workload("fashion-mlp"), device="cuda", data="bundled")
    assert bench.train_batches.resident
    inputs, targets = bench.train_batches.gather(torch.arange(5, device="cuda"))
    assert (inputs.device.type, inputs.dtype, targets.device.type) == ("cuda", torch.uint8, "cuda")
    assert torch.equal(inputs.cpu(), load_images("fashion-mnist", "bundled").train.inputs[:5])


def test_data_that_does_not_fit_gives_the_same_curve(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    finals = []
    for free in (None, 10):
        if free is not None:
            monkeypatch.setattr("trainlab.train.batches.free_bytes", lambda device: 10)
        bench, progress = make_bench(device="cuda"), Progress()
        assert bench.train_batches.resident == (free is None)
        train(bench, Moments([]), progress)
        finals.append(progress.final)
    assert finals[0] == finals[1]


@pytest.mark.parametrize("optimizer", ["adadelta", "sgd", "adam", "adamw", "rmsprop", "adagrad"])
def test_every_optimizer_learns_on_the_gpu(optimizer: str, make_bench: MakeBench) -> None:
    progress = Progress()
    bench = make_bench(
        device="cuda", optimizer=optimizer, lr=0.1 if optimizer == "sgd" else 0.02, epochs=8
    )
    first = Progress()
    train(make_bench(device="cuda", optimizer="sgd", lr=1e-9, epochs=1), Moments([]), first)
    train(bench, Moments([]), progress)
    assert progress.final["test/loss"] < first.final["test/loss"]


def test_a_gpu_that_is_not_there_is_told_with_those_that_are() -> None:
    from trainlab.errors import DeviceError

    with pytest.raises(DeviceError, match="device: got cuda:99, but there are"):
        pick_device("cuda:99")
