"""Where Python is typed in: whether that is a notebook, and what watches a run there."""

import os
import sys

from trainlab.lab.watcher import Watcher
from trainlab.language import environment_language
from trainlab.words import LANGUAGES, Words


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
    if not is_notebook():
        return Watcher()
    from trainlab.lab.notebook.progress import NotebookWatcher

    return NotebookWatcher(session_words())
