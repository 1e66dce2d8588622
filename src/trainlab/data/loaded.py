"""Loaded: samples that are fetched one by one and put together into batches, as torch's loaders do it."""

from collections.abc import Callable, Iterable, Mapping, Sized
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    default_collate,
)

from trainlab.errors import DataError

Collate = Callable[[list[Any]], Any]


@dataclass(frozen=True)
class Loaded:
    """A torch `Dataset`, or anything that is indexed by number and knows its length; or, where batches are
    made elsewhere, an iterable of them."""

    samples: Any
    collate: Collate = default_collate
    shuffle: bool = True
    drop_last: bool = False
    workers: int = 0
    """Processes that fetch ahead; 0: this one, when a batch is needed."""
    pin_memory: bool = False
    sampler: Any = None
    """A sampler of the user's own, which says what an epoch is."""
    makes_batches: bool = False
    """Whether `samples` gives whole batches: their size is then not ours to set."""
    streams: bool = False
    """Whether `samples` gives one sample after the other, in an order of its own."""
    worker_init: Callable[[int], None] | None = None
    """Of a stream's loader: what each worker runs first, say to take its share of the samples."""
    loader_batch_size: int | None = None
    """What the user's loader was made with, where it can be set; the trial's is what counts."""

    @property
    def is_counted(self) -> bool:
        """Whether how many there are shows only when all have come."""
        return self.makes_batches or self.streams

    def __len__(self) -> int:
        if self.sampler is not None and isinstance(self.sampler, Sized):
            return len(self.sampler)
        return len(self.samples)

    def part(self, rows: Tensor) -> "Loaded":
        """Those samples of it."""
        self.check_divisible()
        return replace(self, samples=Subset(self.samples, rows.tolist()))

    def check_divisible(self) -> None:
        """DataError where no part of it can be taken."""
        if self.is_counted or self.sampler is not None:
            raise DataError(
                "train_samples, val_fraction: only of data that is indexed by number; leave them out, or "
                "give such a part yourself"
            )


def loaded(given: Any, place: str, collate: Collate | None, drop_last: bool) -> Loaded:
    """What the user gave as a split; DataError where it is nothing that gives samples."""
    if isinstance(given, DataLoader):
        return _from_loader(given, collate, drop_last)
    own = collate or default_collate
    if isinstance(given, IterableDataset):
        return Loaded(given, own, shuffle=False, drop_last=drop_last, streams=True)
    if hasattr(given, "__getitem__") and not isinstance(given, Mapping):
        if not isinstance(given, Sized):
            raise DataError(f"{place}: a {type(given).__name__} without a length; give it __len__")
        if len(given) == 0:
            raise DataError(f"{place}: has no samples")
        return Loaded(given, own, drop_last=drop_last)
    if not isinstance(given, Iterable) or isinstance(given, Mapping):
        raise DataError(
            f"{place}: is a {type(given).__name__}, must be a trainlab.Split, a torch Dataset or "
            "DataLoader, or an iterable of batches"
        )
    if iter(given) is given:
        raise DataError(
            f"{place}: is a {type(given).__name__}, which can be gone through once; give an object whose "
            "__iter__ starts anew each epoch"
        )
    return Loaded(given, shuffle=False, makes_batches=True)


def _from_loader(given: "DataLoader[Any]", collate: Collate | None, drop_last: bool) -> Loaded:
    """Rebuilt from its parts, so that the batch size can be set and its order derives from the seed; used
    as it is where it makes its batches in a way of its own."""
    if given.batch_size is None:
        return Loaded(given, shuffle=False, makes_batches=True)
    sampler: Any = given.sampler
    is_shuffled = isinstance(sampler, RandomSampler) and not sampler.replacement
    streams = isinstance(given.dataset, IterableDataset)
    is_own = not (is_shuffled or streams or isinstance(sampler, SequentialSampler))
    return Loaded(
        given.dataset,
        collate or given.collate_fn,
        shuffle=is_shuffled,
        drop_last=drop_last or given.drop_last,
        workers=given.num_workers,
        pin_memory=given.pin_memory,
        sampler=sampler if is_own else None,
        streams=streams,
        worker_init=given.worker_init_fn if streams else None,
        loader_batch_size=given.batch_size,
    )


def generator_of(sampler: Any) -> torch.Generator | None:
    """The generator that a sampler draws from, given to it here where it has none."""
    if not hasattr(sampler, "generator"):
        return None
    if sampler.generator is None:
        sampler.generator = torch.Generator()
    found: torch.Generator = sampler.generator
    return found
