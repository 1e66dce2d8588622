"""The folder of somebody who follows a page: the files and runs that it takes for granted."""

import shutil
from pathlib import Path

from pages import ROOT, blocks
from small import COST, LEARN, SHORT

from command import Verb


def folder_of_a_reader(folder: Path) -> Path:
    """With a model and a study of the reader's own, and the examples."""
    shutil.copytree(ROOT / "examples", folder / "examples")
    shutil.copy(ROOT / "examples/spirals.py", folder / "my_model.py")
    (study,) = (block for block in blocks(ROOT / "docs/studies.md") if block.language == "toml")
    (folder / "my-study.toml").write_text(study.text)
    return folder


class Runs:
    """Finished runs of one small study, made once and copied to where a page has them."""

    def __init__(self, store: Path) -> None:
        self._store = store

    def give(self, trainlab: Verb, folder: Path) -> None:
        """`RUN` and so on are names of folders here, as are `runs/mnist-lab-…` and `runs/…`."""
        for number, seeds in (("1", "1,2"), ("2", "3,4")):
            if not (self._store / number).exists():
                words = ("run", "fashion-mlp", "--profile", *LEARN, *SHORT, *COST)
                asked = ("--batch-size", "16,64", "--seed", seeds, "--out", self._store / number)
                trainlab(*words, *asked)
        for name in ("RUN", "RUN_1", "LAPTOP_RUN", "runs/RUN", "runs/mnist-lab-…", "runs/…"):
            shutil.copytree(self._store / "1", folder / name)
        shutil.copytree(self._store / "1", folder / "runs/mnist-lab-2026-01-31T10-15-00")
        for name in ("RUN_2", "SERVER_RUN"):
            shutil.copytree(self._store / "2", folder / name)
        self._hand_in(trainlab, folder)

    def _hand_in(self, trainlab: Verb, folder: Path) -> None:
        """Reports of two students: files alone, and a run folder each."""
        (folder / "notes.md").write_text("# Conclusion\n\nLarger batches are cheaper per image.\n")
        for student in ("ann", "ben"):
            home = folder / "handed-in" / student
            shutil.copytree(self._store / "1", home)
            trainlab("report", home, "--author", student, "--format", "html")
            trainlab("report", home, "--out", home, "--author", student, "--format", "pdf")
        shutil.copy(folder / "handed-in/ann/report.pdf", folder / "report.pdf")
        (folder / "notes.md").unlink()
