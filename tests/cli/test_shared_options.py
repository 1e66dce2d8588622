"""An option that trainlab and a script both have: whoever types it hears whose it was."""

import subprocess
import sys
from pathlib import Path

import pytest

from trainlab.cli.script_verbs import taken_options

OWN = ["watch", "train.py", "--steps", "300", "--lr", "0.1", "--out=a", "--", "--threads", "2"]


def test_options_that_the_script_gets_are_not_taken() -> None:
    given = ["--lr", "0.1", "--threads", "2"]
    assert list(taken_options(OWN, given)) == ["--steps", "--out"]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (["--steps", "300"], "--steps was taken as an option of trainlab; train.py has one"),
        (
            ["--steps", "300", "--lang", "zh"],
            "--steps 被当作 trainlab 的选项；train.py 也有同名选项",
        ),
        (["--", "--steps", "300"], ""),
        (["--seeds", "2"], ""),
        (["--steps", "300", "--quiet"], ""),
    ],
)
def test_it_is_said_before_anything_runs(line: list[str], told: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("parser.add_argument('--steps')\n")
    ran = subprocess.run(
        [sys.executable, "-m", "trainlab", "watch", "train.py", "--dry-run", *line],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    said = "".join(ran.stderr.split())
    assert "".join(told.split()) in said
    assert bool(said) == bool(told)
