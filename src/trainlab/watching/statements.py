"""What a script's own text has to do with where its time and memory go: statements under way between
torch's calls, and containers that grow from step to step."""

import ast
import re
import sys
import threading
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from trainlab.data.nesting import tensors_in
from trainlab.record.script_record import GrowingRow, StatementRow, WatchedRecord
from trainlab.watching.timeline import BETWEEN, PARTS, Timeline
from trainlab.watching.tracer import Tracer

FIRST_LOOK, NEXT_LOOK = 10, 25
"""Containers are looked at after so many updates; then again, ever more seldom."""
WARM_STEPS = 3
"""What happens before is start-up."""
EVERY_S = 0.002
MOST_ROWS = 40
MOST_LOOKED_AT = 8
"""The newest entries of a container that are searched for tensors."""
LOGGING = "logging"
"""In place of what lies between calls, where it writes."""
WRITING_FILES = ("serialization.py", "tensorboard", "logging", "tqdm", "wandb", "csv.py")
WRITING = re.compile(r"\b(print|save|write\w*|flush|fsync|dump|add_\w+)\(")


class Search:
    """Samples statements, and looks at containers now and then."""

    def __init__(self, script: Path, tracer: Tracer) -> None:
        self._script, self._tracer = script, tracer
        self._sampler: StatementSampler | None = None
        self._first: dict[str, tuple[int, int]] = {}
        """Of each container at the first look, its identity and its length."""
        self._next_look = NEXT_LOOK
        self._growing: list[GrowingRow] = []

    def step_ended(self, step: int) -> None:
        """At the end of each."""
        if step == WARM_STEPS:
            self._sampler = StatementSampler(self._script, self._tracer.timeline)
        elif step == FIRST_LOOK:
            containers = containers_of(self._script)
            self._first = {name: (id(one), len(one)) for name, one in containers}
        elif step == self._next_look:
            self._growing = self._grown(step - FIRST_LOOK)
            self._next_look = 2 * step

    def _grown(self, num_steps: int) -> list[GrowingRow]:
        """Those that have grown by at least half an entry per step, the largest first."""
        rows = []
        for name, one in containers_of(self._script):
            key, length = self._first.get(name, (0, 0))
            grown = len(one) - length
            if key == id(one) and grown >= 0.5 * num_steps:
                size = _entry_bytes(one) * grown / num_steps
                entries = grown / num_steps
                rows.append(GrowingRow(name=name, entries=entries, tensor_bytes=int(size)))
        return sorted(rows, key=lambda row: -row.tensor_bytes)

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


class StatementSampler:
    """Looks at the stack of the thread that made it, many times a second, until it is closed."""

    def __init__(self, script: Path, timeline: Timeline) -> None:
        source = script.read_text(encoding="utf-8")
        self._own, self._lines = str(script), source.splitlines()
        self._starts = {
            line: node.lineno
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.Expr | ast.Assign | ast.AugAssign | ast.AnnAssign)
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
        }
        """Of each line, the first one of the statement without a body that holds it."""
        self._timeline, self._thread = timeline, threading.get_ident()
        self._pending: list[tuple[str, tuple[int, ...]]] = []
        """Parts, and the first lines of the statements under way, outermost first."""
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
        """The statements that were seen, the most often seen first; of equals, the one that calls."""
        counts = self._counts
        order = sorted(counts, key=lambda line: (-counts[line].total(), self._depths[line]))
        return [
            StatementRow(line=line, text=self._lines[line - 1].strip(), samples=dict(counts[line]))
            for line in order[:MOST_ROWS]
        ]

    def _look(self) -> None:
        while not self._is_over.wait(EVERY_S):
            part = self._timeline.part
            frame = sys._current_frames().get(self._thread)
            if frame is not None:
                self._pending.append(self._sample(part, frame))
            del frame

    def _sample(self, part: int, frame: FrameType | None) -> tuple[str, tuple[int, ...]]:
        lines: list[int] = []
        is_writing, at = False, ""
        while frame is not None:
            name = frame.f_code.co_filename
            if name == self._own:
                if (start := self._starts.get(frame.f_lineno)) is not None:
                    at = at or self._lines[start - 1]
                    lines.append(start)
            elif not at:
                is_writing = is_writing or any(word in name for word in WRITING_FILES)
            frame = frame.f_back
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


def containers_of(script: Path) -> Iterator[tuple[str, Any]]:
    """Names and lists, deques and dicts of the functions of a script that run, of its module, and of its
    objects there."""
    seen: set[int] = set()
    frame: FrameType | None = sys._getframe(1)
    scopes: list[Any] = []
    module: Any = {}
    while frame is not None:
        if frame.f_code.co_filename == str(script):
            scopes.append(frame.f_locals)
            module = frame.f_globals
        frame = frame.f_back
    for names in (*scopes, module):
        for name, value in list(names.items()):
            # Of an object of a class that the script made, its attributes.
            is_own = type(value).__module__ == "__main__"
            own = getattr(value, "__dict__", {}) if is_own else {}
            inner = [(f"{name}.{key}", one) for key, one in own.items()]
            for path, one in [(name, value), *inner] if not name.startswith("__") else ():
                if isinstance(one, list | deque | dict) and id(one) not in seen:
                    seen.add(id(one))
                    yield path, one


def _entry_bytes(container: Any) -> float:
    """The memory of the tensors of an entry, on average over the newest."""
    entries = list(container.values() if isinstance(container, dict) else container)
    newest = entries[-MOST_LOOKED_AT:]
    storages = (tensor.untyped_storage() for tensor in tensors_in(newest))
    return sum({one.data_ptr(): one.nbytes() for one in storages}.values()) / max(1, len(newest))
