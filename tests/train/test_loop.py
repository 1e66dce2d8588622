import dataclasses
import math
import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from training import Curve, HomedSetup, MakeSetup, run_test_set, train
from trainlab.data.dataset import Split
from trainlab.record.schema import Note
from trainlab.record.trial_record import Progress
from trainlab.train.callbacks import Instrument, Moments, Point, TrialView
from trainlab.workloads.workload import Workload


class Diary(Curve):
    """Writes down every moment, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.moments: list[str] = []

    def batch_ready(self, inputs: torch.Tensor, targets: torch.Tensor) -> None:
        assert len(inputs) == len(targets)
        self.moments.append("batch_ready")

    def epoch_ends(self, point: Point) -> None:
        super().epoch_ends(point)
        self.points.append(point)
        self.moments.append("epoch_ends")


def note(moment: str) -> Callable[..., None]:
    def noted(diary: Diary, *given: int | str) -> None:
        diary.moments.append(" ".join(map(str, (moment, *given))))

    return noted


STEP = ("step_begins", "forward_begins", "phase_ends", "step_ends")
for moment in (*STEP, "epoch_begins", "test_begins", "test_ends"):
    setattr(Diary, moment, note(moment))


def curve(setup: HomedSetup) -> list[tuple[str, int, dict[str, float]]]:
    diary, progress = Diary(), Progress()
    train(setup, Moments([diary]), progress)
    return [(point.kind, point.step, dict(point.metrics)) for point in diary.points]


def test_moments_come_in_the_order_the_docstring_shows(make_setup: MakeSetup) -> None:
    diary = Diary()
    train(make_setup(epochs=2, batch_size=60), Moments([diary]), Progress())

    def phases(*names: str) -> list[str]:
        return [f"phase_ends {name}" for name in names]

    def step(number: int) -> list[str]:
        before = [*phases("data", "transfer", "prepare"), "batch_ready", *phases("zero_grad")]
        after = phases("forward", "loss", "backward", "optimizer")
        begins, ends = f"step_begins {number}", f"step_ends {number}"
        return [begins, *before, "forward_begins", *after, ends]

    def test(epoch: int) -> list[str]:
        return [f"test_begins {epoch}", f"test_ends {epoch}", "epoch_ends"]

    assert diary.moments == [
        *("epoch_begins 1", *step(1), *step(2), *test(1)),
        *("epoch_begins 2", *step(3), *step(4), *test(2)),
    ]


def test_the_same_seed_gives_the_same_curve_and_another_seed_another(make_setup: MakeSetup) -> None:
    assert curve(make_setup(seed=1)) == curve(make_setup(seed=1))
    assert curve(make_setup(seed=1)) != curve(make_setup(seed=2))


def test_losses_are_identical_with_instruments_and_without(make_setup: MakeSetup) -> None:
    watched, bare = make_setup(), make_setup()
    train(watched, Moments([Diary(), Diary()]), Progress())
    train(bare, Moments([]), Progress())
    for a, b in zip(watched.model.parameters(), bare.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_every_sample_is_used_once_an_epoch_and_the_last_batch_may_be_smaller(
    make_setup: MakeSetup,
) -> None:
    batches = make_setup(batch_size=10).train_batches
    rows = batches.epoch(1, 1)
    assert [len(r) for r in rows] == [10] * 10 + [3]
    assert len(batches) == 11
    assert torch.equal(torch.cat(rows).sort().values, torch.arange(103))
    other = make_setup(batch_size=64)
    assert torch.equal(torch.cat(rows), torch.cat(other.train_batches.epoch(1, 1)))


def test_data_that_does_not_fit_on_the_device_gives_the_same_losses(
    make_setup: MakeSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = curve(make_setup())
    monkeypatch.setattr("trainlab.train.batches.free_bytes", lambda device: 10)
    setup = make_setup()
    assert not setup.train_batches.resident
    assert curve(setup) == whole


def test_the_test_set_does_not_depend_on_its_batch_size(make_setup: MakeSetup) -> None:
    whole = run_test_set(make_setup(test_batch_size=31))[0].values
    pieces = run_test_set(make_setup(test_batch_size=7))[0].values
    assert pieces["accuracy"] == whole["accuracy"]
    assert pieces["loss"] == pytest.approx(whole["loss"], rel=1e-6)


def test_points_count_samples_and_steps_and_an_epoch_has_their_weighted_means(
    make_setup: MakeSetup,
) -> None:
    diary = Diary()
    train(make_setup(epochs=2, batch_size=10, log_every_steps=4), Moments([diary]), Progress())
    counted = [(point.kind, point.step, point.samples) for point in diary.points]
    assert counted == [
        *(("step", 4, 40), ("step", 8, 80), ("step", 11, 103), ("epoch", 11, 103)),
        *(("step", 15, 143), ("step", 19, 183), ("step", 22, 206), ("epoch", 22, 206)),
    ]
    losses = [point.metrics["train/loss"] for point in diary.points[:4]]
    mean = sum(w * loss for w, loss in zip((40, 40, 23), losses[:3], strict=True)) / 103
    assert losses[3] == pytest.approx(mean, rel=1e-12)


def test_without_gradient_resets_gradients_pile_up(make_setup: MakeSetup) -> None:
    setup = make_setup(
        epochs=1, batch_size=103, zero_grad=False, optimizer="sgd", lr=1e-9, model={"dropout": 0.0}
    )
    train(setup, Moments([]), Progress())
    once = [p.grad.clone() for p in setup.model.parameters() if p.grad is not None]
    longer = setup.settings.model_copy(update={"epochs": 2})
    setup = dataclasses.replace(
        setup, trial=setup.trial.model_copy(update={"settings": longer}), model=setup.model
    )
    train(setup, Moments([]), Progress())
    for parameter, first in zip(setup.model.parameters(), once, strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, 3 * first, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("every", [1, 4])
def test_a_loss_that_is_not_finite_ends_the_trial_at_the_right_step(
    make_setup: MakeSetup, tiny: Workload, every: int
) -> None:
    calls = iter(range(1, 1000))

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        mean = F.cross_entropy(outputs, targets)
        return mean * math.nan if next(calls) == 7 else mean

    setup = make_setup(workload=dataclasses.replace(tiny, loss=loss), log_every_steps=every)
    progress = Progress()
    train(setup, Moments([]), progress)
    assert (progress.state, progress.diverged_at_step) == ("diverged", 7)
    assert progress.epochs_done == 0
    assert setup.notes == []


def test_data_that_is_not_finite_is_named_where_it_ends_a_trial(
    make_setup: MakeSetup, tiny: Workload
) -> None:
    """Told only to lower the learning rate, one would look in the wrong place."""
    setup = make_setup()
    train_split = setup.dataset.train
    assert isinstance(train_split, Split)
    inputs = train_split.inputs.float()
    inputs[3, ..., 0], inputs[5, ..., -1] = math.nan, math.inf
    bad = dataclasses.replace(setup.dataset, train=Split(inputs, train_split.targets))
    setup = make_setup(workload=dataclasses.replace(tiny, data=lambda choice: bad))
    progress = Progress()
    train(setup, Moments([]), progress)
    assert progress.state == "diverged"
    assert setup.notes == [Note(code="data_not_finite", values={"count": 2, "all": len(inputs)})]


def test_bf16_runs_the_model_in_bf16_and_keeps_fp32_weights(
    make_setup: MakeSetup, tiny: Workload
) -> None:
    seen = []

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        seen.append(outputs.dtype)
        return F.cross_entropy(outputs, targets)

    setup = make_setup(workload=dataclasses.replace(tiny, loss=loss), precision="bf16", epochs=1)
    train(setup, Moments([]), Progress())
    assert set(seen) == {torch.bfloat16}
    assert all(p.dtype == torch.float32 for p in setup.model.parameters())


def test_times_come_from_the_clock_around_the_epoch(make_setup: MakeSetup) -> None:
    ticks = iter(float(n) for n in range(10_000))
    diary, progress = Diary(), Progress()
    train(
        make_setup(epochs=1, log_every_steps=100), Moments([diary]), progress, lambda: next(ticks)
    )
    epoch = diary.points[-1]
    # Ticks: training begins 0, the one point 1, training over 2, test begins 3, test over 4.
    assert dict(epoch.times_s) == {"train_s": 2.0, "test_s": 1.0, "time_s": 3.0}
    assert progress.total_s == 3.0


def test_an_update_that_breaks_the_model_is_found_by_the_test_set(make_setup: MakeSetup) -> None:
    progress, diary = Progress(), Diary()
    setup = make_setup(epochs=1, batch_size=103, optimizer="sgd", lr=1e38)
    train(setup, Moments([diary]), progress)
    # No loss of training shows it: it has trained, and its test loss is not finite.
    assert (progress.state, progress.diverged_at_step) == ("done", None)
    last = diary.points[-1].metrics
    assert [math.isfinite(last[name]) for name in ("train/loss", "test/loss")] == [True, False]


def test_python_and_numpy_draws_derive_from_the_seed_too(
    make_setup: MakeSetup, tiny: Workload
) -> None:
    class Noisy(nn.Linear):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return super().forward(inputs) * (1 + random.random() + np.random.rand())

    noisy = dataclasses.replace(tiny, model=lambda: Noisy(8, 3))
    random.seed(0)
    first = curve(make_setup(workload=noisy))
    state = random.getstate()
    assert curve(make_setup(workload=noisy)) == first
    assert random.getstate() == state


def test_every_instrument_that_began_is_told_of_the_end() -> None:
    told = []

    class Closing(Instrument):
        def __init__(self, fails: bool) -> None:
            self.fails = fails

        def trial_ends(self, progress: Progress) -> None:
            told.append(self.fails)
            if self.fails:
                raise RuntimeError("cannot close")

    class Unready(Instrument):
        def trial_begins(self, view: TrialView) -> None:
            raise RuntimeError("cannot begin")

    moments = Moments([Closing(True), Closing(False), Unready(), Closing(True)])
    with pytest.raises(RuntimeError, match="cannot begin"):
        moments.trial_begins(None)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="cannot close"):
        moments.trial_ends(Progress())
    assert told == [True, False]


@pytest.mark.filterwarnings("error")
def test_a_schedule_begins_with_the_first_epoch(make_setup: Callable[..., HomedSetup]) -> None:
    seen: list[float] = []

    class Rates(Instrument):
        def epoch_ends(self, point: Point) -> None:
            seen.append(point.metrics["lr"])

    setup = make_setup(epochs=3, schedule="step", lr=1.0, lr_gamma=0.5, optimizer="adadelta")
    train(setup, Moments([Rates()]), Progress())
    assert seen == [1.0, 0.5, 0.25]
