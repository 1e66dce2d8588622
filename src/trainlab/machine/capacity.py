"""What this machine can do, as far as that is known without torch."""

import os
import sys

from trainlab.errors import SpecError
from trainlab.spec import Study


def check_capacity(study: Study) -> None:
    """SpecError where a setting asks for more than this machine has."""
    num_cpus = os.cpu_count() or 1
    problems = []
    for settings in (cell.settings for cell in study.all_cells):
        # torch starts as many threads as it is told to, and crashes where the system gives no more.
        if settings.threads is not None and settings.threads > num_cpus:
            cpus = "1 CPU" if num_cpus == 1 else f"{num_cpus} CPUs"
            problems.append(
                f"threads: got {settings.threads}, but this machine has {cpus}; use at most {num_cpus}"
            )
        if settings.device == "mps" and sys.platform != "darwin":
            problems.append("device: got mps, but this machine has no Apple GPU; use --device cpu")
    if problems:
        raise SpecError(dict.fromkeys(problems))
