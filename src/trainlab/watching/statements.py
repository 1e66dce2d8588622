"""Search: what a script's own text has to do with where its time and memory go."""

import ast
import re
import sys
import threading
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from torch import Tensor

from trainlab.record.script_record import GrowingRow, StatementRow, WatchedRecord
from trainlab.watching.timeline import LOSS, OTHER, PARTS, PREPARE, Timeline
from trainlab.watching.tracer import Tracer

# Containers of a script that grow from step to step, and the memory of the tensors that they hold.

MOST_LOOKED_AT = 8
"""The newest entries of a container that are searched for tensors."""
DEPTH = 3


def containers_of(script: Path) -> Iterator[tuple[str, Any]]:
    """Names and lists, deques and dicts of the functions of a script that run, of its module, and of its
    objects there."""
    seen: set[int] = set()
    for names in _scopes(script):
        for name, value in list(names.items()):
            if name.startswith("__"):
                continue
            for path, one in [(name, value), *_attributes(name, value)]:
                if isinstance(one, list | deque | dict) and id(one) not in seen:
                    seen.add(id(one))
                    yield path, one


def _scopes(script: Path) -> Iterator[Mapping[str, Any]]:
    frame, own = sys._getframe(1), str(script)
    last: Mapping[str, Any] | None = None
    while frame is not None:
        if frame.f_code.co_filename == own:
            yield frame.f_locals
            last = frame.f_globals
        if frame.f_back is None:
            break
        frame = frame.f_back
    if last is not None:
        yield last


def _attributes(name: str, value: Any) -> list[tuple[str, Any]]:
    """Those of an object of a class that the script made."""
    if type(value).__module__ != "__main__":
        return []
    return [(f"{name}.{key}", one) for key, one in getattr(value, "__dict__", {}).items()]


class Growth:
    """Looks at the containers of a script at two steps."""

    def __init__(self, script: Path) -> None:
        self._script = script
        self._first: dict[str, tuple[int, int]] = {}
        self._first_step = 0

    def begin(self, step: int) -> None:
        """The first look."""
        self._first_step = step
        self._first = {name: (id(one), len(one)) for name, one in containers_of(self._script)}

    def rows(self, step: int) -> list[GrowingRow]:
        """Those that have grown since by at least half an entry per step, the largest first."""
        num_steps = step - self._first_step
        if not self._first_step or num_steps < 1:
            return []
        rows = []
        for name, one in containers_of(self._script):
            key, length = self._first.get(name, (0, 0))
            grown = len(one) - length
            if key == id(one) and grown >= 0.5 * num_steps:
                size = _entry_bytes(one) * grown / num_steps
                row = GrowingRow(name=name, entries=grown / num_steps, tensor_bytes=int(size))
                rows.append(row)
        return sorted(rows, key=lambda row: -row.tensor_bytes)


def _entry_bytes(container: Any) -> float:
    """The memory of the tensors of an entry, on average over the newest."""
    entries = list(container.values() if isinstance(container, dict) else container)
    newest = entries[-MOST_LOOKED_AT:]
    storages: dict[int, int] = {}
    for entry in newest:
        for tensor in _tensors(entry, DEPTH):
            storage = tensor.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values()) / max(1, len(newest))


def _tensors(value: Any, depth: int) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif depth and isinstance(value, list | tuple | dict):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _tensors(one, depth - 1)


# Which statements of a script run when: its stack, looked at many times a second by another thread.

EVERY_S = 0.002
BETWEEN = frozenset({OTHER, PREPARE, LOSS})
LOGGING = "logging"
"""In place of what lies between calls, where it writes."""
WRITING_FILES = ("serialization.py", "tensorboard", "logging", "tqdm", "wandb", "csv.py")
WRITING = re.compile(r"\b(print|save|write\w*|flush|fsync|dump|add_\w+)\(")
MOST_ROWS = 40

Sample = tuple[str, tuple[int, ...]]
"""The part, and the first lines of the statements under way, outermost first."""


class StatementSampler:
    """Looks at the stack of the thread that made it, until it is closed."""

    def __init__(self, script: Path, timeline: Timeline) -> None:
        source = script.read_text(encoding="utf-8")
        self._own, self._lines = str(script), source.splitlines()
        self._starts = _statement_starts(source)
        self._timeline = timeline
        self._thread = threading.get_ident()
        self._pending: list[Sample] = []
        self._counts: dict[int, Counter[str]] = {}
        self._depths: dict[int, int] = {}
        self.samples: Counter[str] = Counter()
        timeline.on_settled = self._settled
        self._is_over = threading.Event()
        self._looking = threading.Thread(target=self._look, daemon=True)
        self._looking.start()

    def close(self) -> None:
        """Looks no more."""
        self._is_over.set()
        self._looking.join()
        self._timeline.on_settled = None

    def rows(self) -> list[StatementRow]:
        """The statements that were seen, the most often seen first."""
        # Of those seen equally often, the one that calls the others.
        order = sorted(
            self._counts, key=lambda line: (-self._counts[line].total(), self._depths[line])
        )
        return [
            StatementRow(
                line=line, text=self._lines[line - 1].strip(), samples=dict(self._counts[line])
            )
            for line in order[:MOST_ROWS]
        ]

    def _look(self) -> None:
        while not self._is_over.wait(EVERY_S):
            part = self._timeline.part
            frame = sys._current_frames().get(self._thread)
            if frame is not None:
                self._pending.append(self._sample(part, frame))
            del frame

    def _sample(self, part: int, frame: FrameType) -> Sample:
        lines: list[int] = []
        is_writing, at = False, ""
        one: FrameType | None = frame
        while one is not None:
            name = one.f_code.co_filename
            if name == self._own:
                start = self._starts.get(one.f_lineno)
                if start is not None:
                    at = at or self._lines[start - 1]
                    lines.append(start)
            elif not at:
                is_writing = is_writing or any(word in name for word in WRITING_FILES)
            one = one.f_back
        is_writing = is_writing or WRITING.search(at) is not None
        part_name = LOGGING if part in BETWEEN and is_writing else PARTS[part]
        return part_name, tuple(reversed(lines))

    def _settled(self, is_evaluation: bool) -> None:
        """What was seen since was training, or was not."""
        samples, self._pending = self._pending, []
        for part, lines in samples:
            name = "evaluation" if is_evaluation else part
            self.samples[name] += 1
            for depth, line in enumerate(dict.fromkeys(lines)):
                self._counts.setdefault(line, Counter())[name] += 1
                self._depths[line] = min(depth, self._depths.get(line, depth))


def _statement_starts(source: str) -> dict[int, int]:
    """The first line of the statement without a body that holds a line."""
    simple = (ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign)
    return {
        line: node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, simple)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


FIRST_LOOK, NEXT_LOOK = 10, 25
"""Containers are looked at after so many updates; then again, ever more seldom."""
WARM_STEPS = 3
"""What happens before is start-up."""


class Search:
    """Samples statements, and looks at containers now and then."""

    def __init__(self, script: Path, tracer: Tracer) -> None:
        self._script, self._tracer = script, tracer
        self._growth = Growth(self._script)
        self._sampler: StatementSampler | None = None
        self._next_look = NEXT_LOOK
        self._growing: list[GrowingRow] = []

    def step_ended(self, step: int) -> None:
        """At the end of each."""
        if step == WARM_STEPS:
            self._sampler = StatementSampler(self._script, self._tracer.timeline)
        elif step == FIRST_LOOK:
            self._growth.begin(step)
        elif step == self._next_look:
            self._growing = self._growth.rows(step)
            self._next_look = 2 * step

    def close(self) -> None:
        """The script has ended."""
        if self._sampler is not None:
            self._sampler.close()

    def added_to(self, record: WatchedRecord) -> WatchedRecord:
        """The record with what was found."""
        sampler = self._sampler
        found = {
            "samples": {} if sampler is None else dict(sampler.samples),
            "statements": [] if sampler is None else sampler.rows(),
            "growing": self._growing,
        }
        return record.model_copy(update=found)
