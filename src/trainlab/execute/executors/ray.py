"""ray: a Ray cluster, or one started here. Each share is a Ray task, which starts the node in a process of
its own; retries are counted by us, not by Ray."""

import math
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainlab.errors import SpecError
from trainlab.execute.executors.cluster import Needs, Request, Task
from trainlab.extras import import_extra

POLL_S = 0.1
PATIENCE_S = 60.0
"""How long a node that is told to end may take; a script may have something to save."""
AUTH_VARIABLE, TOKEN_VARIABLE = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"


class RayTask:
    """A task, by its reference."""

    def __init__(self, ray: Any, reference: Any) -> None:
        self._ray, self._reference = ray, reference

    def has_ended(self) -> bool:
        ended, _ = self._ray.wait([self._reference], timeout=0)
        return bool(ended)

    def cancel(self) -> None:
        self._ray.cancel(self._reference)


class RayCluster:
    """A running cluster, joined; or one of this machine's CPUs and GPUs, started and ended with the run."""

    def __init__(self, address: str) -> None:
        """`//HEAD:PORT` of a client's port, or an address that Ray knows; empty: started here."""
        address = f"ray:{address}" if address.startswith("//") else address
        if not address:
            _ask_for_a_token()
        self._ray: Any = import_extra("ray", "--on ray", "ray")
        self._is_ours = not self._ray.is_initialized()
        if self._is_ours:
            self._connect(address)
        self._run = self._ray.remote(max_retries=0)(_run_node)
        self._ask = self._ray.remote(max_retries=0)(_ask_node)

    def ask(self, text: str, needs: Needs) -> str:
        answer: str = self._ray.get(self._ask.options(**self._options(needs)).remote(text))
        return answer

    def submit(self, requests: Sequence[Request]) -> Sequence[Task]:
        return [
            RayTask(
                self._ray,
                self._run.options(**self._options(one.needs)).remote(str(one.file), str(one.log)),
            )
            for one in requests
        ]

    def close(self) -> None:
        if self._is_ours:
            self._ray.shutdown()

    def _connect(self, address: str) -> None:
        quiet = {"logging_level": "ERROR", "log_to_driver": False, "configure_logging": False}
        try:
            if address:
                self._ray.init(address=address, **quiet)
            else:
                self._ray.init(address="local", include_dashboard=False, **quiet)
        except Exception as error:
            reason = str(error).strip().partition("\n")[0]
            where = f"Ray at {address} does not answer" if address else "Ray does not start here"
            raise SpecError([f"--on: {where}: {reason}"]) from error

    def num_slots(self, needs: Needs) -> int:
        wanted, total = self._options(needs), self._ray.cluster_resources()
        by_gpu = total["GPU"] / wanted["num_gpus"] if wanted["num_gpus"] else math.inf
        return max(1, int(min(total.get("CPU", 1.0) / wanted["num_cpus"], by_gpu)))

    def _options(self, needs: Needs) -> dict[str, float]:
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        most = max(node.get("CPU", 1.0) for node in nodes)
        has_gpu = any(node.get("GPU", 0.0) for node in nodes)
        cpus = most if needs.cpus is None else min(float(needs.cpus), most)
        return {"num_cpus": cpus, "num_gpus": float(needs.gpus) if has_gpu else 0.0}


def _ask_for_a_token() -> None:
    """Before Ray is imported, which then reads it: a cluster that is started here obeys only those who have
    the token, since Ray listens on all of a machine's addresses."""
    if "ray" not in sys.modules and AUTH_VARIABLE not in os.environ:
        os.environ[AUTH_VARIABLE], os.environ[TOKEN_VARIABLE] = "token", secrets.token_hex(32)


def _run_node(share: str, log: str) -> int:
    """Runs in a process of Ray's."""
    with Path(log).open("ab") as lines:
        process = subprocess.Popen(
            [*_node(), "run", share], stdin=subprocess.DEVNULL, stdout=lines, stderr=lines
        )
        try:
            while process.poll() is None:
                time.sleep(POLL_S)  # Ray interrupts Python code, not a wait for another process
            return process.returncode
        except BaseException:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
            raise


def _ask_node(text: str) -> str:
    done = subprocess.run(
        [*_node(), "preflight"], input=text, text=True, stdout=subprocess.PIPE, check=True
    )
    return done.stdout


def _node() -> list[str]:
    """By the interpreter of the machine where this is called."""
    return [sys.executable, "-P", "-m", "trainlab.execute.node"]
