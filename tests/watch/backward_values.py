"""Runs a script and writes down every value of which it asks the gradient.

    python backward_values.py FILE SCRIPT [ARGUMENT ...]

Rank n of torchrun, other than 0, writes to `FILE.rankn`, as the script does with its own losses.
"""

import os
import runpy
import sys
from pathlib import Path
from typing import Any

import torch


def main() -> None:
    path, script, *arguments = sys.argv[1:]
    rank = os.environ.get("RANK", "0")
    real = torch.autograd.backward
    values: list[float] = []

    def backward(tensors: torch.Tensor, *rest: Any, **named: Any) -> None:
        values.append(float(tensors.detach()))
        real(tensors, *rest, **named)

    torch.autograd.backward = backward
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")
    written = path if rank == "0" else f"{path}.rank{rank}"
    Path(written).write_text("".join(f"{value!r}\n" for value in values))


if __name__ == "__main__":
    main()
