"""Texts that somebody has read and accepted: files in `golden`."""

import difflib
import os
from pathlib import Path

GOLDEN = Path(__file__).with_name("golden")
ACCEPT = "TRAINLAB_ACCEPT=1 python -m pytest tests/report, then read the difference that git shows"


def assert_accepted(name: str, made: str) -> None:
    """The text is that of the file; with TRAINLAB_ACCEPT set it becomes the file."""
    path = GOLDEN / name
    if os.environ.get("TRAINLAB_ACCEPT"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(made, encoding="utf-8")
    known = path.read_text(encoding="utf-8")
    changes = difflib.unified_diff(known.splitlines(), made.splitlines(), "accepted", "now", n=0)
    assert known == made, "\n".join([*changes, f"To accept: {ACCEPT}"])
