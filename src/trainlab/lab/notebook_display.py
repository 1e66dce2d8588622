"""Progress in a notebook: one output of the cell, updated in place until the run has ended.

It is read from the run folder by a thread of its own, so that it disturbs the trials no more than
`trainlab status` from another window does.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from html import escape
from importlib import import_module
from typing import Any

from trainlab.errors import RecordError
from trainlab.lab.run_progress import (
    Activity,
    Download,
    RunProgress,
    Watcher,
    ended_lines,
    progress_line,
    repeated,
    running_lines,
)
from trainlab.language import environment_language
from trainlab.record.run_folder import RunFolder
from trainlab.spec.base import plain
from trainlab.words import LANGUAGES, Words

POLL_S = 0.5
"""Between two looks at the run."""
MOST_LINES = 8
"""Lines below the bar."""


class NotebookWatcher(Watcher):
    """A bar, what runs, and the trials that failed."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self._handle: Any = None
        self._shown = ""

    @contextmanager
    def status(self, activity: Activity) -> Iterator[None]:
        if activity == "starting_torch":
            self._show([self._words(f"activity_{activity}")])
        yield

    def fetching(self) -> AbstractContextManager[Download]:
        def show(name: str, done: int, total: int | None) -> None:
            share = done / total if total else None
            self._show([self._words("activity_fetching", name=name)], share)

        return nullcontext(show)

    @contextmanager
    def running(self, run: RunFolder) -> Iterator[None]:
        progress = RunProgress(run)
        self._look(progress)
        with repeated(lambda: self._look(progress), POLL_S):
            yield

    def _look(self, progress: RunProgress) -> None:
        with suppress(RecordError):  # told when the run is read
            progress.look()
            failed = ended_lines(progress, "failed", self._words, MOST_LINES)
            below = [*failed, *running_lines(progress, self._words)][:MOST_LINES]
            self._show([progress_line(progress, self._words), *below], progress.share_done())

    def _show(self, lines: Sequence[str], share: float | None = None) -> None:
        """A bar where the share is known, and lines below it; the first one is bold. Nothing is shown
        twice."""
        first, *others = (escape(plain(line)) for line in lines)
        bar = ""
        if share is not None:
            bar = f'<progress max="100" value="{100 * share:.0f}" style="width:24em"></progress> '
        inner = "".join(f"<div>{line}</div>" for line in others)
        html = f'<div class="trainlab-progress"><div>{bar}<b>{first}</b></div>{inner}</div>'
        if html == self._shown:
            return
        self._shown = html
        data = {"text/html": html, "text/plain": "\n".join(map(plain, lines))}
        if self._handle is None:
            display = import_module("IPython.display").display
            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


# Where Python is typed in: its language, and what watches a run there.


def session_words(lang: str | None = None) -> Words:
    """The words of a language, or else of the environment's; English where that is none of ours."""
    if lang is None:
        spoken = environment_language(os.environ)
        lang = spoken if spoken in LANGUAGES else "en"
    return Words(lang)


def session_watcher() -> Watcher:
    """Shows progress where this process is the kernel of a notebook, and imports nothing to find out;
    elsewhere nothing is shown, as from any function."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    is_notebook = getattr(shell, "kernel", None) is not None
    return NotebookWatcher(session_words()) if is_notebook else Watcher()
