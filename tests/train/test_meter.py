import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from trainlab.errors import WorkloadError
from trainlab.train.metering import Means, Meter
from trainlab.train.step import StepOutcome
from trainlab.workloads.workload import accuracy

CPU = torch.device("cpu")


def add(meter: Meter, loss: Tensor, outputs: Tensor, targets: Tensor) -> None:
    meter.add(StepOutcome(loss, outputs, targets, len(targets)))


def test_means_weigh_samples_not_batches_and_a_reset_forgets() -> None:
    meter = Meter({"accuracy": accuracy}, CPU)
    add(meter, torch.tensor(1e30), torch.zeros(1, 2), torch.zeros(1, dtype=torch.long))
    assert meter.means().first_bad_step is None, "only training losses explode"
    meter.reset()
    add(meter, torch.tensor(1.0), torch.tensor([[1.0, 0.0]] * 3), torch.tensor([0, 0, 1]))
    add(meter, torch.tensor(5.0), torch.tensor([[0.0, 1.0]]), torch.tensor([1]))
    means = {"loss": (3 * 1.0 + 1 * 5.0) / 4, "accuracy": 3 / 4}
    assert meter.means() == Means(means, num_samples=4, num_steps=2, first_bad_step=None)


@given(
    st.lists(st.integers(1, 7), min_size=1, max_size=40), st.integers(0, 2**31), st.integers(1, 9)
)
def test_means_equal_a_float64_sum_however_steps_are_gathered(
    sizes: list[int], seed: int, max_pending: int
) -> None:
    draw = torch.Generator().manual_seed(seed)
    meter = Meter({"accuracy": accuracy}, CPU, max_pending_steps=max_pending)
    loss_sum, hits = 0.0, 0
    for size in sizes:
        loss = torch.rand((), generator=draw)
        outputs = torch.randn(size, 4, generator=draw)
        targets = torch.randint(4, (size,), generator=draw)
        add(meter, loss, outputs, targets)
        loss_sum += float(loss) * size
        hits += int((outputs.argmax(1) == targets).sum())
    means = meter.means().values
    assert means["loss"] == pytest.approx(loss_sum / sum(sizes), rel=1e-12)
    assert means["accuracy"] == hits / sum(sizes)


def test_the_first_loss_that_is_not_finite_is_found() -> None:
    for bad, at in ((math.nan, 1), (math.inf, 5), (math.nan, 9)):
        meter = Meter({}, CPU, max_pending_steps=2)
        for number in range(1, 10):
            loss = torch.tensor(bad if number >= at else 1.0)
            add(meter, loss, torch.zeros(1, 2), torch.zeros(1, dtype=torch.long))
        assert meter.means().first_bad_step == at


@pytest.mark.parametrize(
    ("losses", "bad"),
    [
        ([2.3, 5.0, 3e22, 3e22], 3),  # a learning rate far too large
        ([2.3, 2e6, 2.2e6, 1e6], None),  # large, but not a million times the first
        ([4e8, 3e8, 2e14, 1e8], None),  # a regression on large numbers starts large
        ([4e8, 5e15, 5e15, 1e8], 2),
        ([4e8, 5e14, 3e8, 1e8], None),  # the mean over the updates of a point decides
        ([1e-9, 0.5, 80.0, 900.0], None),  # a loss that starts near 0 may lose that
        ([1e-9, 0.5, 9e6, 1.0], 3),
        ([-50.0, -60.0, -1e12, -1e13], None),  # downwards is no explosion
        ([-50.0, 1e9, 1e9, 1e9], 2),
    ],
)
def test_a_loss_explodes_relative_to_the_first_and_to_one(
    losses: list[float], bad: int | None
) -> None:
    meter, steps = Meter({}, CPU, stops_explosions=True), []
    # Two points of two updates each: the first loss of all counts, not that of the second point.
    for half in (losses[:2], losses[2:]):
        meter.reset()
        for loss in half:
            add(meter, torch.tensor(loss), torch.zeros(1, 2), torch.zeros(1, dtype=torch.long))
        means = meter.means()
        steps.append(means.first_bad_step)
        if means.first_bad_step is not None:
            assert means.bad_loss == pytest.approx(half[means.first_bad_step - 1])
    found = [2 * half + step for half, step in enumerate(steps) if step is not None]
    assert (found[0] if found else None) == bad


def test_a_metric_that_is_not_per_sample_is_refused() -> None:
    for metric, shape in (
        (lambda outputs, targets: (outputs.argmax(-1) == targets).float().mean(), r"\(\)"),
        (lambda outputs, targets: outputs.argmax(-1) == targets[:, None], r"\(6, 6\)"),
    ):
        with pytest.raises(WorkloadError, match=f"metrics.hits: gave shape {shape} for 6 samples"):
            add(Meter({"hits": metric}, CPU), torch.tensor(1.0), torch.zeros(6, 2), torch.zeros(6))


def test_accuracy_is_refused_where_there_are_no_classes_or_no_score_for_each() -> None:
    with pytest.raises(WorkloadError, match="targets are no classes"):
        accuracy(torch.zeros(3, 1), torch.zeros(3))
    for shape in ((4,), (4, 1), (5, 3), (4, 2, 3)):
        with pytest.raises(WorkloadError, match="are no score per class"):
            accuracy(torch.zeros(shape), torch.zeros(4, dtype=torch.int64))
    told = r"outputs are a dict, no score per class; give metrics=\{\} or your own"
    with pytest.raises(WorkloadError, match=told):
        accuracy({"logits": torch.zeros(4, 2)}, torch.zeros(4, dtype=torch.int64))  # type: ignore[arg-type]


def test_accuracy_of_outputs_of_several_widths_is_counted_step_by_step() -> None:
    meter = Meter({"accuracy": accuracy}, CPU)
    for width, target in ((2, 0), (3, 1), (2, 0)):
        add(meter, torch.tensor(1.0), torch.eye(width)[:1], torch.tensor([target]))
    assert meter.means().values["accuracy"] == pytest.approx(2 / 3)


def test_a_loss_that_is_not_a_mean_is_refused() -> None:
    with pytest.raises(WorkloadError, match=r"loss: gave shape \(4,\), must be the batch's mean"):
        add(Meter({}, CPU), torch.ones(4), torch.zeros(4, 2), torch.zeros(4))


def test_what_some_steps_log_is_the_mean_over_those() -> None:
    meter = Meter({}, CPU, max_pending_steps=2)
    for number, size in enumerate((3, 1, 2, 4)):
        logged = {"every": torch.tensor(1.0 + number)}
        if number % 2:
            logged["second"] = torch.tensor(10.0 * number)
        meter.add(StepOutcome(torch.tensor(0.0), None, None, size, logged))
    means = meter.means()
    assert means.values["every"] == pytest.approx((3 * 1 + 1 * 2 + 2 * 3 + 4 * 4) / 10)
    assert means.values["second"] == pytest.approx((1 * 10 + 4 * 30) / 5)
    assert means.samples_of == {"second": 5}
