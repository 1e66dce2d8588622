"""Which statements of a script run when: its stack, looked at many times a second by another thread."""

import ast
import re
import sys
import threading
from collections import Counter
from pathlib import Path
from types import FrameType

from trainlab.record.scripts.watched import StatementRow
from trainlab.watching.seeing.timeline import LOSS, OTHER, PARTS, PREPARE, Timeline

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
