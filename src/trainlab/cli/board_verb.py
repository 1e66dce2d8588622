"""trainlab board: TensorBoard on runs, which it calls by setting and seed, opened on their curves."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

from pydantic import Field

from trainlab.cli.options import Verb, option, word
from trainlab.errors import RecordError
from trainlab.lab.run_progress import repeated
from trainlab.record.files import temporary_folder
from trainlab.record.learning_record import USUAL, metric_tag
from trainlab.record.run_folder import RunFolder
from trainlab.spec.study import BASE

BETWEEN_LOOKS_S = 5.0
"""As often as TensorBoard looks for event files."""
MOST_PINNED = 10
"""TensorBoard pins no more."""
BY_SETTING = r"regex:^(.*?) · seed \d+$"
"""Runs whose names agree in the part in brackets get one colour."""

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
"""A web application as WSGI has it."""


class BoardVerb(Verb):
    """TensorBoard on a run's event files, opened on its curves; exit codes are TensorBoard's."""

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

        def server(application: Any, flags: Any) -> Any:
            opened = opening_on(application, lambda: opening_query(runs_in(self.run)))
            return program.WerkzeugServer(opened, flags)

        served = program.TensorBoard(plugins=default.get_plugins(), server_class=server)
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


def opening_query(runs: Sequence[RunFolder]) -> str:
    """The query of TensorBoard's own address that shows the curves of the usual metrics that the runs have,
    then those of their others; metrics are those of the first epochs that ended. One epoch is one point:
    the curves of its steps come first."""
    trials = [run.trial(trial) for run in runs for trial in run.study().trials]
    epochs = [trial.epochs()[:2] for trial in trials]
    metrics = {name for lines in epochs for line in lines for name in line if "/" in name}
    metrics = metrics or set(USUAL)
    shown = [*(m for m in USUAL if m in metrics), *sorted(metrics - set(USUAL))]
    tags = [*map(metric_tag, shown)]
    if max(map(len, epochs), default=0) < 2:
        tags = [f"step/{metric_tag(m)}" for m in shown if m.startswith("train/")] + tags
    pins = [{"plugin": "scalars", "tag": tag} for tag in tags[:MOST_PINNED]]
    asked = {"pinnedCards": json.dumps(pins), "smoothing": "0"}
    if any(len(run.study().to_study(str(run.study_file)).seeds) > 1 for run in runs):
        asked["runColorGroup"] = BY_SETTING
    return urlencode(asked)


def opening_on(application: Application, query: Callable[[], str]) -> Application:
    """The application, with its bare front page sent on to the page with the query."""

    def serve(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        is_bare = environ.get("PATH_INFO") in ("", "/") and not environ.get("QUERY_STRING")
        if not is_bare or environ.get("REQUEST_METHOD") != "GET":
            return application(environ, start_response)
        headers = [("Location", f"./?{query()}#timeseries"), ("Cache-Control", "no-store")]
        start_response("302 Found", [*headers, ("Content-Length", "0")])
        return []

    return serve
