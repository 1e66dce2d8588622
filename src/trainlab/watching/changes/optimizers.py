"""The optimizers of a script, by torch's fused code."""

import inspect
from pathlib import Path
from typing import Any

import torch

from trainlab.watching.changes.change import Change


def fused(change: Change, script: Path) -> None:
    """Every optimizer of torch's that has fused code uses it, whatever it is asked for."""
    for kind in vars(torch.optim).values():
        if isinstance(kind, type) and "fused" in inspect.signature(kind).parameters:
            _make_fused(change, kind)


def _make_fused(change: Change, kind: Any) -> None:
    make = kind.__init__
    parameters = inspect.signature(make).parameters

    def made_fused(optimizer: Any, *arguments: Any, **options: Any) -> None:
        if not options.get("differentiable"):
            change.num_uses += 1
            options["fused"] = True
            if "foreach" in parameters and len(arguments) < list(parameters).index("foreach"):
                options["foreach"] = False
        make(optimizer, *arguments, **options)

    change.put(kind, "__init__", made_fused)
