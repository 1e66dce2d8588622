"""Changes of where batches come from."""

import inspect
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from trainlab.watching.changes.change import Change

FIRST = "_trainlab_first_batch"
LEFT = "_trainlab_batches_left"
"""What an iterator keeps of its pass."""


def same_batch(change: Change, script: Path) -> None:
    """A loader that is trained on gives the first batch of a pass again and again, as many as it has."""
    following = _BaseDataLoaderIter.__next__

    def first_again(iterator: Any) -> Any:
        kept = iterator.__dict__
        if FIRST in kept:
            if kept[LEFT] < 1:
                raise StopIteration
            kept[LEFT] -= 1
            change.num_uses += 1
            return kept[FIRST]
        batch = following(iterator)
        if torch.is_grad_enabled() and (number := _num_batches(iterator)) is not None:
            kept[FIRST], kept[LEFT] = batch, number - 1
        return batch

    change.put(_BaseDataLoaderIter, "__next__", first_again)


def _num_batches(iterator: Any) -> int | None:
    try:
        return len(iterator)
    except (TypeError, NotImplementedError):
        return None


def one_batch_of_evaluation(change: Change, script: Path) -> None:
    """A pass without gradients ends after so many batches."""
    following, most = _BaseDataLoaderIter.__next__, change.number

    def cut_short(iterator: Any) -> Any:
        if torch.is_grad_enabled():
            return following(iterator)
        kept = iterator.__dict__
        given = kept.get(LEFT, 0)
        if given >= most:
            change.num_uses += 1
            raise StopIteration
        kept[LEFT] = given + 1
        return following(iterator)

    change.put(_BaseDataLoaderIter, "__next__", cut_short)


def more_workers(change: Change, script: Path) -> None:
    """Loaders that shuffle, or draw by a sampler of the script's, get so many workers, which stay."""
    number = change.number
    _with_options(change, num_workers=number, persistent_workers=True)


def pinned_memory(change: Change, script: Path) -> None:
    """Those loaders put batches where a GPU can fetch them by itself."""
    _with_options(change, pin_memory=True)


def _with_options(change: Change, **options: Any) -> None:
    make = DataLoader.__init__
    signature = inspect.signature(make)

    def made_otherwise(loader: Any, *arguments: Any, **given: Any) -> None:
        asked = signature.bind(loader, *arguments, **given).arguments
        if any(asked.get(name) for name in ("shuffle", "sampler", "batch_sampler", "drop_last")):
            change.num_uses += 1
            asked |= options
        make(*_positional(asked), **asked)

    def _positional(asked: dict[str, Any]) -> tuple[Any, ...]:
        return asked.pop("self"), asked.pop("dataset")

    change.put(DataLoader, "__init__", made_otherwise)
