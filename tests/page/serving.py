"""The page's server as a user starts it, on this machine alone."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

WAIT_S = 60


@dataclass
class Served:
    """A server that runs."""

    process: "subprocess.Popen[str]"
    address: str

    @property
    def port(self) -> int:
        return urlsplit(self.address).port or 0

    @property
    def token(self) -> str:
        return parse_qs(urlsplit(self.address).query)["token"][0]

    @property
    def own(self) -> dict[str, str]:
        """Headers of a request of its own pages."""
        cookie = f"trainlab-{self.port}={self.token}"
        return {"Host": f"127.0.0.1:{self.port}", "Cookie": cookie, "X-Token": self.token}

    def ask(
        self, path: str, method: str = "GET", body: bytes | None = None, **headers: str
    ) -> tuple[int, str, Mapping[str, str]]:
        """Status, text and headers; with nothing but the headers given where there are any."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        given = {name.replace("_", "-"): value for name, value in headers.items()} or self.own
        connection.putrequest(method, path, skip_host="Host" in given, skip_accept_encoding=True)
        for name, value in given.items():
            connection.putheader(name, value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer: HTTPResponse = connection.getresponse()
        text = answer.read().decode("utf-8", "replace")
        connection.close()
        return answer.status, text, answer.headers

    def post(self, path: str, **form: object) -> dict[str, str]:
        _, text, _ = self.ask(path, "POST", json.dumps(form).encode())
        found: dict[str, str] = json.loads(text)
        return found


@contextmanager
def serving(folder: Path, *words: str, port: int = 0) -> Iterator[Served]:
    """`trainlab page FOLDER`, until the end of the block."""
    pytest.importorskip("starlette", reason="needs trainlab[page]")
    pytest.importorskip("vl_convert", reason="needs trainlab[report]")
    command = [sys.executable, "-m", "trainlab", "page", str(folder), "--no-open"]
    process = subprocess.Popen(
        [*command, f"--port={port}", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "XDG_STATE_HOME": str(folder.parent / "state")},
    )
    assert process.stdout is not None
    try:
        yield Served(process, process.stdout.readline().strip())
    finally:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=20)
    # Ctrl-C ends it without a word.
    ends = (0, ""), (-signal.SIGKILL, said)
    assert (process.returncode, said) in ends, said
