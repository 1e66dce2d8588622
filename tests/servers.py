"""Free ports, programs that run beside a test, and a real MLflow server on this machine."""

import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

PATIENCE_S = 300.0
PLAIN = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
"""Nothing is sent anywhere, and nothing starts beside the server."""
SERVER = "TRAINLAB_TEST_MLFLOW"
"""Names an `mlflow` executable, where it is not on the path: its packages may not go with ours."""


def mlflow_executable() -> str | None:
    """What starts a server; the client's own executable cannot."""
    return os.environ.get(SERVER) or shutil.which("mlflow")


@contextmanager
def mlflow_server(executable: str, folder: Path) -> Iterator[str | None]:
    """Gives the address of a server whose data lies in a folder; None where it does not start."""
    (port,) = free_ports(1)
    address = f"http://127.0.0.1:{port}"
    # What it imports is its own, not that of the tests.
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [
        *(executable, "server", "--host", "127.0.0.1", "--port", str(port)),
        *("--workers", "1", "--backend-store-uri", f"sqlite:///{folder}/mlflow.db"),
        *("--artifacts-destination", str(folder / "artifacts")),
    ]
    with daemon(words, folder / "server.log", env={**variables, **PLAIN}, cwd=folder) as process:
        yield address if _answers(address, process) else None


@contextmanager
def daemon(words: list[str], log: Path, **given: Any) -> Iterator["subprocess.Popen[bytes]"]:
    """A program that runs until the end of the block."""
    with log.open("ab") as lines:
        process = subprocess.Popen(words, stdout=lines, stderr=lines, **given)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(address: str, process: "subprocess.Popen[bytes]") -> bool:
    deadline_s = time.monotonic() + PATIENCE_S
    while process.poll() is None and time.monotonic() < deadline_s:
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=2):  # noqa: S310
                return True
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    return False


def free_ports(number: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
