"""A real TensorBoard server on a real run, asked over HTTP."""

import io
import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from PIL import Image

import trainlab


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("board") / "r"
    return trainlab.run("fashion-mlp", out=out, data="bundled", epochs=2, device="cpu").path


@pytest.fixture(scope="module")
def address(run_folder: Path) -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "trainlab", "board", str(run_folder), "--port", "0"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    found = None
    for line in process.stderr:
        if found := re.search(r"http://(127\.0\.0\.1|localhost):\d+", line):
            break
    assert found, "TensorBoard did not say where it listens"
    yield found.group(0)
    process.terminate()
    process.wait(timeout=20)


def ask(address: str, path: str) -> bytes:
    with urllib.request.urlopen(f"{address}/data/{path}", timeout=20) as reply:  # noqa: S310
        return bytes(reply.read())


def until(address: str, path: str, expected: str) -> dict[str, dict[str, object]]:
    """The server loads event files in the background: ask until the tag is there."""
    deadline = time.monotonic() + 30
    while True:
        told = ask(address, path)
        if expected in told.decode() or time.monotonic() > deadline:
            return dict(json.loads(told))
        time.sleep(0.3)


def test_the_server_shows_the_curves_of_the_records(address: str, run_folder: Path) -> None:
    tags = until(address, "plugin/scalars/tags", "test/accuracy")
    (name,) = tags
    assert {"train/loss", "train/accuracy", "test/loss", "test/accuracy", "lr"} <= set(tags[name])
    query = f"plugin/scalars/scalars?run={quote(name)}&tag={quote('test/accuracy')}"
    shown = json.loads(ask(address, query))
    curve = trainlab.RunFolder(run_folder).trial("learn-seed1").curve()
    expected = [(p["step"], p["test/accuracy"]) for p in curve if p["kind"] == "epoch"]
    assert [(step, pytest.approx(value, rel=1e-6)) for _, step, value in shown] == expected


def test_the_server_shows_sample_inputs_as_a_picture(address: str) -> None:
    tags = until(address, "plugin/images/tags", "samples/test")
    (name,) = tags
    query = f"plugin/images/images?run={quote(name)}&tag={quote('samples/test')}"
    (picture,) = json.loads(ask(address, query))
    content = ask(address, f"plugin/images/individualImage?{picture['query']}")
    assert Image.open(io.BytesIO(content)).size == (8 * 28, 8 * 28)


def test_the_server_shows_the_graph(address: str) -> None:
    told = until(address, "plugin/graphs/info", "run_graph")
    (name,) = told
    graph = ask(address, f"plugin/graphs/graph?run={quote(name)}").decode()
    for layer in ("Net/Linear[fc1]", "Net/ReLU[relu]", "Net/Linear[fc2]"):
        assert layer in graph
