"""An option that trainlab and a script both have: whoever types it hears whose it was."""

from pathlib import Path

from command import Verb

LINES = {
    "--steps 300 --lr 0.1 --out=a -- --threads 2": "--steps was taken as an option of trainlab; "
    "train.py has one of this name, too.",
    "--steps 300 --lang zh": "--steps 被当作 trainlab 的选项；train.py 也有同名选项",
    "-- --steps 300": "",
    "--seeds 2": "",
    "--steps 300 --quiet": "",
}


def test_it_is_said_before_anything_runs(trainlab: Verb, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("add_argument('--steps'), add_argument('--threads')\n")
    for line, told in LINES.items():
        said = trainlab("watch", "train.py", "--dry-run", *line.split()).stderr
        assert "".join(told.split()) in "".join(said.split())
        assert len(said.splitlines()) == bool(told)
