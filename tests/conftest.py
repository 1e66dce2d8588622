"""Shared by all tests: no network, one thread per process, a workload that trains in milliseconds."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from command import Done, Verb
from torchless import Torchless
from training import HomedSetup, MakeSetup, homed
from trainlab.analysis.document import Document
from trainlab.analysis.finding import RunData
from trainlab.cli import call as call_trainlab
from trainlab.data.dataset import Dataset, Split
from trainlab.execute.executors import LocalExecutor
from trainlab.plan import Trial
from trainlab.record.run_folder import RunFolder, TrialFolder
from trainlab.spec import settings_for
from trainlab.workloads.workload import Workload


@pytest.fixture(autouse=True)
def _offline_in_english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINLAB_OFFLINE", "1")
    # Whatever the locale of the machine that tests.
    monkeypatch.setenv("TRAINLAB_LANG", "en")


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # Tests run side by side: two processes of two threads each are several times slower on two cores.
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(1)
    # Training flushes denormals in the whole process; hypothesis refuses to work in one that does.
    torch.set_flush_denormal(False)


@pytest.fixture(scope="session")
def cache_of_tests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For what tests measure and compile."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _own_cache(
    request: pytest.FixtureRequest, cache_of_tests: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(cache_of_tests / "state"))
    # The full data sets lie in the user's own cache.
    if request.node.get_closest_marker("full") is None:
        monkeypatch.setenv("TRAINLAB_CACHE", str(cache_of_tests))


@pytest.fixture(autouse=True)
def _one_trial_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, unless several jobs are asked for: starting processes takes longer than the
    trials of most tests. Processes are tested in `tests/execute`, with one server for all."""
    learns_here = LocalExecutor._learns_here

    def unless_several(executor: LocalExecutor, workload: str) -> bool:
        is_own = executor.asked_jobs not in ("auto", 1) or executor.on != "local"
        return learns_here(executor, workload) if is_own else True

    monkeypatch.setattr(LocalExecutor, "_learns_here", unless_several)
    monkeypatch.setattr("trainlab.lab.driving.FORKED", ())
    monkeypatch.setattr("trainlab.execute.launch.close", lambda: None)
    monkeypatch.setattr("trainlab.execute.jobs.copies_that_fit", lambda: 0)


@pytest.fixture
def trainlab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Verb:
    """The command in this process, where torch is loaded already, in the test's own folder.

    A run that is interrupted, prints to stdout from C or fills a disk needs a process of its own.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*words: str | Path, code: int = 0, **variables: str) -> Done:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        try:
            ended: object = call_trainlab([str(word) for word in words])
        except SystemExit as end:
            ended = end.code
        printed = capsys.readouterr()
        assert ended == code, printed.err
        assert "Traceback" not in printed.err
        return Done(printed.out, printed.err)

    return call


@pytest.fixture(scope="session")
def torchless() -> Iterator[Torchless]:
    """Runs command lines where torch is not loaded, and which do not load it."""
    process = Torchless()
    yield process
    process.close()


def tiny_data(choice: str = "auto") -> Dataset:
    """103 training and 31 test samples of 8 numbers in 3 classes; learnable."""
    draw = torch.Generator().manual_seed(0)
    centres = torch.randn(3, 8, generator=draw) * 2

    def split(count: int) -> Split:
        labels = torch.randint(3, (count,), generator=draw)
        return Split(centres[labels] + torch.randn(count, 8, generator=draw), labels)

    return Dataset("tiny", split(103), split(31))


def tiny_model(hidden: int = 16, dropout: float = 0.2) -> nn.Module:
    """Small enough to train in milliseconds, with dropout so that random streams matter."""
    return nn.Sequential(nn.Linear(8, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, 3))


@pytest.fixture
def tiny() -> Workload:
    """The tiny workload."""
    return Workload(
        name="tiny",
        model=tiny_model,
        data=tiny_data,
        loss=F.cross_entropy,
        defaults={"epochs": 2, "batch_size": 10, "lr": 0.01},
    )


@pytest.fixture
def make_setup(tiny: Workload, tmp_path: Path) -> MakeSetup:
    """A ready set-up of the tiny workload, or of another, with settings overridden."""
    made = iter(range(1000))

    def make(seed: int = 1, workload: Workload = tiny, **asked: Any) -> HomedSetup:
        settings = settings_for(workload.defaults, {"device": "cpu", **asked})
        trial = Trial(id="t", workload=workload.name, seed=seed, settings=settings)
        folder = TrialFolder(tmp_path / f"trial-{next(made)}")
        folder.path.mkdir()
        return homed(trial, workload, folder)

    return make


TINY_FILE = """
import torch, torch.nn.functional as F
from torch import nn
from trainlab import Dataset, Split, Workload

def data(choice):
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(130, 8, generator=draw)
    y = (x[:, 0] > 0).long()
    return Dataset("tiny", Split(x[:100], y[:100]), Split(x[100:], y[100:]))

def model(hidden=8):
    return nn.Sequential(nn.Linear(8, hidden), nn.ReLU(), nn.Linear(hidden, 2))

tiny = Workload(name="tiny", model=model, data=data, loss=F.cross_entropy,
                defaults={"epochs": 2, "batch_size": 10, "lr": 0.01})
"""


@pytest.fixture
def tiny_file(tmp_path: Path) -> Path:
    """A user's own workload file; its workload is called `tiny`."""
    path = tmp_path / "own_work.py"
    path.write_text(TINY_FILE)
    return path


@pytest.fixture(scope="session")
def rich_folder(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run with everything a report can show, made once; not to be changed."""
    from rich_run import rich_run

    return rich_run(tmp_path_factory.mktemp("rich") / "run")


@pytest.fixture(scope="session")
def rich(rich_folder: RunFolder) -> RunData:
    """What its report is made from."""
    from rich_run import run_data

    return run_data(rich_folder)


@pytest.fixture(scope="session")
def reports(rich: RunData) -> dict[str, Document]:
    """Its report by language."""
    from trainlab.report.contents import report_of

    return {lang: report_of(rich, lang) for lang in ("en", "zh")}
