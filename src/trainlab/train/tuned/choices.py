"""Which code was measured to be faster on this machine, kept in the cache.

Two ways of computing the same thing round differently. So the first measurement decides for all later
trials: the same trial gives the same losses again, though a second measurement might have come out
the other way.
"""

import hashlib
import json
import os
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from trainlab.errors import RecordError
from trainlab.machine.host import cache_folder, cpu_model, usable_vcpus
from trainlab.record.files import new_part, read_json, writing

FORMAT = 2
"""Raised when ways are added or changed: what was measured without them no longer counts.

1: 2026-11-16, first. 2: 2026-11-17, gradients of the weights of linear layers.
"""

GAIN = 0.95
"""Another way than torch's is taken where it needs at most this share of torch's time."""
FAR_SLOWER = 1.5
"""A way whose first call takes so many times the fastest's is not measured further."""
BUDGET_S = 0.05
"""For all further calls of one way."""
FEWEST, MOST = 3, 20
"""Calls that are measured of a way."""

TORCH = "torch"
"""The name of torch's own way."""
NATIVE = "native"
"""That of the compiled code."""
Work = Callable[[], object]


def kept_choice(
    subject: str, facts: object, decide: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """What was decided for these facts on this machine, or is now; the first to decide, decides for all.

    RecordError where it cannot be kept.
    """
    path = cache_folder() / "choices" / f"{subject}-{_key(facts)}.json"
    known = _read(path)
    if known is not None:
        return known
    _keep(path, {"format": FORMAT, "facts": repr(facts), "choice": decide()})
    known = _read(path)
    if known is None:
        raise RecordError(f"{path}: is not a kept choice; delete it")
    return known


def faster(ways: Mapping[str, Work]) -> tuple[str, dict[str, float]]:
    """The fastest of some ways by name, torch's unless another clearly is; and the milliseconds of each.

    Called in turn, so that what else the machine does hits all alike.
    """
    first_s = {name: (_timed_s(work), _timed_s(work))[1] for name, work in ways.items()}
    limit_s = FAR_SLOWER * min(first_s.values())
    close = {name: ways[name] for name, s in first_s.items() if s <= limit_s or name == TORCH}
    times_s: dict[str, list[float]] = {name: [] for name in close}
    longest_s = max(first_s[name] for name in close)
    for _ in range(max(FEWEST, min(MOST, int(BUDGET_S / longest_s)))):
        for name, work in close.items():
            times_s[name].append(_timed_s(work))
    ms = {name: 1e3 * statistics.median(found) for name, found in times_s.items()}
    best = min(ms, key=lambda name: ms[name])
    return (best if ms[best] <= GAIN * ms[TORCH] else TORCH), ms


def _timed_s(work: Work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _key(facts: object) -> str:
    machine = (FORMAT, cpu_model(), usable_vcpus(), torch.__version__, torch.get_num_threads())
    return hashlib.sha256(repr((machine, facts)).encode()).hexdigest()[:16]


def _read(path: Path) -> dict[str, Any] | None:
    try:
        known = read_json(path)
    except RecordError:
        return None
    choice = known.get("choice")
    return choice if known.get("format") == FORMAT and isinstance(choice, dict) else None


def _keep(path: Path, record: Mapping[str, Any]) -> None:
    """Written beside and linked, which fails where another process was first: its choice stays."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        part = new_part(path)
        try:
            part.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
            os.link(part, path)
        except FileExistsError:
            if _read(path) is None:  # a file that is no choice
                part.replace(path)
        finally:
            part.unlink(missing_ok=True)
