"""Mistakes planted in a user's file: each is told as hers, by file and line or by field."""

import warnings
from pathlib import Path

import pytest

import trainlab as product
from command import Verb
from trainlab.record.run_folder import RunFolder
from trainlab.words.error_lines import error_line
from trainlab.workloads.user_code import HINTS, is_own, mistake_in

START = """import torch, torch.nn.functional as F
from torch import nn
from trainlab import Dataset, Split, Workload

x, y = torch.randn(25, 8), torch.arange(25) % 2
whole = Dataset("tiny", Split(x, y), Split(x, y))
def model():
    return nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2))
def planted(*given):
    raise ValueError("planted")
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.into, self.last = nn.Linear(8, 4), nn.Linear(4, 2)
    def forward(self, inputs):
        return self.last(self.into(inputs))
class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 25
    def __getitem__(self, row):
        return x[row], y[row]
class Raising(torch.autograd.Function):
    @staticmethod
    def forward(ctx, given):
        return given.clone()
    @staticmethod
    def backward(ctx, gradient):
        raise ValueError("planted")
def pair(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1])
fields = dict(name="tiny", model=model, data=whole, loss=F.cross_entropy, metrics={},
              defaults={"epochs": 1, "batch_size": 8, "lr": 0.01})
"""
END = "\ntiny = Workload(**fields)\n"
OWN = "fields.update(loss=None, step=pair)\n"

RAISED = {
    "loss": ("fields.update(loss=planted)", "10", "loss raised"),
    "backward": (
        "fields.update(loss=lambda o, t: Raising.apply(o.mean()))",
        "28",
        "backward raised",
    ),
    "model": ("fields.update(model=planted)", "10", "model"),
    "data": ("fields.update(data=planted)", "10", "data raised"),
    "update": (
        "make = lambda model, settings: torch.optim.SGD(model.parameters(), 0.1)\n"
        "fields.update(loss=None, update=planted, evaluate=pair, optimizer=make)",
        "10",
        "update raised",
    ),
    "metric": ("fields.update(metrics={'mine': planted})", "10", "metrics.mine raised"),
    "forward of a layer": (
        "class Outer(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.inner = Net()\n"
        "    def forward(self, x):\n        return self.inner(x)\n"
        "Net.forward = planted\nfields.update(model=Outer)",
        "10",
        "model, in layer inner (Net) raised ValueError: planted",
    ),
    "sample in a process that fetches": (
        "Samples.__getitem__ = planted\n"
        "load = torch.utils.data.DataLoader(Samples(), 8, num_workers=1)\n"
        "fields.update(data=Dataset('own', load, load))",
        "10",
        "data raised",
    ),
    "schedule": (
        "class Plan(torch.optim.lr_scheduler.LRScheduler):\n"
        "    def get_lr(self):\n"
        "        return [0.1] if self.last_epoch == 0 else planted()\n"
        "def make(model, settings):\n"
        "    sgd = torch.optim.SGD(model.parameters(), 0.1)\n"
        "    return sgd, Plan(sgd)\n"
        "fields.update(optimizer=make)",
        "10",
        "optimizer.schedule raised",
    ),
}
"""What is planted, the line of the file that raises, and what is told."""

NOTHING = "gave None (is `return` missing?), must"
TOLD = {
    "a detached loss": (
        "fields.update(loss=lambda o, t: F.cross_entropy(o, t).detach())",
        ["loss: gave a loss without gradient"],
    ),
    "samples of three parts": (
        "Samples.__getitem__ = lambda self, row: (x[row], y[row], row)\n"
        "fields.update(data=Dataset('own', Samples(), Samples()))",
        ["data: gave a batch that is a list of 3"],
    ),
    "layers that do not fit": (
        "class Wrong(Net):\n"
        "    def __init__(self):\n        super().__init__()\n        self.last = nn.Linear(5, 2)\n"
        "fields.update(model=Wrong)",
        ["model, in layer last (Linear) raised RuntimeError"],
    ),
    "an optimizer of another model": (
        "fields.update(optimizer=lambda m, s: torch.optim.SGD(model().parameters(), 0.1))",
        ["none of them the model's"],
    ),
    "a model that trials share": (
        "net = Net()\nfields.update(model=lambda: net)",
        ["model: into.weight is a parameter of an earlier model"],
    ),
    "batch norm over one sample": (
        "fields.update(model=lambda: nn.Sequential(nn.Linear(8, 2), nn.BatchNorm1d(2)))",
        ["Dataset(…, drop_last=True)"],
    ),
    "a missing module": ("import nowhere_at_all", ["install nowhere_at_all where trainlab is"]),
    "wrong syntax": ("def (", ["own.py:33: SyntaxError"]),
    "a forward without return": (
        "class Own(Net):\n    def forward(self, x):\n        self.into(x)\nfields.update(model=Own)",
        [f"own.py:34: model: Own.forward {NOTHING} give a tensor"],
    ),
    "no super().__init__()": (
        "class Own(nn.Module):\n    def __init__(self):\n        self.a = nn.Linear(8, 2)\n"
        "fields.update(model=Own)",
        [
            "model(): own.py:35: AttributeError: cannot assign module before Module.__init__() call",
            "the model does not call super().__init__(); make that the first line of its __init__",
        ],
    ),
    "float targets of a cross-entropy": (
        "floats = Split(x, y.float())\nfields.update(data=Dataset('own', floats, floats))",
        ["own.py:35: loss raised RuntimeError", "make the targets so with .long()"],
    ),
    "data that gives nothing": (
        "def data(choice):\n    Dataset('own', Split(x, y), Split(x, y))\nfields.update(data=data)",
        [f"own.py:33: tiny: data {NOTHING} be trainlab.Dataset"],
    ),
    "a field that is misspelt": (
        "fields.update(los=fields.pop('loss'))",
        ["own.py:34: Workload: has no field 'los'; did you mean loss?"],
    ),
    "no name": ("fields.pop('name')", ["own.py:34: Workload: lacks name; give name=…"]),
    "labels of a split": (
        "Split(x, labels=y)",
        ["own.py:33: Split: has no field 'labels'; known: inputs, targets"],
    ),
    "a class as metric": (
        "from torchmetrics import MeanSquaredError\n"
        "fields.update(metrics={'mine': MeanSquaredError})",
        ["own.py:35: tiny: metrics.mine: is the class MeanSquaredError; make one: MeanSquaredErr"],
    ),
    "a list as defaults": (
        "fields.update(defaults=[3])",
        ["own.py:34: tiny: defaults: is a list, must be a mapping from setting to value"],
    ),
    "a loss of one argument": (
        "fields.update(loss=lambda o: o.mean())",
        ["own.py:34: loss raised TypeError", "loss and metrics get (outputs, targets)"],
    ),
}
"""What is planted, and the lines and the help that are told."""
MISTAKES = {name: (planted, *expected) for name, (planted, expected) in TOLD.items()} | {
    name: (planted, f'own.py", line {line}, in ', f"own.py:{line}: ", field, "ValueError: planted")
    for name, (planted, line, field) in RAISED.items()
}


def write(folder: Path, planted: str) -> str:
    (folder / "own.py").write_text(START + planted + END)
    return "own.py:tiny"


def check_told(trainlab: Verb, *words: str) -> str:
    """What a command says on stderr, once it has been seen to be a mistake and the records to be whole."""
    told: str = trainlab(*words, "--device", "cpu", "--threads", "1", code=2).stderr
    for ours in ("defect", "trainlab/train", "site-packages/torch", "<string>"):
        assert ours not in told
    if Path("r").exists():
        trainlab("verify", "r")
        (error,) = {trial.error for trial in RunFolder(Path("r")).trials()}
        assert error is not None
        assert error.mistake
    return told


FAST = (
    *("model", "update", "forward of a layer"),
    *("a detached loss", "batch norm over one sample", "a missing module", "wrong syntax"),
    *("a forward without return", "a field that is misspelt"),
)
"""Are planted by `make test`, the others by slower tests."""
SLOW = [pytest.param(one, marks=pytest.mark.slow) for one in MISTAKES if one not in FAST]


@pytest.mark.parametrize("mistake", [*FAST, *SLOW])
def test_a_mistake_is_told_by_its_line_or_field_and_with_help(
    mistake: str, trainlab: Verb, tmp_path: Path
) -> None:
    planted, *expected = MISTAKES[mistake]
    told = check_told(trainlab, "run", write(tmp_path, planted), "--out", "r", "--quiet")
    for part in expected:
        assert part in told


def test_data_may_come_from_a_function_without_a_choice(trainlab: Verb, tmp_path: Path) -> None:
    planted = "def data(*, noise=0.0):\n    return whole\nfields.update(data=data)"
    words = ("--out", "r", "--quiet", "--device", "cpu", "--data-options", "noise=0.5")
    trainlab("run", write(tmp_path, planted), *words)
    (trial,) = RunFolder(tmp_path / "r").trials()
    assert trial.state == "done"
    assert trial.settings["data_options"] == {"noise": 0.5}


def test_an_engine_of_many_trials_tells_the_same(trainlab: Verb, tmp_path: Path) -> None:
    for mistake in ("loss", "backward"):
        planted, line, field = RAISED[mistake]
        words = ("--out", mistake, "--quiet", "--engine", "lanes", "--seeds", "2")
        told = check_told(trainlab, "run", write(tmp_path, planted), *words)
        assert f"own.py:{line}: {field}" in told


def test_a_file_with_one_workload_is_run_without_its_name(trainlab: Verb, tmp_path: Path) -> None:
    write(tmp_path, "")
    trainlab("run", "own.py", "--out", "r", "--quiet", "--device", "cpu")
    assert RunFolder(Path("r")).study().study["workload"] == "own.py:tiny"


def test_a_plan_tells_what_a_file_raises(trainlab: Verb, tmp_path: Path) -> None:
    told = check_told(trainlab, "run", write(tmp_path, "1 / 0"), "--dry-run")
    assert 'own.py", line 33, in <module>' in told
    assert "own.py:33: ZeroDivisionError: division by zero" in told


def test_in_python_a_trial_that_fails_is_never_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    reference = write(tmp_path, RAISED["loss"][0])
    with pytest.warns(RuntimeWarning, match="own.py:10: loss raised ValueError: planted") as told:
        run = product.run(reference, out="r", seeds=2, device="cpu")
    assert len(told) == 1
    assert "2 of 2 trials failed; the first is learn-seed1" in str(told[0].message)
    assert [trial.state for trial in run.trials()] == ["failed", "failed"]
    write(tmp_path, "")
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        product.run(reference, out="well", device="cpu")


def test_what_is_ours_is_not_blamed_on_the_user() -> None:
    assert mistake_in(ValueError("ours")) is None
    assert not is_own(product.__file__)
    assert is_own(__file__)
    assert not is_own(warnings.__file__)


def test_what_we_say_of_a_workload_and_every_hint_has_a_chinese() -> None:
    for line in (
        "own.py:37: model: Own.forward gave None (is `return` missing?), must give a tensor",
        "metrics.accuracy: targets are no classes; give metrics={} or your own",
        "own.py:33: tiny: data gave None (is `return` missing?), must be trainlab.Dataset",
        "Workload: has no field 'los'; did you mean loss?",
        "Workload: lacks name, model; give name=…, model=…",
        "Split: targets: is None, must be a tensor with a row for each sample, as torch.tensor(y)",
        "tiny: metrics.mine: is the class Accuracy; make one: Accuracy(…)",
        "tiny: loss, step, update: has loss and step, must have one of them",
    ):
        said = error_line(line, "zh")
        assert set("须请否") & set(said)
        assert "must" not in said
    for hint in HINTS.values():
        line = hint.format(name="something")
        assert error_line(line, "zh") != line
    raised = "own.py:10: model, in layer last (Linear) raised RuntimeError: mat1 and mat2"
    said = "own.py:10：model 的层 last (Linear) 引发了 RuntimeError: mat1 and mat2"
    assert error_line(raised, "zh") == said
