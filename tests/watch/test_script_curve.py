"""The curve of a script: every metric and every test stands at the epoch it is of."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from trainlab.record.files import LineWriter
from trainlab.watching.curve import ScriptCurve
from trainlab.watching.seeing.timeline import EVALUATION, PARTS


class FastScript:
    """Epochs of two steps that are over long before the curve is written."""

    def __init__(self) -> None:
        self.timeline = SimpleNamespace(total_ns=[0] * len(PARTS))
        self.steps_ns: list[list[int]] = []
        self.step_epochs: list[int] = []
        self.step_samples: list[int] = []

    @property
    def num_steps(self) -> int:
        return len(self.steps_ns)

    def losses_of(self, place: int) -> dict[str, float]:
        return {"train/loss": float(place)}

    def train(self, epoch: int, curve: ScriptCurve) -> None:
        for _ in range(2):
            self.steps_ns.append([10**9, *[0] * (len(PARTS) - 1)])
            self.step_epochs.append(epoch)
            self.step_samples.append(8 * self.num_steps)
            curve.step_ended()


def test_what_fast_epochs_tell_stays_theirs(tmp_path: Path) -> None:
    script: Any = FastScript()
    curve = ScriptCurve(script, LineWriter(tmp_path / "curve.jsonl"))
    for epoch in (1, 2, 3):
        script.train(epoch, curve)
        if epoch != 3:
            script.timeline.total_ns[EVALUATION] += epoch * 10**9
            curve.metric("accuracy", epoch / 10)
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
