"""Traces for ui.perfetto.dev: the profiled steps of all trials side by side, and curves as counters."""

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from trainlab.analysis.evidence import Evidence
from trainlab.errors import RecordError
from trainlab.record.files import COPY_AGAIN, make_folder, read_bytes, replacing
from trainlab.record.run_folder import RunFolder
from trainlab.record.trial_record import TrialRecord
from trainlab.spec.facts import AS_OBJECT

STEPS, CURVES = "steps.json.gz", "curves.json.gz"
FLOW_IDS = 1 << 40
"""Numbers of arrows that each trial has to itself."""
PROCESSES = 1000
"""Numbers of processes that each trial has to itself."""

Event = dict[str, Any]


def write_traces(folder: RunFolder, evidence: Evidence, out: Path) -> tuple[Path, ...]:
    """`steps.json.gz`, each trial a process of its own from time 0; `curves.json.gz`, a counter for each
    metric over the time of training, where anything was trained. RecordError where a run has no trace."""
    homes = [(trial, folder.trial(trial.id)) for trial in evidence.trials]
    traced = [trial for trial, home in homes if home.trace_file.exists()]
    trained = [trial for trial, home in homes if home.curve_file.exists()]
    if not traced:
        workload = str(evidence.record.study.get("workload", ""))
        named = "WORKLOAD" if workload.endswith(AS_OBJECT) else workload
        remedy = f"profile it and export that run: trainlab profile {named}"
        raise RecordError(f"{folder.path}: has no trace of a profiled step; {remedy}")
    make_folder(out)
    steps = (_steps(folder, trial, number) for number, trial in enumerate(traced, 1))
    curves = (_counters(folder, trial, number) for number, trial in enumerate(trained, 1))
    paths = [_write(out / STEPS, chain.from_iterable(steps))]
    if trained:
        paths.append(_write(out / CURVES, chain.from_iterable(curves)))
    return tuple(paths)


def _steps(folder: RunFolder, trial: TrialRecord, number: int) -> Iterator[Event]:
    """The events of a trace under numbers of its own, from time 0, its processes named by the trial."""
    events = _read(folder.trial(trial.id).trace_file)
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
        yield from _named(pid, ": ".join(filter(None, (title, names.get(pid)))))


def _counters(folder: RunFolder, trial: TrialRecord, pid: int) -> Iterator[Event]:
    """The metrics of a learn trial over the seconds of its training."""
    yield from _named(pid, trial.id)
    for line in folder.trial(trial.id).curve():
        within = "step/" if line["kind"] == "step" else ""
        for name, value in line.items():
            if "/" in name and value is not None:
                at = {"pid": pid, "tid": 0, "ts": 1e6 * line["time_s"]}
                yield {"ph": "C", "name": within + name, **at, "args": {"value": value}}


def _named(pid: int, name: str) -> Iterator[Event]:
    """What a process is called, and its place among the others."""
    yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
    place = {"sort_index": pid}
    yield {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": place}


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
