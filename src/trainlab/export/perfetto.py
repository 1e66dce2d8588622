"""A trace for ui.perfetto.dev: the profiled steps of all trials side by side."""

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

STEPS = "steps.json.gz"
FLOW_IDS = 1 << 40
"""Numbers of arrows that each trial has to itself."""
PROCESSES = 1000
"""Numbers of processes that each trial has to itself."""

Event = dict[str, Any]


def write_traces(folder: RunFolder, evidence: Evidence, out: Path) -> tuple[Path, ...]:
    """`steps.json.gz`, each trial a process of its own from time 0; RecordError where there is none."""
    traced = [one for one in evidence.trials if folder.trial(one.id).trace_file.exists()]
    if not traced:
        workload = str(evidence.record.study.get("workload", ""))
        named = "WORKLOAD" if workload.endswith(AS_OBJECT) else workload
        remedy = f"profile it and export that run: trainlab profile {named}"
        raise RecordError(f"{folder.path}: has no trace of a profiled step; {remedy}")
    make_folder(out)
    events = (_steps(folder, trial, number) for number, trial in enumerate(traced, 1))
    return (_write(out / STEPS, chain.from_iterable(events)),)


def _steps(folder: RunFolder, trial: TrialRecord, number: int) -> Iterator[Event]:
    """The events of a trace under numbers of its own, from time 0, its processes named by the trial."""
    events = _read(folder.trial(trial.id).trace_file)
    title = f"{trial.cell}, {trial.mode}{', trained weights' if trial.weights_of else ''}"
    start = min((event["ts"] for event in events if event["ph"] == "X"), default=0.0)
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    pids = {own: number * PROCESSES + n for n, own in enumerate({e["pid"]: 0 for e in events})}
    for own, pid in pids.items():
        yield from _named(pid, ": ".join(filter(None, (title, names.get(own)))))
    for event in events:
        if event["name"] not in ("process_name", "process_sort_index"):
            moved = {**event, "pid": pids[event["pid"]]}
            if event["ph"] != "M":
                moved["ts"] = max(0.0, event["ts"] - start)
            if isinstance(event.get("id"), int):  # arrows keep to their trial
                moved["id"] = number * FLOW_IDS + event["id"]
            yield moved


def _named(pid: int, name: str) -> Iterator[Event]:
    """What a process is called, and its place among the others."""
    yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
    place = {"sort_index": pid}
    yield {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": place}


def _read(path: Path) -> list[Event]:
    """The events of a trace as torch writes it; RecordError where it is damaged."""
    try:
        events: list[Event] = json.loads(gzip.decompress(read_bytes(path)))["traceEvents"]
        return events
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
