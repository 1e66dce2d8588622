"""A real TensorBoard server on a real run, asked over HTTP."""

import json
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest

import trainlab
from fabricate import Fabricated, made_study
from trainlab.cli.board_verb import link_trials, opening_query


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("board") / "r"
    asked = {"data": "bundled", "train_samples": 300, "epochs": 2, "device": "cpu", "threads": 1}
    vary = {"batch_size": [64, 256]}
    return trainlab.run("fashion-mlp", out=out, vary=vary, seeds=2, **asked).path  # type: ignore[arg-type]


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


def until(address: str, path: str, expected: str, times: int = 1) -> Any:
    """The server loads event files in the background: ask until the text is there so many times."""
    deadline = time.monotonic() + 30
    while True:
        told = json.loads(ask(address, path))
        found = json.dumps(told, ensure_ascii=False).count(expected) >= times
        if found or time.monotonic() > deadline:
            return told
        time.sleep(0.3)


NAMES = [f"batch_size={size} · seed {seed}" for size in (64, 256) for seed in (1, 2)]
PINNED = [
    f"{name}/{part} over samples" for name in ("accuracy", "loss") for part in ("test", "train")
]


def test_the_server_shows_the_curves_of_the_records_over_samples(
    address: str, run_folder: Path
) -> None:
    for trial in trainlab.open_run(run_folder).trials():
        name = f"{trial.cell} · seed {trial.seed}"
        tags = until(address, "plugin/scalars/tags", f'"{PINNED[0]}"', len(NAMES))
        assert sorted(tags) == sorted(NAMES)
        assert {*PINNED, "lr"} <= set(tags[name])
        assert not [tag for tag in tags[name] if tag.startswith("hparam")]
        query = f"plugin/scalars/scalars?run={quote(name)}&tag={quote(PINNED[0])}"
        shown = json.loads(ask(address, query))
        epochs = trainlab.RunFolder(run_folder).trial(trial.id).epochs()
        expected = [(line["samples"], line["test/accuracy"]) for line in epochs]
        assert [(step, pytest.approx(value, rel=1e-6)) for _, step, value in shown] == expected
        assert [samples for samples, _ in expected] == [300, 600]


def test_the_front_page_opens_on_the_pinned_curves_and_the_graph_is_shown(address: str) -> None:
    with urllib.request.urlopen(address, timeout=20) as reply:  # noqa: S310
        opened, page = reply.url, reply.read()
    assert b"<tb-webapp" in page
    asked = parse_qs(urlsplit(opened).query)
    pins = json.loads(asked["pinnedCards"][0])
    assert pins == [{"plugin": "scalars", "tag": tag} for tag in PINNED]
    (grouping,) = asked["runColorGroup"]
    by_setting = re.compile(grouping.removeprefix("regex:"))
    settings = [by_setting.match(name)[1] for name in NAMES]  # type: ignore[index]
    assert settings == ["batch_size=64"] * 2 + ["batch_size=256"] * 2
    assert NAMES[0] in until(address, "plugin/graphs/info", "run_graph")
    graph = ask(address, f"plugin/graphs/graph?run={quote(NAMES[0])}").decode()
    for layer in ("Net/Linear[fc1]", "Net/ReLU[relu]", "Net/Linear[fc2]"):
        assert layer in graph


def test_a_run_in_progress_is_linked_as_its_trials_begin(run_folder: Path, tmp_path: Path) -> None:
    first, *others = trainlab.RunFolder(run_folder).trials()
    copy, links = tmp_path / "copy", tmp_path / "links"
    shutil.copytree(run_folder, copy)
    run = trainlab.RunFolder(copy)
    for trial in others:
        run.trial(trial.id).tensorboard_folder.rename(tmp_path / trial.id)
    link_trials(copy, links)
    assert [link.name for link in links.iterdir()] == [f"{first.cell} · seed {first.seed}"]
    for trial in others:
        (tmp_path / trial.id).rename(run.trial(trial.id).tensorboard_folder)
    link_trials(copy, links)
    assert sorted(link.name for link in links.iterdir()) == sorted(NAMES)


def test_of_one_epoch_the_curves_of_its_steps_are_pinned(tmp_path: Path) -> None:
    def pinned(epochs: int) -> list[str]:
        study = made_study(seeds=1, settings={"epochs": epochs})
        run = Fabricated().write(tmp_path / str(epochs), study)
        pins = json.loads(parse_qs(opening_query([run]))["pinnedCards"][0])
        return [pin["tag"] for pin in pins]

    one, two = pinned(1), pinned(2)
    assert one == ["step/loss/train over samples", *two]
    assert two[-1] == "loss/train over samples"


def test_several_runs_are_told_apart_by_their_names(run_folder: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        shutil.copytree(run_folder, tmp_path / "runs" / name)
    link_trials(tmp_path / "runs", tmp_path / "links")
    shown = {str(link.relative_to(tmp_path / "links")) for link in tmp_path.glob("links/*/*")}
    assert shown == {f"{run}/{name}" for run in "ab" for name in NAMES}
