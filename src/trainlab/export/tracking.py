"""MLflow: an experiment per study, a run per trial below one for the whole, nothing twice."""

import hashlib
import os
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from trainlab import __version__
from trainlab.analysis.evidence import UNFINISHED, Evidence
from trainlab.analysis.results import csv_of, settings_of, trial_values
from trainlab.errors import SpecError, TrainlabError
from trainlab.export.frames import Exported, tables_of
from trainlab.extras import check_extra, import_extra
from trainlab.record.files import sha256_of, temporary_folder
from trainlab.record.run_folder import RunFolder, run_digests
from trainlab.record.trial_record import TrialRecord

VARIABLE = "MLFLOW_TRACKING_URI"
QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
"""Unless set otherwise: nothing is sent but to the server named, one that is not there is told soon, and
only trainlab prints."""
PATIENCE_S = 3.0
"""For a server to answer at all."""
MOST_AT_ONCE = 1000
"""Metrics that a server takes in one request."""
MOST_RUNS = 50_000
"""That a server lists at once."""
LONGEST_VALUE = 500
STATUS = {"done": "FINISHED", "diverged": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}
WHOLE = "(run)"
"""Stands for the whole run where a tag names a trial."""


def export_to_server(
    folder: RunFolder, evidence: Evidence, lang: str, tracking_uri: str | None
) -> Exported:
    """Every trial that has ended as a run on an MLflow server, with the report; one that is there already,
    and as the trial is, is left alone. TrainlabError where the server does not take it."""
    uri = tracking_uri or os.environ.get(VARIABLE, "")
    if not uri:
        remedy = f"give --tracking-uri, as http://127.0.0.1:5000, or set {VARIABLE}"
        raise SpecError([f"--to mlflow: no server is named; {remedy}"])
    check_extra("mlflow", "--to mlflow", "mlflow")
    _check_there(uri)
    with _quiet():
        mlflow = import_extra("mlflow", "--to mlflow", "mlflow")
        try:
            client = mlflow.MlflowClient(tracking_uri=uri)
            found = client.get_experiment_by_name(evidence.name)
            made = found.experiment_id if found else client.create_experiment(evidence.name)
            experiment = str(made)
            return _Upload(mlflow, client, experiment, folder, evidence).all(lang, uri)
        except mlflow.MlflowException as error:
            said = " ".join(str(error).split())[:300]
            raise TrainlabError(f"{uri}: MLflow says: {said}") from None


@contextmanager
def _quiet() -> Iterator[None]:
    missing = {name: value for name, value in QUIET.items() if name not in os.environ}
    os.environ.update(missing)
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)


def _check_there(uri: str) -> None:
    """TrainlabError where nothing answers at the address of a server: MLflow itself would try for minutes.
    What is wrong with https it says itself, and it has settings of its own for certificates."""
    if not uri.startswith("http://"):
        return
    try:
        with urllib.request.urlopen(uri, timeout=PATIENCE_S):  # noqa: S310  the server that the user names
            return
    except urllib.error.HTTPError:
        return  # it answers
    except (OSError, ValueError):
        port = re.search(r":(\d+)/?$", uri)
        start = f"mlflow server --port {port[1]}" if port else "mlflow server"
        remedy = f"start one with `{start}`, or name another with --tracking-uri"
        raise TrainlabError(f"{uri}: no server answers there; {remedy}") from None


class _Upload:
    """One run folder on its way to one experiment."""

    def __init__(
        self, mlflow: Any, client: Any, experiment: str, folder: RunFolder, evidence: Evidence
    ) -> None:
        self._mlflow, self._client, self._experiment = mlflow, client, experiment
        self._folder, self._evidence = folder, evidence
        self._name = folder.path.resolve().name
        # The same wherever the folder lies, and however many seeds are added to the run.
        record = evidence.record
        text = "\n".join((record.name, record.created, record.command))
        self._run_id = hashlib.sha256(text.encode()).hexdigest()[:16]
        self._created_ms = _milliseconds(record.created)

    def all(self, lang: str, uri: str) -> Exported:
        """The whole run, then each of its trials."""
        there = self._there()
        ended = [trial for trial in self._evidence.trials if trial.state not in UNFINISHED]
        parent = self._whole(there.pop(WHOLE, None), lang)
        num_new = 0
        for trial in ended:
            digest = sha256_of(self._folder.trial(trial.id).trial_file)
            if (run := there.get(trial.id)) is not None:
                if run.data.tags.get("trainlab.fingerprint") == digest:
                    continue
                self._client.delete_run(run.info.run_id)  # half of one, or of other records
            self._trial(trial, parent, digest)
            num_new += 1
        left_out = len(self._evidence.trials) - len(ended)
        return Exported((), self._evidence.name, uri, num_new, len(ended) - num_new, left_out)

    def _there(self) -> dict[str, Any]:
        """The MLflow runs of this run by the trial that each is of."""
        query = f"tags.`trainlab.run` = '{self._run_id}'"
        found = self._client.search_runs([self._experiment], query, max_results=MOST_RUNS)
        return {run.data.tags.get("trainlab.trial", ""): run for run in found}

    def _whole(self, run: Any, lang: str) -> str:
        """The run that the trials are below of, with the report and the tables as its artifacts."""
        from trainlab.report.writing import write_report

        digest = run_digests(self._folder).all
        if run is not None and run.data.tags.get("trainlab.fingerprint") == digest:
            return str(run.info.run_id)
        client, tags = self._client, self._tags(WHOLE)
        made = run or client.create_run(self._experiment, self._created_ms, tags, self._name)
        run_id = str(made.info.run_id)
        with temporary_folder() as place:
            write_report(self._evidence, place / "report", ("html",), lang)
            (place / "tables").mkdir()
            for name, table in tables_of(self._evidence, self._folder).items():
                (place / "tables" / f"{name}.csv").write_bytes(csv_of(table))
            client.log_artifacts(run_id, str(place))
        client.set_tag(run_id, "trainlab.fingerprint", digest)
        client.set_terminated(run_id, "FINISHED")
        return run_id

    def _trial(self, trial: TrialRecord, parent: str, digest: str) -> None:
        """One trial; the fingerprint comes last, so that half of one is made again."""
        begun = self._created_ms if trial.started is None else _milliseconds(trial.started)
        facts = {"cell": trial.cell, "kind": trial.kind, "seed": trial.seed, "state": trial.state}
        tags = self._tags(trial.id) | {f"trainlab.{n}": str(v) for n, v in facts.items()}
        tags["mlflow.parentRunId"] = parent
        run_id = self._client.create_run(self._experiment, begun, tags, trial.id).info.run_id
        mode = {} if trial.mode is None else {"mode": trial.mode, "watch": trial.watch}
        told = {"workload": trial.workload, **settings_of(trial), "seed": trial.seed, **mode}
        param = self._mlflow.entities.Param
        params = [param(key(name), _text(value)) for name, value in told.items()]
        self._client.log_batch(run_id, params=params)
        metrics = list(self._metrics(trial, begun))
        for start in range(0, len(metrics), MOST_AT_ONCE):
            self._client.log_batch(run_id, metrics=metrics[start : start + MOST_AT_ONCE])
        self._client.set_tag(run_id, "trainlab.fingerprint", digest)
        ended = begun if trial.ended is None else _milliseconds(trial.ended)
        self._client.set_terminated(run_id, STATUS[trial.state], ended)

    def _metrics(self, trial: TrialRecord, begun_ms: int) -> Iterator[Any]:
        """The points of the curve at their updates and times; then what the trial comes to as a whole.
        Those within an epoch stand apart under `step/`, as in TensorBoard."""
        make, last_ms = self._mlflow.entities.Metric, begun_ms
        for line in self._folder.trial(trial.id).curve():
            last_ms = begun_ms + int(1000 * line.get("time_s", 0))
            within = "step/" if line["kind"] == "step" else ""
            own = () if within else ("epoch", "train_s", "test_s")
            for name, number in line.items():
                if number is not None and ("/" in name or name in own):
                    yield make(key(within + name), float(number), last_ms, line["step"])
        for name, number in trial_values(self._evidence, trial).items():
            if name not in self._evidence.metrics:
                yield make(key(name), number, last_ms, trial.steps_done)

    def _tags(self, trial: str) -> dict[str, str]:
        return {
            "trainlab.run": self._run_id,
            "trainlab.folder": self._name,
            "trainlab.trial": trial,
            "trainlab.version": __version__,
            "mlflow.source.name": self._evidence.record.command[:LONGEST_VALUE],
        }


def _milliseconds(moment: str) -> int:
    return int(1000 * datetime.fromisoformat(moment).timestamp())


def key(name: str) -> str:
    """A name with what MLflow does not take in one replaced."""
    return re.sub(r"[^\w\-. :/]", "_", name)


def _text(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text[:LONGEST_VALUE]
