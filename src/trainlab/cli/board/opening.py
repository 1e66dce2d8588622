"""What TensorBoard opens on: losses and accuracies pinned, not smoothed, one colour per setting."""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from urllib.parse import urlencode

from trainlab.record.learning_record import USUAL, metric_tag
from trainlab.record.run_folder import RunFolder

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
