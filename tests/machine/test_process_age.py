"""When a process began, by the clock of the one that started it."""

import subprocess
import sys
import time

SCRIPT = """
import time
from trainlab.machine.processes import process_age_s
age_s, now_s = process_age_s(), time.monotonic()
print(now_s - age_s)
"""


def test_a_process_began_when_it_was_started() -> None:
    """Within a few ticks, though the system knows the time of its boot to a second only."""
    before_s = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    after_s = time.monotonic()
    began_s = float(done.stdout)
    assert before_s - 0.03 < began_s < after_s
