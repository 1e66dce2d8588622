"""Names of trials in TensorBoard: a folder of links to their event files, called by setting and seed."""

import time
from collections.abc import Iterator
from pathlib import Path

from trainlab.record.run_folder import RunFolder
from trainlab.spec.study import BASE

BETWEEN_LOOKS_S = 5.0
"""As often as TensorBoard looks for event files."""
LONGEST_NAME = 150
"""Letters of a link's name: file systems allow 255 bytes."""


def runs_in(path: Path) -> list[RunFolder]:
    """The run itself, or the runs in a folder of them, in the order of their names."""
    return [RunFolder(file.parent) for file in sorted(path.rglob("study.json"))]


def trial_name(cell: str, seed: int) -> str:
    """`batch_size=16 · seed 1`; without the setting where there is only one."""
    return f"seed {seed}" if cell == BASE else f"{cell} · seed {seed}"


def event_folders(run: RunFolder) -> Iterator[tuple[str, Path]]:
    """The folders with event files that a run has so far, and what TensorBoard should call them."""
    names: set[str] = set()
    for trial in run.trials():
        folder = run.trial(trial.id).tensorboard_folder
        if folder.is_dir():
            name = trial_name(trial.cell, trial.seed).replace("/", "-")[:LONGEST_NAME]
            yield (trial.id if name in names else name), folder
            names.add(name)


class NamedRuns:
    """A folder with a link for each trial that has event files."""

    def __init__(self, asked: Path, home: Path) -> None:
        """`asked` is a run or a folder of runs; `home` is where the links go."""
        self._asked, self.home = asked, home

    def link(self) -> None:
        """Adds the links that are missing; a run in progress has more trials each time."""
        runs = runs_in(self._asked)
        for run in runs:
            place = self.home / run.path.name if len(runs) > 1 else self.home
            for name, folder in event_folders(run):
                link = place / name
                if not link.is_symlink():
                    place.mkdir(parents=True, exist_ok=True)
                    link.symlink_to(folder.resolve(), target_is_directory=True)

    def keep_linked(self) -> None:
        """Links new trials for as long as the process lives."""
        while True:
            time.sleep(BETWEEN_LOOKS_S)
            self.link()
