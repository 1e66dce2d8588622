"""A run folder read as anyone would: plain JSON, nothing of trainlab."""

import json
import math
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

Json = dict[str, Any]
Pair = tuple[str, str]
"""Two cells that are compared, the reference first."""


@dataclass(frozen=True)
class Expected:
    """What a finding must say."""

    numbers: Json
    n: int
    interval: tuple[Any, ...] | None = None
    verdict: str | None = None


@dataclass(frozen=True)
class Within:
    """A number that takes chance to estimate: known within a few per cent only."""

    low: float
    high: float


class RawRun:
    """The records of one run, by cell."""

    def __init__(self, path: Path) -> None:
        self.path = path
        record = read(path / "study.json")
        self.study: Json = record["study"]
        self.trials: list[Json] = [
            read(path / "trials" / name / "trial.json")
            for group in record["groups"]
            for name in group["trials"]
        ]

    @cached_property
    def cells(self) -> list[str]:
        return [cell["id"] for cell in self.study["cells"]]

    @cached_property
    def pairs(self) -> list[Pair]:
        """All comparisons: cells that differ by one factor, and every cell with the base."""
        cells = [cell for cell in self.study["cells"] if self.has_like_seeds(cell)]
        base = cells[0]["levels"]
        found = []
        for a, b in combinations(cells, 2):
            first, second = a["levels"], b["levels"]
            if base:
                is_compared = sum(first[name] != second[name] for name in base) == 1
            else:
                is_compared = not first or (first.keys() == second.keys() and len(first) == 1)
            if is_compared:
                found.append((a["id"], b["id"]))
        return found

    def has_like_seeds(self, cell: Json) -> bool:
        """Whether its seeds change the same as those of the first cell."""
        first = self.study["cells"][0]["settings"]["seed_parts"]
        return bool(cell["settings"]["seed_parts"] == first)

    def learned(self, cell: str) -> dict[int, Json]:
        """Learn trials that ended in any way, by seed."""
        ended = (t for t in self.trials if t["kind"] == "learn" and t["cell"] == cell)
        return {t["seed"]: t for t in ended if t["state"] not in ("pending", "running")}

    def values(self, cell: str, metric: str) -> dict[int, float]:
        """What each seed ended with; not a number where it diverged. A failure is no result."""
        return {
            seed: math.nan if t["state"] != "done" or (v := t["final"][metric]) is None else v
            for seed, t in self.learned(cell).items()
            if t["state"] in ("done", "diverged")
        }

    def lines(self, trial: Json, name: str) -> list[Json]:
        """A JSONL file of a trial; empty where there is none."""
        file = self.path / "trials" / trial["id"] / name
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def processes(self, cell: str, mode: str, *, again: bool = False) -> list[Json]:
        """cost.json of every timed process of a cell, or of its second measurement."""
        timed = self._watched(cell, mode, "steps", again)
        return [self._record(t, "cost.json") for t in timed]

    def watched(self, cell: str, mode: str, watch: str, name: str) -> Json:
        """A record of the one process that was watched so."""
        (trial,) = self._watched(cell, mode, watch, again=False)
        return self._record(trial, name)

    def _watched(self, cell: str, mode: str, watch: str, again: bool) -> list[Json]:
        about = {"cell": cell, "watch": watch, "again": again, "kind": "cost", "state": "done"}
        mine = [t for t in self.trials if about.items() <= {n: t[n] for n in about}.items()]
        return [t for t in mine if t["cost"]["mode"] == mode]

    def _record(self, trial: Json, name: str) -> Json:
        return read(self.path / "trials" / trial["id"] / name)


def read(path: Path) -> Json:
    found: Json = json.loads(path.read_text())
    return found
