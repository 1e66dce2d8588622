"""trainlab board: TensorBoard on runs, which it calls by setting and seed."""

import os
import sys
from pathlib import Path
from typing import Annotated

from pydantic import Field

from trainlab.cli.options import Verb, option, word
from trainlab.errors import RecordError
from trainlab.lab.run_progress import repeated
from trainlab.record.files import temporary_folder
from trainlab.record.run_folder import RunFolder
from trainlab.spec.study import BASE

BETWEEN_LOOKS_S = 5.0
"""As often as TensorBoard looks for event files."""


class BoardVerb(Verb):
    """TensorBoard on a run's event files; exit codes are TensorBoard's."""

    run: Path = word("RUN", default=Path("runs"))
    """A run folder, or a folder of run folders."""
    host: str = option("HOST", "", "127.0.0.1")
    """Address to listen on; loopback: this machine only."""
    port: Annotated[int, Field(ge=0, le=65535)] = option("PORT", "", 6006)
    """Port; 0 takes a free one."""

    def __call__(self) -> None:
        run = self.run
        if not run.is_dir():
            raise RecordError(f"{run}: no such folder; name a run folder, as in runs/mnist-cnn-…")
        if next(run.rglob("events.out.tfevents.*"), None) is None:
            cause = "was it run with --no-tensorboard?"
            raise RecordError(f"{run}: has no TensorBoard event files; {cause}")
        if not runs_in(run):
            raise SystemExit(self._serve(run))
        with temporary_folder("trainlab-board-") as home:
            link_trials(run, home)  # and again for trials that begin later
            with repeated(lambda: link_trials(run, home), BETWEEN_LOOKS_S):
                raise SystemExit(self._serve(home))

    def _serve(self, logdir: Path) -> int:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        from tensorboard import default, program

        served = program.TensorBoard(plugins=default.get_plugins())
        asked = {"--logdir": str(logdir), "--host": self.host, "--port": str(self.port)}
        served.configure([sys.argv[0], *(part for pair in asked.items() for part in pair)])
        sys.stdout.flush()
        return int(served.main() or 0)


def runs_in(path: Path) -> list[RunFolder]:
    """The run itself, or the runs in a folder of them, in the order of their names."""
    return [RunFolder(file.parent) for file in sorted(path.rglob("study.json"))]


def link_trials(asked: Path, home: Path) -> None:
    """Adds a link to `home` for each trial that has event files by now, called as TensorBoard should call
    it: `batch_size=16 · seed 1`, without the setting where there is only one."""
    runs = runs_in(asked)
    for run in runs:
        place = home / run.path.name if len(runs) > 1 else home
        for trial in run.trials():
            folder = run.trial(trial.id).tensorboard_folder
            if not folder.is_dir():
                continue
            setting = "" if trial.cell == BASE else f"{trial.cell} · "
            link = place / f"{setting}seed {trial.seed}".replace("/", "-")
            if not link.is_symlink():
                place.mkdir(parents=True, exist_ok=True)
                link.symlink_to(folder.resolve(), target_is_directory=True)
