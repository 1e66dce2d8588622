"""Whatever happens to the files of a run: what reads them shows the rest, or refuses in a line of ours."""

import random
from pathlib import Path

import pytest
from rich_run import rich_run, rich_study, row

from command import Verb, called
from diagnosed_runs import diagnosed
from trainlab.record.cost_record import CallRow, NetworkRecord
from trainlab.record.files import read_json, write_json


def damages(content: bytes, draw: random.Random) -> list[bytes]:
    """As a disk, a network or an editor does it: bits flipped, an end lost, a part of it another file's."""
    flipped = bytearray(content)
    for _ in range(3):
        flipped[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    cut = draw.randrange(len(content))
    return [bytes(flipped), content[:cut], content[:cut] + bytes(64) + content[cut:], b"", b"{}\n"]


def check_damaged(folder: Path, num_files: int, seed: int) -> None:
    draw = random.Random(seed)
    run = str(folder)
    verbs = (("show", run, "--all"), ("show", run, "--json"), ("report", run))
    for path in draw.sample(sorted(folder.rglob("*.json*")), num_files):
        sound = path.read_bytes()
        path.write_bytes(draw.choice(damages(sound, draw)))
        words = draw.choice(verbs)
        assert called(*words).code in (0, 2), path
        path.write_bytes(sound)


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """Half of the trials are without digests, as in earlier versions."""
    study = rich_study(
        seeds=2, vary={"batch_size": [1, 16]}, cost={"mode": "train", "processes": 1}
    )
    folder = rich_run(tmp_path / "r", study)
    for number, trial in enumerate(folder.trials()):
        home = folder.trial(trial.id)
        if trial.kind == "learn":
            calls = [CallRow(**row(n, [i - 1]).model_dump()) for i, n in enumerate(("fc", "relu"))]
            home.network.write(NetworkRecord(batch_size=16, rows=calls))
        if number % 2:
            home.end(home.read())
    return tmp_path / "r"


def test_damaged_runs_are_shown_or_refused_in_a_line(whole: Path) -> None:
    check_damaged(whole, 8, seed=1)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(2, 12))
def test_many_damaged_runs_are_shown_or_refused_in_a_line(
    whole: Path, tmp_path: Path, seed: int
) -> None:
    check_damaged(whole, 30, seed)
    diagnosed(tmp_path / "d")
    check_damaged(tmp_path / "d", 3, seed)


def test_texts_of_a_run_neither_steer_a_terminal_nor_break_a_page(
    whole: Path, trainlab: Verb
) -> None:
    study = whole / "study.json"
    text = "\x1b[31mred\x9b2J <script>alert(1)</script> [/b] {x} %s 好"
    write_json(study, read_json(study) | {"name": text})
    shown = trainlab("show", "r").stdout
    assert "\x1b" not in shown
    assert "\x9b" not in shown
    trainlab("report", "r")
    assert "<script>alert(1)" not in (whole / "report" / "report.html").read_text()
