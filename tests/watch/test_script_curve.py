"""The curve of a script: every metric and every test stands at the epoch it is of."""

import json
import math
from array import array
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainlab.record.files import LineWriter
from trainlab.watching.script_curve import ScriptCurve, kept_between
from trainlab.watching.step_log import StepLog
from trainlab.watching.timeline import EVALUATION, PARTS, StepTimes


class FastScript:
    """Epochs of two steps that are over long before the curve is written."""

    def __init__(self) -> None:
        self.timeline = SimpleNamespace(total_ns=[0] * len(PARTS))
        self.steps_ns = StepTimes()
        self.log = StepLog()

    @property
    def num_steps(self) -> int:
        return len(self.steps_ns)

    def train(self, epoch: int, curve: ScriptCurve, *, has_loss: bool = True) -> None:
        """The loss of a step is its place."""
        log = self.log
        for _ in range(2):
            log.losses.add(torch.tensor(float(self.num_steps)))
            if has_loss or self.num_steps:
                log.update_by_hand()
            self.steps_ns.append([10**9, *[0] * (len(PARTS) - 1)])
            log._epoch, log._num_samples = epoch, 8 * self.num_steps
            log.step_ends(follows_test=False)
            log._pending = len(log.losses)
            curve.step_ended()


def test_what_fast_epochs_tell_stays_theirs(tmp_path: Path) -> None:
    script: Any = FastScript()
    curve = ScriptCurve(script, LineWriter(tmp_path / "curve.jsonl"))
    for epoch in (1, 2, 3):
        script.train(epoch, curve)
        if epoch != 3:
            script.timeline.total_ns[EVALUATION] += epoch * 10**9
            curve.printed("accuracy", epoch / 10)
    curve.finish()
    lines = [json.loads(line) for line in (tmp_path / "curve.jsonl").read_text().splitlines()]
    epochs = [line for line in lines if line["kind"] == "epoch"]
    assert [line.get("test/accuracy") for line in epochs] == [0.1, 0.2, None]
    assert [line["train/loss"] for line in epochs] == [0.5, 2.5, 4.5]
    assert [line["test_s"] for line in epochs] == [1.0, 2.0, 0.0]
    assert [line["train_s"] for line in epochs] == [2.0, 2.0, 2.0]
    assert "test/accuracy" not in epochs[2]
    assert curve.final == {"train/loss": 4.5, "test/accuracy": 0.2}
    assert curve.num_epochs == 3


def test_without_passes_the_last_tenth_of_the_updates_is_the_end(tmp_path: Path) -> None:
    for loader, final in ((None, {"train/loss": 37.5, "train/lr": 0.3}), (object(), None)):
        script: Any = FastScript()
        script.log.loader = loader
        script.is_testing = False
        path = tmp_path / f"{loader is None}.jsonl"
        curve = ScriptCurve(script, LineWriter(path))
        for number in range(20):
            script.train(1, curve)
            curve.metric("lr", 0.3 if number > 17 else 9.0)
        curve.printed("accuracy", 0.5)
        curve.finish()
        mean = {"train/loss": 19.5, "train/lr": pytest.approx((18 * 9.0 + 2 * 0.3) / 20)}
        assert curve.final == {**(final or mean), "test/accuracy": 0.5}
        last = json.loads(path.read_text().splitlines()[-1])
        assert last["train/loss"] == 19.5, "that of an epoch is its mean"


def test_an_accuracy_in_per_cent_that_begins_below_1_is_never_a_share_at_the_end(
    tmp_path: Path,
) -> None:
    script: Any = FastScript()
    curve = ScriptCurve(script, LineWriter(tmp_path / "curve.jsonl"))
    for epoch, accuracy in ((1, 0.9), (2, 34.5)):
        script.train(epoch, curve)
        curve.printed("accuracy", accuracy)
        curve._write_steps()
    curve.printed("top5/accuracy", 0.5)
    curve.finish()
    assert curve.final["test/accuracy_percent"] == 34.5
    assert "test/accuracy" not in curve.final
    assert curve.last["top5/accuracy"] == 0.5
    lines = [json.loads(line) for line in (tmp_path / "curve.jsonl").read_text().splitlines()]
    epochs = [line for line in lines if line["kind"] == "epoch"]
    assert [line.get("test/accuracy_percent") for line in epochs] == [0.9, 34.5]


def test_a_step_of_which_no_loss_was_seen_has_none(tmp_path: Path) -> None:
    script: Any = FastScript()
    curve = ScriptCurve(script, LineWriter(tmp_path / "curve.jsonl"))
    script.train(1, curve, has_loss=False)
    curve.finish()
    lines = [json.loads(line) for line in (tmp_path / "curve.jsonl").read_text().splitlines()]
    assert [line.get("train/loss", "none") for line in lines] == ["none", 1.0, 1.0]
    assert curve.final == {"train/loss": 1.0}


def is_kept(step: int, all_up_to: int) -> bool:
    every = 1
    while step > all_up_to * every:
        every *= 2
    return step % every == 0


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 400), st.integers(0, 400), st.integers(1, 50))
def test_the_more_steps_the_fewer_of_them_have_a_line(first: int, num: int, all_up_to: int) -> None:
    wanted = [step for step in range(first, first + num) if is_kept(step, all_up_to)]
    assert list(kept_between(first, first + num, all_up_to)) == wanted


def test_what_is_told_of_a_step_without_a_line_is_not_told_of_the_next(tmp_path: Path) -> None:
    script: Any = FastScript()
    curve = ScriptCurve(script, LineWriter(tmp_path / "curve.jsonl"))
    script.is_testing = False
    for _ in range(505):
        script.train(1, curve)
        if script.num_steps != 1004:
            curve.metric("train/norm", float(script.num_steps))
    curve.finish()
    lines = [json.loads(line) for line in (tmp_path / "curve.jsonl").read_text().splitlines()]
    told = {line["step"]: line.get("train/norm") for line in lines if line["kind"] == "step"}
    assert len(told) == 1005
    assert all(told[step] == (None if step % 2 else step) for step in range(1, 1001))
    assert [told[step] for step in range(1002, 1011, 2)] == [1002, None, 1006, 1008, 1010]
    (epoch,) = [line for line in lines if line["kind"] == "epoch"]
    assert epoch["train/loss"] == 1009 / 2


def test_an_epoch_whose_losses_cannot_be_added_up_is_written(tmp_path: Path) -> None:
    for number, losses in enumerate(([math.inf, -math.inf], [1e308, 1e308])):
        script: Any = FastScript()
        script.log.loader = object()
        curve = ScriptCurve(script, LineWriter(tmp_path / f"curve{number}.jsonl"))
        script.train(1, curve)
        script.log.losses._known[:] = array("d", losses)
        curve.finish()
        expected = math.nan if math.isinf(losses[0]) else 1e308
        assert repr(curve.final["train/loss"]) == repr(expected)
