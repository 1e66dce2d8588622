"""What a student sees of `make lab`: how long it takes, when the first result is there, how long the
screen ever stands still. Runs mnist-lab on bundled data on a pseudo-terminal, and off one.

    python -m benchmarks.lab
"""

import os
import re
import select
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

RESULT = re.compile(rb"test accuracy [0-9.]+%")
LEFT = re.compile(rb"[0-9:]+ (?:s|min|h) left")


@dataclass
class Seen:
    """When something new came onto the screen, in seconds from the start."""

    total_s: float
    first_result_s: float | None
    first_left_s: float | None
    longest_still_s: float
    still_at_s: float
    num_updates: int
    code: int


def watched(command: list[str], terminal: bool) -> Seen:
    """Runs a command and notes when it shows what."""
    read, write = os.openpty() if terminal else os.pipe()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"}
    start = last = time.monotonic()
    process = subprocess.Popen(command, stdout=write, stderr=write, env=environment)
    os.close(write)
    shown, still, still_at, result, left = b"", 0.0, 0.0, None, None
    updates = 0
    while True:
        ready, _, _ = select.select([read], [], [], 1.0)
        now = time.monotonic()
        if not ready:
            continue
        try:
            chunk = os.read(read, 65536)
        except OSError:  # a terminal whose other end has closed
            chunk = b""
        if now - last > still:
            still, still_at = now - last, last - start
        last = now
        if not chunk:
            break
        shown += chunk
        updates += 1
        result = result or (now - start if RESULT.search(shown) else None)
        left = left or (now - start if LEFT.search(shown) else None)
    code = process.wait()
    return Seen(time.monotonic() - start, result, left, still, still_at, updates, code)


def main() -> None:
    """Prints a row per kind of screen."""
    print("| screen | whole run | first result | first time left | longest stillness |")
    print("|---|---|---|---|---|")
    for terminal in (True, False):
        with tempfile.TemporaryDirectory() as folder:
            out = str(Path(folder) / "run")
            words = ["run", "mnist-lab", "--data", "bundled", "--out", out]
            seen = watched([sys.executable, "-m", "trainlab", *words], terminal)
        assert seen.code == 0
        print(
            f"| {'terminal' if terminal else 'pipe'} | {seen.total_s:.0f} s "
            f"| {seen.first_result_s:.1f} s | {seen.first_left_s:.1f} s "
            f"| {seen.longest_still_s:.1f} s (at {seen.still_at_s:.0f} s) |",
            flush=True,
        )


if __name__ == "__main__":
    main()
