"""Ray and Slurm, on real clusters of two nodes that are started here."""

import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
import pytest

from asking import curves, groups_of, study_of
from servers import daemon, free_ports
from trainlab.errors import SpecError
from trainlab.execute.cluster import slurm_options
from trainlab.execute.executors import Executor, executor_for
from trainlab.execute.planned_run import start_run
from trainlab.record.run_folder import RunFolder
from trainlab.spec import CostSpec
from trainlab.train.loader import Loader

QUICK = CostSpec(processes=1, budget_s=0.1, warmup_steps=1, active_steps=2, trace_mb=0)
SLOW = """
import time
class Slow(nn.Linear):
    def forward(self, x):
        time.sleep(0.02)
        return super().forward(x)
import dataclasses
slow = dataclasses.replace(tiny, model=lambda: Slow(8, 2))
"""


PATIENCE_S = 90.0
"""For a cluster to stand ready."""


@contextmanager
def slurm_cluster(folder: Path) -> Iterator[Path]:
    """munged, slurmctld and two slurmd of one CPU each; gives the file that leads commands to them, as
    SLURM_CONF."""
    host, (control, *ports) = socket.gethostname(), free_ports(3)
    (folder / "munge.key").write_bytes(secrets.token_bytes(64))
    (folder / "munge.key").chmod(0o400)
    for name in ("state", "spool-n1", "spool-n2"):
        (folder / name).mkdir()
    settings = f"""
        ClusterName=test SlurmctldHost={host}(127.0.0.1) SlurmctldPort={control} SlurmUser=root
        AuthType=auth/munge AuthInfo=socket={folder}/munge.socket
        StateSaveLocation={folder}/state SlurmdSpoolDir={folder}/spool-%n
        SlurmctldPidFile={folder}/slurmctld.pid SlurmdPidFile={folder}/slurmd-%n.pid
        SlurmctldLogFile={folder}/slurmctld.log SlurmdLogFile={folder}/slurmd-%n.log
        ProctrackType=proctrack/linuxproc TaskPlugin=task/none MpiDefault=none
        SelectType=select/cons_tres SelectTypeParameters=CR_CPU
        SchedulerParameters=sched_interval=1,batch_sched_delay=0,defer_batch=0
        ReturnToService=2 KillWait=15 SlurmdTimeout=20
    """
    lines = settings.split()
    for name, port in zip(("n1", "n2"), ports, strict=True):
        at = f"NodeHostname={host} NodeAddr=127.0.0.1 Port={port}"
        lines.append(f"NodeName={name} {at} CPUs=1 State=UNKNOWN")
    lines.append("PartitionName=main Nodes=n1,n2 Default=YES MaxTime=60 State=UP\n")
    conf = folder / "slurm.conf"
    conf.write_text("\n".join(lines))
    files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log"}
    munge = [f"--{name}={folder}/munge.{ending}" for name, ending in files.items()]
    with ExitStack() as stack:
        for words in (
            ["munged", "--foreground", "--force", *munge, f"--seed-file={folder}/munge.seed"],
            ["slurmctld", "-D", "-f", str(conf)],
            ["slurmd", "-D", "-N", "n1", "-f", str(conf)],
            ["slurmd", "-D", "-N", "n2", "-f", str(conf)],
        ):
            stack.enter_context(daemon(words, folder / f"{words[0]}.out"))
            time.sleep(0.5)
        deadline_s = time.monotonic() + PATIENCE_S
        while _idle_nodes(conf) < 2:
            assert time.monotonic() < deadline_s, "the cluster does not come up"
            time.sleep(0.3)
        yield conf


def why_no_slurm() -> str | None:
    """Why there is no Slurm here; None where there is."""
    missing = [n for n in ("munged", "slurmctld", "slurmd", "sbatch") if shutil.which(n) is None]
    if missing:
        return f"{missing[0]} is not installed (Debian: apt-get install slurmctld slurmd munge)"
    return None if os.geteuid() == 0 else "slurmd needs root"


@contextmanager
def ray_cluster(cpus: int = 1) -> Iterator[tuple[str, list[int]]]:
    """A head and two further nodes, of that many CPUs each; gives its address and the nodes' raylets."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        nodes = [cluster.add_node(num_cpus=cpus) for _ in range(2)]
        cluster.wait_for_nodes()
        pids = [node.all_processes["raylet"][0].process.pid for node in nodes]
        yield cluster.address, pids
    finally:
        cluster.shutdown()


def _idle_nodes(conf: Path) -> int:
    words = ["sinfo", "--noheader", "--format=%D %T"]
    variables = {**os.environ, "SLURM_CONF": str(conf)}
    done = subprocess.run(words, env=variables, capture_output=True, text=True)
    return sum(int(line.split()[0]) for line in done.stdout.splitlines() if line.endswith("idle"))


@pytest.fixture(scope="module", autouse=True)
def _found_by_nodes() -> Iterator[None]:
    """Nodes are processes of their own: what is tested must be what they find."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2] / "src"))
        patch.setenv("TRAINLAB_OFFLINE", "1")
        yield


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if (reason := why_no_slurm()) is not None:
        pytest.skip(reason)
    with slurm_cluster(tmp_path_factory.mktemp("slurm")) as conf, pytest.MonkeyPatch.context() as p:
        p.setenv("SLURM_CONF", str(conf))
        yield "slurm:time=10"


@pytest.fixture(scope="module")
def ray() -> Iterator[str]:
    pytest.importorskip("ray")
    with ray_cluster() as (address, _):
        yield f"ray:{address}"


@pytest.fixture(params=["ray", "slurm"])
def on(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


def started(workload: str, out: Path, epochs: int = 1, **fields: object) -> RunFolder:
    settings = {"device": "cpu", "threads": 1, "epochs": epochs}
    return start_run(study_of(workload, settings, tensorboard=False, **fields), out)


def slow_run(tiny_file: Path, out: Path, seeds: int = 4) -> RunFolder:
    """Trials of some two seconds each."""
    tiny_file.write_text(tiny_file.read_text() + SLOW)
    return started(f"{tiny_file}:slow", out, epochs=10, seeds=seeds)


def run_all(executor: Executor, run: RunFolder) -> None:
    executor.run(run, groups_of(run), lambda: False)


def when(is_so: Callable[[], bool], act: Callable[[], None]) -> Thread:
    """Acts in a thread as soon as something is so."""

    def wait() -> None:
        deadline_s = time.monotonic() + 120
        while not is_so() and time.monotonic() < deadline_s:
            time.sleep(0.05)
        act()

    thread = Thread(target=wait, daemon=True)
    thread.start()
    return thread


def run_disturbed(on: str, run: RunFolder, act: Callable[[], None], begun: Any = None) -> None:
    """Runs all its trials; acts once some of them run, and something else has begun where it is given."""

    def has_begun() -> bool:
        return any(trial.state == "running" for trial in run.trials()) and (not begun or begun())

    with closing(executor_for(on, Loader())) as executor:
        thread = when(has_begun, act)
        run_all(executor, run)
        thread.join()
    assert {trial.state for trial in run.trials()} == {"done"}


def nodes_of(run: RunFolder) -> list[psutil.Process]:
    """The processes of nodes that work for the run."""
    lines = {one: " ".join(one.info["cmdline"] or ()) for one in psutil.process_iter(["cmdline"])}
    parts = "trainlab.execute.node run", str(run.path)
    return [process for process, line in lines.items() if all(part in line for part in parts)]


@pytest.mark.cluster
def test_a_study_gives_what_it_gives_here(on: str, tiny_file: Path, tmp_path: Path) -> None:
    workload = f"{tiny_file}:tiny"
    here = started(workload, tmp_path / "here", seeds=3)
    run_all(executor_for("inline", Loader()), here)
    there = started(workload, tmp_path / "there", seeds=3, cost=QUICK)
    with closing(executor_for(on, Loader())) as executor:
        assert executor.preflight(there.study().to_study("x"), each_device=False)[0] == "cpu"
        run_all(executor, there)
    assert {(trial.state, trial.attempt) for trial in there.trials()} == {("done", 1)}
    assert curves(there) == curves(here)
    assert {trial.environment for trial in there.trials()} <= there.environment_files().keys()


@pytest.mark.cluster
def test_a_killed_node_process_is_replaced(on: str, tiny_file: Path, tmp_path: Path) -> None:
    here, there = slow_run(tiny_file, tmp_path / "here", 2), slow_run(tiny_file, tmp_path / "r", 2)
    run_all(executor_for("inline", Loader()), here)

    def kill() -> None:
        for node in nodes_of(there):
            node.kill()

    run_disturbed(on, there, kill, lambda: bool(nodes_of(there)))
    assert max(trial.attempt for trial in there.trials()) == 2
    assert curves(there) == curves(here)
    assert nodes_of(there) == []


@pytest.mark.cluster
def test_a_lost_ray_node_is_replaced(tiny_file: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    run = slow_run(tiny_file, tmp_path / "r")
    with ray_cluster() as (address, raylets):
        run_disturbed(f"ray:{address}", run, lambda: os.kill(raylets[0], signal.SIGKILL))


@pytest.mark.cluster
@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_requeued_task_goes_on_with_what_is_left(
    slurm: str, tiny_file: Path, tmp_path: Path
) -> None:
    here, there = slow_run(tiny_file, tmp_path / "here"), slow_run(tiny_file, tmp_path / "r")
    run_all(executor_for("inline", Loader()), here)

    def requeue() -> None:
        told = subprocess.run(
            ["squeue", "-h", "-t", "R", "-o", "%i"], capture_output=True, text=True
        )
        subprocess.run(["scontrol", "requeue", ",".join(told.stdout.split())], check=True)

    run_disturbed(slurm, there, requeue)
    assert max(trial.attempt for trial in there.trials()) == 2
    assert curves(there) == curves(here)


def test_options_of_slurm_are_names_and_values() -> None:
    for text in ("partition", "partition=", "=gpu", "Bad=1", "a b=1"):
        with pytest.raises(SpecError, match=re.escape(f"--slurm: got {text!r}, must be options")):
            slurm_options(text)
    found = slurm_options("partition=gpu,cpus-per-task=2")
    assert found == {"partition": "gpu", "cpus-per-task": "2"}
