"""A script that writes nothing: no files, no checkpoints, no lines."""

import builtins
import io
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from trainlab.watching.changes.change import Change


def no_logging(change: Change, script: Path) -> None:
    """Files that are opened to be written lead nowhere; torch.save, fsync, print and SummaryWriter do
    nothing. A script that reads what it wrote fails so."""
    really_open = builtins.open

    def opened(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if isinstance(file, str | bytes | os.PathLike) and set(mode) & set("wax"):
            change.num_uses += 1
            return really_open(os.devnull, mode.replace("x", "w"), *arguments, **options)
        return really_open(file, mode, *arguments, **options)

    def nothing(*arguments: Any, **options: Any) -> None:
        change.num_uses += 1

    change.put(builtins, "open", opened)
    change.put(io, "open", opened)
    change.put(builtins, "print", nothing)
    change.put(torch, "save", nothing)
    for name in ("fsync", "fdatasync"):
        if hasattr(os, name):
            change.put(os, name, nothing)
    if "SummaryWriter" in script.read_text(encoding="utf-8") and find_spec("tensorboard"):
        from torch.utils.tensorboard import SummaryWriter

        for name in [one for one in vars(SummaryWriter) if one.startswith("add_")]:
            change.put(SummaryWriter, name, nothing)
    # Bars of progress write to the streams themselves.
    change.put(sys, "stdout", really_open(os.devnull, "w"))
    change.put(sys, "stderr", sys.stdout)
