"""Real clusters of two nodes on this machine, for the tests of executors."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

PATIENCE_S = 90.0
"""For a cluster to stand ready."""


@contextmanager
def slurm_cluster(folder: Path) -> Iterator[dict[str, str]]:
    """munged, slurmctld and two slurmd of one CPU each; gives the variables that lead commands to them."""
    host, (control, *ports) = socket.gethostname(), _free_ports(3)
    munge = folder / "munge.socket"
    (folder / "munge.key").write_bytes(secrets.token_bytes(64))
    (folder / "munge.key").chmod(0o400)
    (folder / "state").mkdir()
    nodes = [
        f"NodeName=n{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=1 State=UNKNOWN"
        for number, port in enumerate(ports, 1)
    ]
    settings = [
        "ClusterName=test",
        f"SlurmctldHost={host}(127.0.0.1)",
        f"SlurmctldPort={control}",
        "SlurmUser=root",
        "AuthType=auth/munge",
        f"AuthInfo=socket={munge}",
        f"StateSaveLocation={folder}/state",
        f"SlurmdSpoolDir={folder}/spool-%n",
        f"SlurmctldPidFile={folder}/slurmctld.pid",
        f"SlurmdPidFile={folder}/slurmd-%n.pid",
        f"SlurmctldLogFile={folder}/slurmctld.log",
        f"SlurmdLogFile={folder}/slurmd-%n.log",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_CPU",
        "SchedulerParameters=sched_interval=1,batch_sched_delay=0,defer_batch=0",
        "ReturnToService=2",
        "MpiDefault=none",
        "KillWait=15",
        "SlurmdTimeout=20",
        *nodes,
        "PartitionName=main Nodes=n1,n2 Default=YES MaxTime=60 State=UP",
    ]
    conf = folder / "slurm.conf"
    conf.write_text("\n".join(settings) + "\n")
    variables = {"SLURM_CONF": str(conf)}
    daemons = [
        [
            *("munged", "--foreground", "--force", f"--key-file={folder}/munge.key"),
            *(f"--socket={munge}", f"--pid-file={folder}/munged.pid"),
            *(f"--log-file={folder}/munged.log", f"--seed-file={folder}/munged.seed"),
        ],
        ["slurmctld", "-D", "-f", str(conf)],
        ["slurmd", "-D", "-N", "n1", "-f", str(conf)],
        ["slurmd", "-D", "-N", "n2", "-f", str(conf)],
    ]
    with ExitStack() as stack:
        for words in daemons:
            (folder / f"spool-{words[3] if words[0] == 'slurmd' else 'none'}").mkdir(exist_ok=True)
            stack.enter_context(_daemon(words, variables, folder / f"{words[0]}.out"))
            time.sleep(0.5)
        _wait_for(lambda: _idle_nodes(variables) == 2)
        yield variables


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


def _idle_nodes(variables: Mapping[str, str]) -> int:
    done = subprocess.run(
        ["sinfo", "--noheader", "--format=%D %T"],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )
    return sum(int(line.split()[0]) for line in done.stdout.splitlines() if line.endswith("idle"))


@contextmanager
def _daemon(words: list[str], variables: Mapping[str, str], log: Path) -> Iterator[None]:
    with log.open("ab") as lines:
        process = subprocess.Popen(
            words, env={**os.environ, **variables}, stdout=lines, stderr=lines
        )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(is_there: "object") -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    assert callable(is_there)
    while not is_there():
        assert time.monotonic() < deadline_s, "the cluster does not come up"
        time.sleep(0.3)


def _free_ports(number: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.mkdir(parents=True)
    with slurm_cluster(place) as found:
        sys.exit(subprocess.run(sys.argv[2:], env={**os.environ, **found}).returncode)
