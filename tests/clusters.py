"""Real clusters of two nodes on this machine, for the tests of executors."""

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

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
        ClusterName=test
        SlurmctldHost={host}(127.0.0.1)
        SlurmctldPort={control}
        SlurmUser=root
        AuthType=auth/munge
        AuthInfo=socket={folder}/munge.socket
        StateSaveLocation={folder}/state
        SlurmdSpoolDir={folder}/spool-%n
        SlurmctldPidFile={folder}/slurmctld.pid
        SlurmdPidFile={folder}/slurmd-%n.pid
        SlurmctldLogFile={folder}/slurmctld.log
        SlurmdLogFile={folder}/slurmd-%n.log
        ProctrackType=proctrack/linuxproc
        TaskPlugin=task/none
        SelectType=select/cons_tres
        SelectTypeParameters=CR_CPU
        SchedulerParameters=sched_interval=1,batch_sched_delay=0,defer_batch=0
        ReturnToService=2
        MpiDefault=none
        KillWait=15
        SlurmdTimeout=20
        NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[0]} CPUs=1 State=UNKNOWN
        NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1 State=UNKNOWN
        PartitionName=main Nodes=n1,n2 Default=YES MaxTime=60 State=UP
    """
    conf = folder / "slurm.conf"
    conf.write_text("\n".join(line.strip() for line in settings.splitlines()))
    files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log"}
    munge = [f"--{name}={folder}/munge.{ending}" for name, ending in files.items()]
    with ExitStack() as stack:
        for words in (
            ["munged", "--foreground", "--force", *munge, f"--seed-file={folder}/munge.seed"],
            ["slurmctld", "-D", "-f", str(conf)],
            ["slurmd", "-D", "-N", "n1", "-f", str(conf)],
            ["slurmd", "-D", "-N", "n2", "-f", str(conf)],
        ):
            stack.enter_context(_daemon(words, folder / f"{words[0]}.out"))
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


@contextmanager
def _daemon(words: list[str], log: Path) -> Iterator[None]:
    with log.open("ab") as lines:
        process = subprocess.Popen(words, stdout=lines, stderr=lines)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_ports(number: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
