"""The curve of a script: every metric and every test stands at the epoch it is of."""

import json
import math
from array import array
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from trainlab.record.files import LineWriter
from trainlab.watching.step_log import StepLog
from trainlab.watching.timeline import EVALUATION, PARTS
from trainlab.watching.tracer import keeps
from trainlab.watching.watched_run import ScriptCurve


class FastScript:
    """Epochs of two steps that are over long before the curve is written."""

    def __init__(self, path: Path) -> None:
        self.timeline = SimpleNamespace(total_ns=[0] * len(PARTS))
        self.steps_ns = array("q")
        self.log: Any = StepLog()
        self.is_testing = False
        tracer: Any = self
        self.curve, self._path = ScriptCurve(tracer, LineWriter(path)), path

    @property
    def num_steps(self) -> int:
        return len(self.steps_ns)

    def train(self, epoch: int = 1, *, has_loss: bool = True) -> None:
        """The loss of a step is its place."""
        log = self.log
        for _ in range(2):
            log.losses.add(torch.tensor(float(self.num_steps)))
            if has_loss or self.num_steps:
                log.update_by_hand()
            self.steps_ns.append(10**9)
            log._epoch, log._num_samples = epoch, 8 * self.num_steps
            log.step_ends(follows_test=False)
            log._pending = len(log.losses)
            self.curve.step_ended()

    def lines(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Of steps and of epochs, once it has ended."""
        self.curve.finish()
        lines = [json.loads(line) for line in self._path.read_text().splitlines()]
        kinds = [[line for line in lines if line["kind"] == kind] for kind in ("step", "epoch")]
        return kinds[0], kinds[1]


def test_what_fast_epochs_tell_stays_theirs(tmp_path: Path) -> None:
    script = FastScript(tmp_path / "curve.jsonl")
    for epoch in (1, 2, 3):
        script.train(epoch)
        if epoch != 3:
            script.timeline.total_ns[EVALUATION] += epoch * 10**9
            script.curve.printed("accuracy", epoch / 10)
    _, epochs = script.lines()
    assert [line.get("test/accuracy") for line in epochs] == [0.1, 0.2, None]
    assert [line["train/loss"] for line in epochs] == [0.5, 2.5, 4.5]
    assert [line["test_s"] for line in epochs] == [1.0, 2.0, 0.0]
    assert [line["train_s"] for line in epochs] == [2.0, 2.0, 2.0]
    assert script.curve.final == {"train/loss": 4.5, "test/accuracy": 0.2}
    assert script.curve.num_epochs == 3


def test_without_passes_the_last_tenth_of_the_updates_is_the_end(tmp_path: Path) -> None:
    loader_at_end: Any = SimpleNamespace(has_ended_pass=True)
    for loader, final in ((None, {"train/loss": 37.5, "train/lr": 0.3}), (loader_at_end, None)):
        script = FastScript(tmp_path / f"{loader is None}.jsonl")
        script.log.loader = loader
        for number in range(20):
            script.train()
            script.curve.metric("lr", 0.3 if number > 17 else 9.0)
        script.curve.printed("accuracy", 0.5)
        _, epochs = script.lines()
        mean = {"train/loss": 19.5, "train/lr": pytest.approx((18 * 9.0 + 2 * 0.3) / 20)}
        assert script.curve.final == {**(final or mean), "test/accuracy": 0.5}
        assert epochs[-1]["train/loss"] == 19.5, "that of an epoch is its mean"


def test_an_accuracy_in_per_cent_that_begins_below_1_is_never_a_share_at_the_end(
    tmp_path: Path,
) -> None:
    script = FastScript(tmp_path / "curve.jsonl")
    for epoch, accuracy in ((1, 0.9), (2, 34.5)):
        script.train(epoch)
        script.curve.printed("accuracy", accuracy)
        script.curve._write_steps(script.num_steps)
    script.curve.printed("top5/accuracy", 0.5)
    _, epochs = script.lines()
    assert script.curve.final["test/accuracy_percent"] == 34.5
    assert "test/accuracy" not in script.curve.final
    assert script.curve.last["top5/accuracy"] == 0.5
    assert [line.get("test/accuracy_percent") for line in epochs] == [0.9, 34.5]


def test_a_step_of_which_no_loss_was_seen_has_none(tmp_path: Path) -> None:
    script = FastScript(tmp_path / "curve.jsonl")
    script.train(has_loss=False)
    steps, epochs = script.lines()
    assert [line.get("train/loss") for line in (*steps, *epochs)] == [None, 1.0, 1.0]
    assert script.curve.final == {"train/loss": 1.0}


def test_the_more_steps_the_fewer_of_them_have_a_line(tmp_path: Path) -> None:
    assert all(map(keeps, range(1, 1001)))
    kept = [step for step in range(1990, 4020) if keeps(step)]
    assert kept == [*range(1990, 2000, 2), *range(2000, 4004, 4), 4008, 4016]
    script = FastScript(tmp_path / "curve.jsonl")
    for _ in range(505):
        script.train()
        if script.num_steps != 1004:
            script.curve.metric("train/norm", float(script.num_steps))
    steps, (epoch,) = script.lines()
    told = {line["step"]: line.get("train/norm") for line in steps}
    assert len(told) == 1005
    assert all(told[step] == (None if step % 2 else step) for step in range(1, 1001))
    # What is told of a step without a line is not told of the next.
    assert [told[step] for step in range(1002, 1011, 2)] == [1002, None, 1006, 1008, 1010]
    assert epoch["train/loss"] == 1009 / 2


def test_an_epoch_whose_losses_cannot_be_added_up_is_written(tmp_path: Path) -> None:
    for number, losses in enumerate(([math.inf, -math.inf], [1e308, 1e308])):
        script = FastScript(tmp_path / f"curve{number}.jsonl")
        script.log.loader = SimpleNamespace(has_ended_pass=True)
        script.train()
        script.log.losses._known[:] = array("d", losses)
        script.lines()
        expected = math.nan if math.isinf(losses[0]) else math.inf
        assert repr(script.curve.final["train/loss"]) == repr(expected)


def test_the_loss_of_a_pass_is_a_mean_over_samples() -> None:
    """Of which the last batch may have fewer; over updates where no loader tells samples, or where an
    update is of several batches."""
    losses = [[1.0, 1.5], [1.25, 1.25], [1.0]]
    mean = (16 * 2.5 + 16 * 2.5 + 4 * 1.0) / 36
    for batch_size, expected in ((16, mean), (8, 2.0), (None, 2.0)):
        log = StepLog()
        log.batch_size = batch_size
        for own, samples in zip(losses, (16, 32, 36), strict=True):
            for loss in own:
                log.losses.add(torch.tensor(loss))
            log.update_by_hand()
            log._num_samples = samples
            log.step_ends(follows_test=False)
        values = log.losses_by_samples(0, 3)["train/loss"]
        assert sum(values) / 3 == pytest.approx(expected)
