"""Progress in a notebook: one output of the cell, updated in place until the run has ended.

It is read from the run folder by a thread of its own, so that it disturbs the trials no more than
`trainlab status` from another window does.
"""

import contextvars
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from html import escape
from importlib import import_module
from typing import Any

from trainlab.errors import RecordError
from trainlab.lab.run_progress import (
    Activity,
    RunProgress,
    Watcher,
    ended_lines,
    progress_line,
    running_lines,
)
from trainlab.language import environment_language
from trainlab.record.run_folder import RunFolder
from trainlab.spec.base import plain
from trainlab.words import LANGUAGES, Words

POLL_S = 0.5
"""Between two looks at the run."""
LOOK_SHARE = 0.02
"""Looks take at most this share of the time: a run of thousands of trials is looked at less often."""
MOST_LINES = 8
"""Lines below the bar."""


class NotebookWatcher(Watcher):
    """A bar, what runs, and the trials that failed."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self._output = _Output()

    @contextmanager
    def status(self, activity: Activity) -> Iterator[None]:
        if activity == "starting_torch":
            self._output.show([self._words(f"activity_{activity}")])
        yield

    def downloads(self, name: str, done: int, total: int | None) -> None:
        share = done / total if total else None
        self._output.show([self._words("activity_fetching", name=name)], share)

    @contextmanager
    def running(self, run: RunFolder) -> Iterator[None]:
        """Looks again and again, and once more when all is over."""
        progress, is_over = RunProgress(run), threading.Event()

        def watch() -> None:
            pause_s = 0.0
            while not is_over.wait(pause_s):
                begun_s = time.monotonic()
                self._look(progress)
                pause_s = max(POLL_S, (time.monotonic() - begun_s) / LOOK_SHARE)

        # A kernel knows by its context which cell an output belongs to.
        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(watch,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()
            self._look(progress)

    def _look(self, progress: RunProgress) -> None:
        with suppress(OSError, RecordError):  # told when the run is read
            progress.look()
            failed = ended_lines(progress, "failed", self._words, MOST_LINES)
            below = [*failed, *running_lines(progress, self._words)][:MOST_LINES]
            self._output.show([progress_line(progress, self._words), *below], progress.share_done())


class _Output:
    """One output of the cell; nothing is shown twice."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._shown = ""

    def show(self, lines: Sequence[str], share: float | None = None) -> None:
        """A bar where the share is known, and lines below it; the first one is bold."""
        display = import_module("IPython.display").display
        html = _html(lines, share)
        if html == self._shown:
            return
        self._shown = html
        data = {"text/html": html, "text/plain": "\n".join(map(plain, lines))}
        if self._handle is None:
            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


def _html(lines: Sequence[str], share: float | None) -> str:
    first, *others = (escape(plain(line)) for line in lines)
    bar = ""
    if share is not None:
        bar = f'<progress max="100" value="{100 * share:.0f}" style="width:24em"></progress> '
    inner = "".join(f"<div>{line}</div>" for line in others)
    return f'<div class="trainlab-progress"><div>{bar}<b>{first}</b></div>{inner}</div>'


# Where Python is typed in: whether that is a notebook, and what watches a run there.


def is_notebook() -> bool:
    """Whether this process is the kernel of a notebook; imports nothing to find out."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


def session_words(lang: str | None = None) -> Words:
    """The words of a language, or else of the environment's; English where that is none of ours."""
    if lang is None:
        spoken = environment_language(os.environ)
        lang = spoken if spoken in LANGUAGES else "en"
    return Words(lang)


def session_watcher() -> Watcher:
    """Shows progress in a notebook; elsewhere nothing is shown, as from any function."""
    return NotebookWatcher(session_words()) if is_notebook() else Watcher()
