"""TensorBoard on runs of trainlab: what its runs are called, and what it opens on."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from trainlab.record.learning_record import USUAL, metric_tag
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


MOST_PINNED = 10
"""TensorBoard pins no more."""
BY_SETTING = r"regex:^(.*?) · seed \d+$"
"""Runs whose names agree in the part in brackets get one colour."""

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
"""A web application as WSGI has it."""


def pinned_tags(runs: Sequence[RunFolder]) -> list[str]:
    """The curves to pin: those of the usual metrics that the runs have, then those of their others."""
    metrics = {metric for run in runs for metric in _metrics(run)} or set(USUAL)
    usual = [metric for metric in USUAL if metric in metrics]
    return [metric_tag(metric) for metric in (*usual, *sorted(metrics - set(USUAL)))][:MOST_PINNED]


def opening_query(runs: Sequence[RunFolder]) -> str:
    """The query of TensorBoard's own address that shows it."""
    pins = [{"plugin": "scalars", "tag": tag} for tag in pinned_tags(runs)]
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


def _metrics(run: RunFolder) -> set[str]:
    """The metrics of the first epochs that ended."""
    first = (run.trial(trial).epochs()[:1] for trial in run.study().trials)
    return {name for epochs in first for line in epochs for name in line if "/" in name}
