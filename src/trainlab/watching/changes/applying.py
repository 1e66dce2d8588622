"""A change as it is written, made to this process."""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from trainlab.spec.script import ChangeName, change_parts
from trainlab.watching.changes.change import Change, ChangeError
from trainlab.watching.changes.containers import drop_container
from trainlab.watching.changes.loaders import (
    more_workers,
    one_batch_of_evaluation,
    pinned_memory,
    same_batch,
)
from trainlab.watching.changes.logging import no_logging
from trainlab.watching.changes.optimizers import fused
from trainlab.watching.changes.statements import without_statement


def _other_threads(change: Change, script: Path) -> None:
    number, set_threads = change.number, torch.set_num_threads
    set_threads(number)
    # What the script asks for itself is not heard.
    change.put(torch, "set_num_threads", lambda number: None)
    change.num_uses = 1


def _other_argument(change: Change, script: Path) -> None:
    """The script has been given another argument: nothing is left to do here."""
    change.num_uses = 1


CHANGES: Mapping[ChangeName, Callable[[Change, Path], None]] = {
    "same_batch": same_batch,
    "workers": more_workers,
    "pin_memory": pinned_memory,
    "fused": fused,
    "threads": _other_threads,
    "batch_size": _other_argument,
    "evaluation": one_batch_of_evaluation,
    "no_logging": no_logging,
    "without": without_statement,
    "drop": drop_container,
}


def apply_change(text: str, script: Path) -> Change | None:
    """Makes a change, as `threads=1`, before the script runs; None for none. ChangeError where it cannot be
    made to it. Before the script is watched: what watches it must see it as changed."""
    if not text:
        return None
    change = Change(*change_parts(text))
    try:
        CHANGES[change.name](change, script)
    except ChangeError:
        change.close()
        raise
    return change
