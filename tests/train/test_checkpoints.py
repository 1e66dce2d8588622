"""A trial that goes on from a checkpoint writes the curve that it would have written undisturbed."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from asking import study_of
from training import ON_A_GPU
from trainlab.errors import Interrupted
from trainlab.execute.planned_run import start_run
from trainlab.execute.worker import run_group
from trainlab.record.run_folder import RunFolder, TrialFolder
from trainlab.spec.probe import probe_of
from trainlab.train import ask_to_end
from trainlab.train.callbacks import Instrument, Point, TrialView
from trainlab.train.checkpoints import VARIABLE
from trainlab.train.loader import Loader

OWN = """
import random
import numpy

class Restless(nn.Module):
    # Draws from every generator there is, and has a buffer that learns.
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)
        self.drop, self.last = nn.Dropout(0.3), nn.Linear(8, 2)

    def forward(self, x):
        noise = random.gauss(0, 0.1) + float(numpy.random.standard_normal()) / 10
        x = self.norm(self.first(x)).relu()
        return self.last(self.drop(x + (noise if self.training else 0)))

def dropping(hidden=8):
    return nn.Sequential(nn.Linear(8, hidden), nn.ReLU(), nn.Dropout(0.3), nn.Linear(hidden, 2))

class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.last, self.calls = nn.Linear(8, 2), 0

    def forward(self, x):
        self.calls += self.training
        return self.last(x) / (1 + self.calls % 3)

class Augmented(torch.utils.data.Dataset):
    def __init__(self, split):
        self.split = split

    def __len__(self):
        return len(self.split.inputs)

    def __getitem__(self, row):
        x = self.split.inputs[row]
        return {"x": x + 0.1 * torch.randn_like(x), "y": self.split.targets[row]}

def augmented(choice):
    whole = data(choice)
    return Dataset("own", train=Augmented(whole.train), test=Augmented(whole.test))

def carrying(model, batch, state):
    # What goes on from batch to batch: a mean of the loss, and a tensor in a tuple.
    loss = F.cross_entropy(model(batch["x"]), batch["y"])
    mean, (last, *_) = state.get("mean", 0.0), state.get("past", (0.0,))
    state["mean"], state["past"] = 0.9 * mean + 0.1 * loss.item(), (loss.detach(), "said")
    return {"loss": loss * (1 + 0.1 * mean) + 0.01 * last, "mean": mean}

def alternating(ctx, batch):
    for name, optimizer in ctx.optimizers.items():
        optimizer.zero_grad()
        scores = ctx.models["first"](batch["x"]) + ctx.models["second"](batch["x"])
        loss = F.cross_entropy(scores, batch["y"])
        ctx.backward(loss)
        optimizer.step()
    return loss

def both(models, settings):
    return {
        "first": torch.optim.Adam(models["first"].parameters(), lr=settings.start_lr),
        "second": torch.optim.SGD(models["second"].parameters(), lr=settings.start_lr, momentum=0.9),
    }

def stepped(model, settings):
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.start_lr)
    return optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=200), "step"

carried = Workload(name="own", model=Restless, data=augmented, step=carrying, optimizer=stepped)
two = Workload(
    name="own",
    model=lambda: {"first": dropping(), "second": dropping(4)},
    data=augmented,
    update=alternating,
    evaluate=lambda models, batch: F.cross_entropy(models["first"](batch["x"]), batch["y"]),
    optimizer=both,
)

restless, lanes, counting = (
    Workload(name="own", model=model, data=data, loss=F.cross_entropy)
    for model in (Restless, dropping, Counting)
)
"""
SETTINGS = {
    "device": "cpu",
    "epochs": 3,
    "batch_size": 8,
    "log_every_steps": 2,
    "lr": 0.05,
}


class Cut(Instrument):
    """Interrupts a trial at some point of this attempt; notes what was not made again."""

    goes_on = True

    def __init__(self, at_point: int | None) -> None:
        self.at_point, self.points, self.steps_before = at_point, 0, 0

    def trial_begins(self, view: TrialView) -> None:
        self.steps_before = view.steps_before

    def point_logged(self, point: Point) -> None:
        self.points += 1
        if self.points == self.at_point:
            raise Interrupted


class Told(Cut):
    """Is told to end, as by SIGTERM, at some point."""

    def point_logged(self, point: Point) -> None:
        self.points += 1
        if self.points == self.at_point:
            assert ask_to_end()


@pytest.fixture(autouse=True)
def _every_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "0")


def begun(
    file: Path,
    out: Path,
    name: str,
    seeds: int = 1,
    *,
    board: bool = False,
    probes: Sequence[str] = (),
    **asked: object,
) -> RunFolder:
    if "Restless" not in file.read_text():
        file.write_text(file.read_text() + OWN)
    settings = {**SETTINGS, **asked}
    fields = {"seeds": seeds, "save_model": True, "tensorboard": board}
    fields["probes"] = tuple(probe_of(text) for text in probes)
    study = study_of(f"{file}:{name}", settings, **fields)
    return start_run(study, out)


def attempted(run: RunFolder, at_point: int | None = None, how: type[Cut] = Cut) -> int:
    """Runs all trials as one group up to a point; how many updates were not made again."""
    cut = how(at_point)
    if at_point is None:
        run_group(run, run.study().trials, "here", Loader(), [cut])
    else:
        with pytest.raises(KeyboardInterrupt):
            run_group(run, run.study().trials, "here", Loader(), [cut])
    return cut.steps_before


def lines(folder: TrialFolder) -> list[str]:
    """The curve, times apart, to the last digit."""
    text = folder.curve_file.read_text()
    return [
        line.partition(', "time_s"')[0].partition(', "train_s"')[0] for line in text.splitlines()
    ]


def assert_same(ours: RunFolder, theirs: RunFolder) -> None:
    for trial in ours.trials():
        folders: Sequence[TrialFolder] = [run.trial(trial.id) for run in (ours, theirs)]
        assert lines(folders[0]) == lines(folders[1])
        ours_last, theirs_last = (torch.load(folder.model_file) for folder in folders)
        assert all(torch.equal(ours_last[name], theirs_last[name]) for name in theirs_last)
        assert trial.state == "done"
        confused = [one.confusion.read() if one.confusion.exists() else None for one in folders]
        assert confused[0] == confused[1]
        assert not folders[0].resume_folder.exists()


@pytest.mark.parametrize(
    ("engine", "name", "asked"),
    [
        ("eager", "restless", {"optimizer": "adam", "schedule": "step", "lr_gamma": 0.5}),
        pytest.param(
            *("eager", "restless", {"optimizer": "sgd", "momentum": 0.9, "zero_grad": False}),
            marks=pytest.mark.slow,
        ),
        ("tuned", "restless", {"optimizer": "adadelta", "schedule": "cosine"}),
        pytest.param(
            "eager", "restless", {"optimizer": "adam", "processes": 2}, marks=pytest.mark.slow
        ),
        ("eager", "restless", {"keep_best": True, "val_fraction": 0.3, "lr": 2.0}),
        ("eager", "carried", {}),
        ("eager", "two", {}),
        pytest.param("graphed", "lanes", {"optimizer": "rmsprop"}, marks=pytest.mark.slow),
        ("lanes", "lanes", {"optimizer": "adagrad", "schedule": "cosine", "seeds": 2}),
        pytest.param("graphed", "lanes", {"device": "cuda"}, marks=ON_A_GPU),
        pytest.param("lanes", "lanes", {"device": "cuda", "seeds": 2}, marks=ON_A_GPU),
    ],
)
def test_a_curve_that_was_cut_again_and_again_is_the_undisturbed_one(
    engine: str, name: str, asked: dict[str, object], tiny_file: Path, tmp_path: Path
) -> None:
    asked["engine"] = engine
    whole, cut = (begun(tiny_file, tmp_path / out, name, **asked) for out in ("whole", "cut"))
    attempted(whole)
    # Within the first epoch, at its end, just behind it, far into the last.
    before = [attempted(cut, at_point) for at_point in (3, 5, 1, 9)]
    before.append(attempted(cut))
    assert before[0] == 0 < before[1]
    assert before == sorted(before)
    assert cut.trials()[0].resolved["engine"] == engine
    assert_same(cut, whole)
    has_classes = name in ("restless", "lanes")  # the others give a loss alone
    assert [cut.trial(one.id).confusion.exists() for one in cut.trials()] == [has_classes] * len(
        cut.trials()
    )


@pytest.mark.parametrize("engine", ["eager", "lanes"])
def test_a_trial_that_is_told_to_end_saves_where_it_is_first(
    engine: str, tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "3600")
    asked = {"engine": engine, "optimizer": "adam", "seeds": 1 + (engine == "lanes")}
    whole, cut = (begun(tiny_file, tmp_path / out, "lanes", **asked) for out in ("whole", "cut"))
    attempted(whole)
    assert not ask_to_end()  # nobody trains
    assert attempted(cut, 4, Told) == 0
    assert [trial.state for trial in cut.trials()] == ["interrupted"] * len(cut.trials())
    # Lanes log a point each.
    assert attempted(cut) == 4 // len(cut.trials()) * 2
    assert_same(cut, whole)


def test_probes_go_on_between_their_periods(tiny_file: Path, tmp_path: Path) -> None:
    probes = ("relu:grad_input:sq_sum", "norm:activation:dead_fraction", "*.weight:update:norm@13")
    runs = [begun(tiny_file, tmp_path / out, "restless", probes=probes) for out in ("whole", "cut")]
    whole, cut = runs
    attempted(whole)
    # At ends of epochs: periods are open at all other points.
    assert [attempted(cut, 10), attempted(cut, 9), attempted(cut)] == [0, 13, 26]
    ours, theirs = (run.trial("learn-seed1") for run in (cut, whole))
    assert ours.probes_file.read_bytes() == theirs.probes_file.read_bytes()
    assert ours.probes.read() == theirs.probes.read()
    assert cut.trials()[0].notes == whole.trials()[0].notes
    assert_same(cut, whole)


def test_a_damaged_checkpoint_falls_back_to_the_one_before_and_then_to_the_start(
    tiny_file: Path, tmp_path: Path
) -> None:
    whole, cut = (begun(tiny_file, tmp_path / out, "restless") for out in ("whole", "cut"))
    attempted(whole)
    attempted(cut, 6)
    folder = cut.trial("learn-seed1").resume_folder
    last, older = sorted(folder.iterdir(), key=lambda path: -int(path.stem.partition("-")[0]))
    content = bytearray(last.read_bytes())
    content[500:600] = bytes(100)
    last.write_bytes(content)
    assert attempted(cut, 1) == int(older.stem.partition("-")[0])
    for path in folder.iterdir():
        path.write_bytes(path.read_bytes()[:-7])
    (folder / "9-1-0123.safetensors").write_bytes(b"of an earlier version")
    assert attempted(cut) == 0
    assert [one.code for one in cut.trials()[0].notes].count("checkpoint_unfit") == 1
    assert_same(cut, whole)


def test_a_model_that_counts_in_python_starts_anew(tiny_file: Path, tmp_path: Path) -> None:
    whole, cut = (begun(tiny_file, tmp_path / out, "counting") for out in ("whole", "cut"))
    attempted(whole)
    attempted(cut, 9)
    assert attempted(cut) == 0
    assert_same(cut, whole)


def test_another_setup_does_not_go_on_from_a_checkpoint(tiny_file: Path, tmp_path: Path) -> None:
    cut = begun(tiny_file, tmp_path / "cut", "restless")
    attempted(cut, 4)
    tiny_file.write_text(tiny_file.read_text().replace("Dropout(0.3)", "Dropout(0.4)"))
    assert attempted(cut) == 0
