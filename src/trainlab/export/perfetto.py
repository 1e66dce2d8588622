"""Traces for ui.perfetto.dev: the profiled steps of all trials side by side, and curves as counters."""

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from trainlab.analysis.evidence import Evidence
from trainlab.errors import RecordError
from trainlab.record.files import COPY_AGAIN, read_bytes, replacing
from trainlab.record.run_folder import RunFolder
from trainlab.record.trial_record import TrialRecord
from trainlab.spec.facts import AS_OBJECT

STEPS, CURVES = "steps.json.gz", "curves.json.gz"
FLOW_IDS = 1 << 40
"""Numbers of arrows that each trial has to itself."""
PROCESSES = 1000
"""Numbers of processes that each trial has to itself."""

Event = dict[str, Any]


def check_traces(folder: RunFolder, evidence: Evidence) -> None:
    """RecordError where a run has no trace."""
    if not _traced(folder, evidence):
        workload = str(evidence.record.study.get("workload", ""))
        named = "WORKLOAD" if workload.endswith(AS_OBJECT) else workload
        remedy = f"profile it and export that run: trainlab profile {named}"
        raise RecordError(f"{folder.path}: has no trace of a profiled step; {remedy}")


def write_traces(folder: RunFolder, evidence: Evidence, out: Path) -> tuple[Path, ...]:
    """`steps.json.gz`, each trial a process of its own from time 0; `curves.json.gz`, a counter for each
    metric over the time of training, where anything was trained."""
    traced = _traced(folder, evidence)
    steps = (
        event
        for number, trial in enumerate(traced, 1)
        for event in _steps(folder.trial(trial.id).trace_file, trial, number)
    )
    paths = [_write(out / STEPS, steps)]
    trained = [trial for trial in evidence.trials if folder.trial(trial.id).curve_file.exists()]
    if trained:
        counters = (e for n, t in enumerate(trained, 1) for e in _counters(folder, t, n))
        paths.append(_write(out / CURVES, counters))
    return tuple(paths)


def _traced(folder: RunFolder, evidence: Evidence) -> list[TrialRecord]:
    return [trial for trial in evidence.trials if folder.trial(trial.id).trace_file.exists()]


def _steps(path: Path, trial: TrialRecord, number: int) -> Iterator[Event]:
    """The events of a trace under numbers of its own, from time 0, its processes named by the trial."""
    events = _read(path)
    title = f"{trial.cell}, {trial.mode}{', trained weights' if trial.weights_of else ''}"
    start = min((float(event["ts"]) for event in events if event.get("ph") == "X"), default=0.0)
    pids: dict[object, int] = {}
    names: dict[int, str] = {}
    for event in events:
        pid = pids.setdefault(event.get("pid", 0), number * PROCESSES + len(pids))
        if event.get("name") == "process_name":
            names[pid] = str(event.get("args", {}).get("name", ""))
        elif event.get("name") != "process_sort_index":
            moved = {**event, "pid": pid}
            if event.get("ph") != "M" and "ts" in event:
                moved["ts"] = max(0.0, float(event["ts"]) - start)
            if isinstance(event.get("id"), int):  # arrows keep to their trial
                moved["id"] = number * FLOW_IDS + event["id"]
            yield moved
    for pid in pids.values():
        name = names.get(pid, "")
        yield _meta("process_name", pid, name=f"{title}: {name}" if name else title)
        yield _meta("process_sort_index", pid, sort_index=pid)


def _counters(folder: RunFolder, trial: TrialRecord, pid: int) -> Iterator[Event]:
    """The metrics of a learn trial over the seconds of its training."""
    yield _meta("process_name", pid, name=trial.id)
    yield _meta("process_sort_index", pid, sort_index=pid)
    for line in folder.trial(trial.id).curve():
        within = "step/" if line["kind"] == "step" else ""
        for name, value in line.items():
            if "/" in name and value is not None:
                at = {"pid": pid, "tid": 0, "ts": 1e6 * line["time_s"]}
                yield {"ph": "C", "name": within + name, **at, "args": {"value": value}}


def _meta(event: str, pid: int, **values: object) -> Event:
    return {"ph": "M", "name": event, "pid": pid, "tid": 0, "args": values}


def _read(path: Path) -> list[Event]:
    """The events of a trace; RecordError where it is damaged."""
    try:
        trace = json.loads(gzip.decompress(read_bytes(path)))
        events = trace["traceEvents"] if isinstance(trace, dict) else trace
        return [event for event in events if isinstance(event, dict)]
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError):
        raise RecordError(f"{path}: is no trace; {COPY_AGAIN}") from None


def _write(path: Path, events: Iterable[Event]) -> Path:
    """One event after the other: traces of many trials do not fit into memory together."""
    with (
        replacing(path) as part,
        part.open("wb") as stream,
        gzip.GzipFile(filename="", fileobj=stream, mode="wb", mtime=0) as file,
    ):
        file.write(b'{"displayTimeUnit": "ms", "traceEvents": [')
        for number, event in enumerate(events):
            file.write((b",\n" if number else b"\n") + json.dumps(event).encode())
        file.write(b"\n]}\n")
    return path
