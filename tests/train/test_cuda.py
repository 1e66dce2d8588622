"""What must hold on a GPU as well; skipped where there is none."""

import dataclasses
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import trainlab
from training import ON_A_GPU, MakeSetup, train
from trainlab.data.fetch import load_images
from trainlab.errors import DeviceError
from trainlab.machine.device import pick_device
from trainlab.record.trial_record import Progress
from trainlab.train.callbacks import Moments
from trainlab.train.engines.eager import make_training_step
from trainlab.train.metering import Meter
from trainlab.workloads.find import find_workload
from trainlab.workloads.workload import Workload

pytestmark = ON_A_GPU


def test_the_same_seed_gives_the_same_weights_and_order_as_on_the_cpu(
    make_setup: MakeSetup,
) -> None:
    on_cpu, on_gpu = make_setup(seed=3, device="cpu"), make_setup(seed=3, device="cuda")
    for a, b in zip(on_cpu.model.parameters(), on_gpu.model.parameters(), strict=True):
        assert b.is_cuda
        assert torch.equal(a, b.cpu())
    rows = zip(on_cpu.train_batches.epoch(1, 1), on_gpu.train_batches.epoch(1, 1), strict=True)
    assert all(torch.equal(a, b.cpu()) for a, b in rows)


def test_without_dropout_the_curves_of_both_devices_agree(make_setup: MakeSetup) -> None:
    finals = []
    for device in ("cpu", "cuda"):
        progress = Progress()
        setup = make_setup(device=device, model={"dropout": 0.0}, epochs=3)
        train(setup, Moments([]), progress)
        finals.append(progress.final)
    for name, value in finals[0].items():
        assert finals[1][name] == pytest.approx(value, rel=1e-3, abs=1e-4), name


def test_a_step_never_waits_for_the_device(make_setup: MakeSetup) -> None:
    setup = make_setup(workload=find_workload("mnist-cnn"), device="cuda", data="bundled")
    step = make_training_step(setup, Moments([]))
    meter = Meter(setup.workload.metrics, setup.device)
    rows = setup.train_batches.epoch(1, 1)
    step(rows[0])
    torch.cuda.set_sync_debug_mode("error")
    try:
        for batch in rows[1:81]:
            meter.add(step(batch))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert meter.means().values["loss"] > 0


def test_data_lies_on_the_device_as_bytes(make_setup: MakeSetup) -> None:
    setup = make_setup(workload=find_workload("fashion-mlp"), device="cuda", data="bundled")
    assert setup.train_batches.resident
    inputs, targets = setup.train_batches.gather(torch.arange(5, device="cuda"))
    assert (inputs.device.type, inputs.dtype, targets.device.type) == ("cuda", torch.uint8, "cuda")
    assert torch.equal(inputs.cpu(), load_images("fashion-mnist", "bundled").train.inputs[:5])


def test_data_that_does_not_fit_gives_the_same_curve(
    make_setup: MakeSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    finals = []
    for free in (None, 10):
        if free is not None:
            monkeypatch.setattr("trainlab.train.batches.free_bytes", lambda device: 10)
        setup, progress = make_setup(device="cuda"), Progress()
        assert setup.train_batches.resident == (free is None)
        train(setup, Moments([]), progress)
        finals.append(progress.final)
    assert finals[0] == finals[1]


@pytest.mark.parametrize("optimizer", ["adadelta", "sgd", "adam", "adamw", "rmsprop", "adagrad"])
def test_every_optimizer_learns_on_the_gpu(optimizer: str, make_setup: MakeSetup) -> None:
    progress = Progress()
    setup = make_setup(
        device="cuda", optimizer=optimizer, lr=0.1 if optimizer == "sgd" else 0.02, epochs=8
    )
    first = Progress()
    train(make_setup(device="cuda", optimizer="sgd", lr=1e-9, epochs=1), Moments([]), first)
    train(setup, Moments([]), progress)
    assert progress.final["test/loss"] < first.final["test/loss"]


def test_a_gpu_that_is_not_there_is_told_with_those_that_are() -> None:
    with pytest.raises(DeviceError, match="device: got cuda:99, but there are"):
        pick_device("cuda:99")


class Greedy(nn.Module):
    """Wants more memory than any GPU has at its second batch size."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        if self.training and len(x) > 8:
            x = x + torch.zeros(1 << 41, device=x.device, dtype=torch.uint8)[0]
        return self.linear(x)


def test_a_trial_out_of_memory_is_an_outcome_and_the_others_go_on(
    tiny: Workload, tmp_path: Path
) -> None:
    with pytest.warns(trainlab.TrialsFailedWarning, match="memory"):
        run = trainlab.run(
            dataclasses.replace(tiny, model=Greedy),
            vary={"batch_size": (8, 16)},
            device="cuda",
            seeds=2,
            on="processes",
            out=tmp_path / "r",
        )
    states = {(trial.settings["batch_size"], trial.seed): trial.state for trial in run.trials()}
    assert [states[8, seed] for seed in (1, 2)] == ["done", "done"]
    assert [states[16, seed] for seed in (1, 2)] == ["failed", "failed"]
