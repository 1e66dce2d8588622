"""Processes forked from a server: they are what processes started cold are, and end as those do."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from asking import groups_of, study_of
from children import children
from trainlab.execute.executors import ProcessesExecutor
from trainlab.execute.launch import ForkedProcess, Launcher, WorkerProcess
from trainlab.execute.planned_run import start_run
from trainlab.record.run_folder import RunFolder
from trainlab.spec import CostSpec
from trainlab.train.loader import Loader

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes start cold elsewhere")

FACTS = """
import json, os, random, signal, sys, threading
import numpy
facts = {{
    "argv": sys.orig_argv[1:4],
    "folder": os.getcwd(),
    "environment": dict(os.environ),
    "handlers": [str(signal.getsignal(n)).partition(" at 0x")[0] for n in (2, 15, 1, 17)],
    "wakeup": signal.set_wakeup_fd(-1),
    "open": sorted(int(n) for n in os.listdir("/proc/self/fd"))[:3],
    "num_open": len(os.listdir("/proc/self/fd")),
    "streams": [sys.stdin.encoding, sys.stderr.errors, sys.stdin.isatty()],
    "threads": threading.active_count(),
    "torch_threads": torch.get_num_threads(),
    "path_begins": sys.path[:2],
}}
drawn = [random.random(), float(numpy.random.rand()), torch.initial_seed()]
with open({path!r} + str(os.getpid()), "w") as stream:
    json.dump({{"facts": facts, "drawn": drawn}}, stream)
"""


@pytest.fixture
def launcher() -> Iterator[Launcher]:
    with closing(Launcher()) as made:
        yield made


def learning(tiny_file: Path, out: Path, seeds: int = 2) -> RunFolder:
    settings = {"device": "cpu", "threads": 1, "epochs": 1}
    return start_run(study_of(f"{tiny_file}:tiny", settings, seeds=seeds, tensorboard=False), out)


def run_in(process: WorkerProcess) -> None:
    process.begin()
    process.finish_run()
    process.record_death()


def forked_of(process: WorkerProcess) -> ForkedProcess:
    inner = process._process
    assert isinstance(inner, ForkedProcess)
    return inner


def told_by(tiny_file: Path, tmp_path: Path, *, forks: bool) -> list[dict[str, Any]]:
    """What two workers found in their processes."""
    name = "forked" if forks else "cold"
    run = learning(tiny_file, tmp_path / name)
    before = tiny_file.read_text()
    tiny_file.write_text(before + FACTS.format(path=str(tmp_path / f"{name}-facts-")))
    with closing(ProcessesExecutor(Loader(), launcher=Launcher(forks=forks))) as executor:
        executor.run(run, groups_of(run), lambda: False)
    tiny_file.write_text(before)
    return [json.loads(path.read_text()) for path in tmp_path.glob(f"{name}-facts-*")]


@pytest.mark.slow
def test_a_forked_process_finds_what_one_started_cold_does(
    tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OF_THIS_RUN", "1")
    cold = told_by(tiny_file, tmp_path, forks=False)
    forked = told_by(tiny_file, tmp_path, forks=True)
    assert len(cold) == len(forked) == 2
    assert forked[0]["facts"] == forked[1]["facts"] == cold[0]["facts"]
    # What a file draws as it is imported, data say, is the same everywhere.
    assert forked[0]["drawn"] == forked[1]["drawn"] == cold[0]["drawn"]
    assert len(set(cold[0]["drawn"])) == 3


@pytest.mark.slow
def test_a_changed_environment_reaches_the_next_process(
    tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launcher: Launcher
) -> None:
    run = learning(tiny_file, tmp_path / "r")
    first, second = groups_of(run)
    seen = tmp_path / "seen"
    tiny_file.write_text(
        f"{tiny_file.read_text()}\nimport os\n"
        f"open({str(seen)!r}, 'a').write(os.environ.get('LATE', 'no') + ' ')\n"
    )
    for group in (first, second):
        process = WorkerProcess(run, group, "here", launcher)
        process.wait_until_ready()
        run_in(process)
        process.kill()
        monkeypatch.setenv("LATE", "yes")
    assert seen.read_text().split() == ["no", "yes"]


@pytest.mark.parametrize(
    ("act", "told"),
    [("os._exit(7)", "ended with code 7"), ("os.kill(os.getpid(), 9)", "was ended by SIGKILL")],
)
@pytest.mark.slow
def test_the_exit_code_of_a_forked_process_is_known(
    act: str, told: str, tiny_file: Path, tmp_path: Path, launcher: Launcher
) -> None:
    run = learning(tiny_file, tmp_path / "r", seeds=1)
    tiny_file.write_text(f"{tiny_file.read_text()}\nimport os\n{act}\n")
    process = WorkerProcess(run, groups_of(run)[0], "here", launcher)
    process.wait_until_ready()
    pid = forked_of(process).pid
    assert pid is not None
    assert psutil.Process(pid).ppid() == children()[-1].pid
    run_in(process)
    assert not psutil.pid_exists(pid), "a zombie is left"
    error = run.trials()[0].error
    assert error is not None
    assert error.message == f"its process {told}"
    process.kill()


def kill_server() -> None:
    (server,) = children()
    server.kill()
    while server.is_running() and server.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)


@pytest.mark.parametrize("moment", ["while it imports", "before its processes begin", "later"])
@pytest.mark.slow
def test_where_the_server_is_killed_processes_start_cold(
    moment: str, tiny_file: Path, tmp_path: Path, launcher: Launcher
) -> None:
    run = learning(tiny_file, tmp_path / "r")
    first, second = groups_of(run)
    processes = [WorkerProcess(run, first, "here", launcher)]
    if moment == "while it imports":
        kill_server()
    processes[0].wait_until_ready()
    if moment == "before its processes begin":
        kill_server()
    run_in(processes[0])
    if moment == "later":
        kill_server()
    processes.append(WorkerProcess(run, second, "here", launcher))
    assert isinstance(processes[1]._process, subprocess.Popen)
    processes[1].wait_until_ready()
    run_in(processes[1])
    assert [trial.state for trial in run.trials()] == ["done", "done"]
    for process in processes:
        process.kill()


def test_a_process_is_killed_at_once_while_the_server_still_imports(
    tiny_file: Path, tmp_path: Path, launcher: Launcher
) -> None:
    run = learning(tiny_file, tmp_path / "r", seeds=1)
    process = WorkerProcess(run, groups_of(run)[0], "here", launcher)
    process.kill()
    assert forked_of(process).returncode == -signal.SIGKILL
    launcher.close()
    assert children() == []


@pytest.mark.slow
def test_each_bench_is_forked_from_a_server_of_its_own(tiny_file: Path, tmp_path: Path) -> None:
    """Else all processes of a run would share one layout of addresses, and benches its luck."""
    cost = CostSpec(
        processes=2, budget_s=0.1, extra_s=0, warmup_steps=1, active_steps=2, trace_mb=0
    )
    settings = {"device": "cpu", "threads": 1}
    asked = {"vary": {"batch_size": [5, 10]}, "cost": cost, "learn": False}
    run = start_run(study_of(f"{tiny_file}:tiny", settings, **asked), tmp_path / "r")
    seen = tmp_path / "seen"
    tiny_file.write_text(
        f"{tiny_file.read_text()}\nimport os\n"
        f"open({str(seen)!r}, 'a').write(f'{{os.getppid()}} ')\n"
    )
    with closing(ProcessesExecutor(Loader())) as executor:
        executor.run(run, groups_of(run), lambda: False)
    assert {trial.state for trial in run.trials()} == {"done"}
    parents = seen.read_text().split()
    first, second = parents[:4], parents[4:8]
    assert len(set(first)) == len(set(second)) == 1
    assert first[0] != second[0]
    # What supplies no speed is forked from the server that is there.
    assert set(parents[8:]) == set(second)


DRIVER = """
import sys
from pathlib import Path
from asking import groups_of
from trainlab.execute.executors import ProcessesExecutor
from trainlab.record.folder import RunFolder
from trainlab.spec import CostSpec
from trainlab.train.loader import Loader
run = RunFolder(Path(sys.argv[1]))
ProcessesExecutor(Loader(), 2).run(run, groups_of(run), lambda: False)
"""


def until(is_so: Callable[[], bool], within_s: float = 60.0) -> None:
    end_s = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < end_s
        time.sleep(0.05)


@pytest.mark.slow
def test_a_killed_driver_leaves_no_process_and_its_trials_are_recorded(
    tiny_file: Path, tmp_path: Path
) -> None:
    run = learning(tiny_file, tmp_path / "r")
    tiny_file.write_text(
        f"{tiny_file.read_text()}\nimport dataclasses, subprocess\n"
        "tiny = dataclasses.replace(tiny, loss=lambda *given: subprocess.run(['sleep', '600']))\n"
    )
    tests = str(Path(__file__).parent.parent)
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([tests, *sys.path])}
    # As a shell starts what it runs in the background.
    command = ["sh", "-c", 'trap "" INT; exec "$@"', "-", sys.executable, "-c", DRIVER]
    driver = subprocess.Popen([*command, str(run.path)], env=variables)
    # A server, two workers, and what each of them has started.
    until(lambda: len(psutil.Process(driver.pid).children(recursive=True)) >= 5)
    family = psutil.Process(driver.pid).children(recursive=True)
    driver.kill()
    driver.wait()
    until(lambda: not any(process.is_running() for process in family))
    assert [trial.state for trial in run.trials()] == ["interrupted", "interrupted"]
