"""Data parallel: several processes train one trial as one process would."""

import json
import os
import signal
import threading
import time
from pathlib import Path

import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import trainlab as product
from asking import study_of
from children import children
from command import Verb
from trainlab.errors import SpecError
from trainlab.execute.preflight import process_problems
from trainlab.lab import Run
from trainlab.train.batches import Rank
from trainlab.train.engines.ddp import FOLLOW

OWN = '''
import torch, torch.nn.functional as F
from torch import nn
from trainlab import Dataset, Split, Workload

class Failing(nn.Linear):
    """Fails in every process but the first."""
    def forward(self, inputs):
        import torch.distributed as d
        if self.training and d.is_initialized() and d.get_rank() == 1:
            raise ValueError("only here")
        return super().forward(inputs)

def data(choice):
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(90, 8, generator=generator)
    targets = (inputs[:, 0] > 0).long() + (inputs[:, 1] > 0).long()
    return Dataset("made up", Split(inputs, targets), Split(inputs[:20], targets[:20]))

def make(model, loss=F.cross_entropy):
    accuracy = lambda outputs, targets: (outputs.argmax(1) == targets).float()
    return Workload(name="own", model=model, data=data, loss=loss, metrics={"accuracy": accuracy},
                    defaults={"optimizer": "sgd", "lr": 0.1, "batch_size": 8})

plain = make(lambda: nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3)))
dropping = make(lambda: nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 3)))
normed = make(lambda: nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 3)))
failing = make(lambda: Failing(8, 3))

class Routed(nn.Module):
    """Each sample goes through one of two layers; a share may need only one. A third is never trained."""
    def __init__(self):
        super().__init__()
        self.one, self.other, self.unused = nn.Linear(8, 3), nn.Linear(8, 3), nn.Linear(8, 3)
    def forward(self, inputs):
        out, goes = inputs.new_zeros(len(inputs), 3), inputs[:, 2] > 0.8
        if goes.any():
            out[goes] = self.one(inputs[goes])
        if not goes.all():
            out[~goes] = self.other(inputs[~goes])
        return out

def weighted(outputs, targets):
    return F.cross_entropy(outputs, targets, weight=torch.tensor([1.0, 5.0, 2.0]))

routed, weighing = make(Routed), make(lambda: nn.Linear(8, 3), weighted)
def total(outputs, targets):
    return F.cross_entropy(outputs, targets, reduction="sum")

summed = make(lambda: nn.Linear(8, 3), total)
'''


@pytest.fixture
def own(tmp_path: Path) -> Path:
    file = tmp_path / "own.py"
    file.write_text(OWN)
    return file


def trained(own: Path, name: str, processes: int, out: str, **settings: object) -> Run:
    given = {"device": "cpu", "epochs": 2, "threads": 1, "engine": "eager", **settings}
    return product.run(
        f"{own}:{name}", processes=processes, out=own.parent / out, seeds=1, on="inline", **given
    )


def curve(run: Run) -> list[dict[str, float]]:
    """Without times."""
    (file,) = run.path.glob("trials/*/curve.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return [
        {n: v for n, v in line.items() if not isinstance(v, str) and not n.endswith("_s")}
        for line in lines
    ]


@given(st.integers(1, 9), st.integers(1, 40))
def test_every_sample_counts_the_same_in_some_process(of: int, batch_size: int) -> None:
    rows, seen, weight = torch.arange(batch_size), [], 0.0
    for number in range(of):
        rank = Rank(number=number, of=of)
        share = rank.share_of(rows)
        num = rank.num_in(batch_size)
        assert len(share) == max(num, 1)
        seen += share[:num].tolist()
        weight += rank.weight_in(batch_size)
        if num:
            # What one sample of the share counts in the mean over processes.
            assert rank.weight_in(batch_size) / num / of == pytest.approx(1 / batch_size)
    assert seen == rows.tolist()
    assert weight == pytest.approx(of)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("plain", {}),
        ("plain", {"zero_grad": False, "lr": 0.001}),
        ("plain", {"optimizer": "adam", "schedule": "step", "precision": "bf16"}),
        ("plain", {"batch_size": 89}),  # the last batch is one sample
        ("routed", {"batch_size": 4, "optimizer": "adam", "weight_decay": 0.1}),
    ],
)
@pytest.mark.slow
def test_two_processes_learn_what_one_learns(
    own: Path, name: str, settings: dict[str, object]
) -> None:
    """90 samples in batches of 8: the last batch is smaller, and shares are uneven."""
    one, two = (curve(trained(own, name, p, f"{p}", **settings)) for p in (1, 2))
    tolerance = 1e-2 if settings.get("precision") == "bf16" else 1e-4
    assert len(one) == len(two) > 2
    for alone, shared in zip(one, two, strict=True):
        assert alone == pytest.approx(shared, rel=tolerance)


@pytest.mark.slow
def test_processes_drop_their_own_units_and_the_same_ones_again(own: Path) -> None:
    first, again = (curve(trained(own, "dropping", 2, out)) for out in ("a", "b"))
    assert first == again
    often = curve(trained(own, "dropping", 2, "c", log_every_steps=1))
    assert often[-1]["test/loss"] == first[-1]["test/loss"]
    assert curve(trained(own, "dropping", 1, "d"))[-1]["test/loss"] != first[-1]["test/loss"]


def test_the_record_tells_how_processes_worked_together(own: Path) -> None:
    (record,) = trained(own, "normed", 2, "r").trials()
    assert record.resolved["processes"] == 2
    assert record.resolved["backend"] == "gloo"
    assert record.resolved["threads"] == 1
    assert "parallel_batch_norm" in {note.code for note in record.notes}
    assert not [p for p in children() if FOLLOW in p.cmdline()]


@pytest.mark.parametrize("name", ["summed", "weighing"])
def test_a_loss_that_is_no_mean_is_refused(name: str, own: Path) -> None:
    (record,) = trained(own, name, 2, "r").trials()
    assert record.error is not None
    assert "several processes would train something else" in record.error.message


def test_what_fails_in_another_process_is_told(
    own: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (record,) = trained(own, "failing", 2, "r").trials()
    assert record.error is not None
    assert record.error.message == (
        "processes: number 2 of 2 ended with code 1; its error is in the log"
    )
    assert "ValueError: only here" in capfd.readouterr().err


@pytest.mark.slow
def test_a_lost_process_is_replaced_and_the_trial_goes_on(own: Path) -> None:
    """Killed from outside, once; the curve is that of an undisturbed run."""
    killed: list[int] = []

    def kill() -> None:
        while not killed:
            time.sleep(0.02)
            for process in psutil.Process().children(recursive=True):
                try:
                    is_follower = FOLLOW in process.cmdline()
                    curves = own.parent.glob("r/trials/*/curve.jsonl")
                    has_begun = any(file.stat().st_size for file in curves)
                    if is_follower and has_begun:
                        os.kill(process.pid, signal.SIGKILL)
                        killed.append(process.pid)
                except (psutil.Error, ProcessLookupError):
                    continue

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    asked = {"device": "cpu", "epochs": 120, "threads": 1, "engine": "eager"}
    workload = f"{own}:dropping"
    run = product.run(workload, processes=2, out=own.parent / "r", seeds=1, on="processes", **asked)
    killed.append(0)
    thread.join()
    (record,) = run.trials()
    assert record.error is None, record.error
    assert record.attempt == 2
    assert curve(run) == curve(trained(own, "dropping", 2, "undisturbed", epochs=120))


def test_what_processes_cannot_do_is_refused(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for asked, told in (
        ({"processes": 2, "engine": "lanes"}, "engine lanes trains in one; use engine auto or"),
        ({"processes": 9, "batch_size": 8}, "but a batch has 8; use at most one process per sa"),
    ):
        with pytest.raises(SpecError, match=told):
            study_of(f"{own}:plain", asked)
    monkeypatch.setattr("trainlab.execute.preflight.usable_vcpus", lambda: 4)
    study = study_of(f"{own}:plain", {"device": "cpu"})
    for threads, room in (
        (1, "for them; use at most 4"),
        (2, "with --threads 2 each; use at most 2"),
    ):
        many = study.settings.model_copy(update={"processes": 5, "threads": threads})
        told = f"processes: got 5, but this machine has 4 CPUs {room}"
        assert list(process_problems([many])) == [told]


def test_all_settings_run_alike_where_processes_are_varied(own: Path) -> None:
    study = study_of(f"{own}:plain", {"device": "cpu"}, vary={"processes": [1, 2]})
    assert {(c.settings.threads, c.settings.engine) for c in study.all_cells} == {(1, "eager")}
    plain = study_of(f"{own}:plain", {"device": "cpu"}, vary={"lr": [0.1, 0.2]})
    assert {(c.settings.threads, c.settings.engine) for c in plain.all_cells} == {(None, "auto")}


@pytest.mark.slow
def test_the_command_line_measures_what_processes_gain(own: Path, trainlab: Verb) -> None:
    out = own.parent / "run"
    asked = ["--data-parallel", "1,2", "--device", "cpu", "--out", str(out)]
    briefly = ["--cost-budget=0.1s", "--processes=1", "--cost-warmup-steps=2"]
    trainlab("profile", f"{own}:plain", *asked, *briefly)
    shown = trainlab("show", str(out), "--all").stdout
    assert "the same batch is trained" in shown.replace("\n", " ")
    refused = trainlab("profile", f"{own}:plain", "--data-parallel", "2", "--mode", "both", code=2)
    assert "share training steps only; set cost.mode to train" in refused.stderr.replace("\n", " ")
