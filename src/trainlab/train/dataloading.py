"""Batches of samples that are fetched one by one, by a torch DataLoader and its workers.

What fetching a batch draws (augmentation, masks) derives from the seed, the epoch and the batch alone, so
it is the same however many workers fetch and wherever a training is resumed.
"""

import copy
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count, groupby
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader

from trainlab.data.dataset import Loaded, Split
from trainlab.data.nesting import count_of
from trainlab.errors import WorkloadError
from trainlab.train.batches import (
    AccumulatedBatches,
    Batch,
    Batches,
    Rank,
    SplitBatches,
    input_in,
    kept_samples,
)
from trainlab.train.seeds import data_order, derived_seed, seeded

FETCHES = "fetches"
"""What the seed of a batch is derived for."""
EPOCHS_APART = 1 << 32
"""More batches than an epoch has."""


class Fetch(NamedTuple):
    """One batch of an epoch, to be fetched."""

    epoch: "_Epoch"
    place: int
    """Among the batches, from 0."""


class LoadedBatches(Batches):
    """Cut as the trial says, or as they come where the data makes its own batches."""

    resident = False

    def __init__(self, split: Loaded, batch_size: int, device: torch.device) -> None:
        self.device, self.rank, self.batch_size = device, Rank(), batch_size
        self._split, self.is_cut = split, not split.is_counted
        self._taken: _Epoch | None = None
        """The epoch whose batches come, as its workers fetch them, and the place of the next one."""
        self._coming: Iterator[Batch] = iter(())
        self._next = 0
        self._num_batches: int | None = None
        if split.is_counted:
            samples = split.samples
            with suppress(Exception):  # what it counts, epochs say, is not counted up by this pass
                samples = copy.deepcopy(samples)
            counted = _Epoch(replace(split, samples=samples), batch_size, 0, 0, 0, None)
            counts = [count_of(batch) for batch in counted.streamed()]
            if not counts:
                raise WorkloadError("data: gave no batch; it must give some, anew in each epoch")
            self.num_samples = self.num_stored = sum(counts)
            self._num_batches = len(counts)
            if split.makes_batches:
                self.batch_size = counts[0]
        else:
            self.num_stored = len(split)
            self.num_samples = kept_samples(len(split), batch_size, drop_last=split.drop_last)

    def __len__(self) -> int:
        return super().__len__() if self._num_batches is None else self._num_batches

    def epoch(self, seed: int, number: int, first: int = 0) -> Sequence[Fetch]:
        epoch = self._epoch(seed, number)
        return [Fetch(epoch, place) for place in range(first, len(self))]

    def is_full(self, piece: Fetch) -> bool:
        return not self.is_cut or self.size_of(piece.place) == self.num_full

    def gather(self, piece: Fetch) -> Batch:
        """Of batches that follow each other, from the workers."""
        epoch, place = piece
        if (epoch, place) != (self._taken, self._next):
            if epoch is self._taken and self.is_cut:
                return epoch.fetch(place)
            self._coming = iter(())  # its workers end before others begin
            self._taken, self._next, self._coming = epoch, place, epoch.coming(place)
        self._next += 1
        return next(self._coming)

    def in_order(self) -> Iterator[Batch]:
        return map(self.move, self._epoch(0, 0, in_order=True).coming(0))

    def sample(self) -> Batch:
        return self.move(self._epoch(0, 1).fetch(0))

    def last_smaller(self) -> Batch | None:
        if not self.is_cut or self.num_samples % self.batch_size == 0 or len(self) == 1:
            return None
        return self.move(self._epoch(0, 0, in_order=True).fetch(len(self) - 1))

    def inputs_of(self, places: Sequence[int]) -> Iterator[Any]:
        if not self.is_cut:
            yield from super().inputs_of(places)
            return
        epoch = self._epoch(0, 0, in_order=True)
        for number, of_batch in groupby(sorted(places), lambda place: place // self.batch_size):
            batch = epoch.fetch(number)
            for place in of_batch:
                yield input_in(batch, place - number * self.batch_size)

    def _epoch(self, seed: int, number: int, *, in_order: bool = False) -> "_Epoch":
        """`in_order`: as stored; those that a sampler of the user's own names, in an order that repeats."""
        split, size, cuts = self._split, self.batch_size, None
        if self.is_cut:
            rows = list(range(len(split)))
            if split.sampler is not None:
                if hasattr(split.sampler, "generator"):
                    split.sampler.generator = split.sampler.generator or torch.Generator()
                    split.sampler.generator.manual_seed(derived_seed(seed, "order", number))
                with seeded(seed, "order", number):
                    rows = list(split.sampler)
            elif split.shuffle and not in_order:
                rows = data_order(seed, number, len(split)).tolist()
            cuts = [rows[start : start + size] for start in range(0, self.num_samples, size)]
        return _Epoch(split, size, len(self), seed, number, cuts)


@dataclass(frozen=True, eq=False)
class _Epoch:
    """The batches of one epoch. Refers to nothing that refers to what is coming of it: as part of a circle
    the queues of workers would be gone before these are told to end, and each would be waited for."""

    split: Loaded
    batch_size: int
    num_batches: int
    seed: int
    number: int
    cuts: Sequence[list[int]] | None
    """The samples of each batch; None where the data has an order of its own, and a batch is reached by
    going through those before it."""

    def coming(self, first: int) -> Iterator[Batch]:
        """The batches from a place on, by the workers."""
        coming = self.streamed(first) if self.cuts is None else self._by_workers(first)
        for place in range(first, self.num_batches):
            try:
                yield next(coming)
            except StopIteration:
                raise WorkloadError(
                    f"data: gave {place} batches in an epoch and {self.num_batches} in the first; it must "
                    "give as many each time"
                ) from None

    def fetch(self, place: int) -> Batch:
        if self.cuts is None:
            return next(self.streamed(place))
        samples, rows = self.split.samples, self.cuts[place]
        # Put together here too: a collate function may draw.
        seed = derived_seed(self.seed, FETCHES, self.number * EPOCHS_APART + place)
        with seeded(seed, FETCHES):
            if hasattr(samples, "__getitems__"):
                return self.split.collate(samples.__getitems__(rows))
            return self.split.collate([samples[row] for row in rows])

    def __getitems__(self, places: list[int]) -> Batch:
        """As torch's loader asks for a batch."""
        return self.fetch(*places)

    def _by_workers(self, first: int) -> Iterator[Batch]:
        loader: DataLoader[Any] = DataLoader(
            self,  # type: ignore[arg-type]
            batch_sampler=[[place] for place in range(first, self.num_batches)],
            collate_fn=_as_it_is,
            num_workers=self.split.workers,
            pin_memory=self.split.pin_memory and torch.cuda.is_available(),
        )
        # Seeds of its own for the workers, which each batch sets anew: nothing of ours is drawn from.
        loader.generator = torch.Generator().manual_seed(0)
        return iter(loader)

    def streamed(self, first: int = 0) -> Iterator[Batch]:
        """The batches of data that has an order of its own, as many as come."""
        split = self.split
        with seeded(self.seed, FETCHES, self.number * EPOCHS_APART):
            source = split.samples
            if split.streams:
                source = DataLoader(
                    split.samples,
                    self.batch_size,
                    collate_fn=split.collate,
                    num_workers=split.workers,
                    drop_last=split.drop_last,
                    worker_init_fn=split.worker_init,
                )
            coming = iter(source)
        for place in count():
            with seeded(self.seed, FETCHES, self.number * EPOCHS_APART + place):
                batch = next(coming, coming)
            if batch is coming:
                return
            if place >= first:
                yield batch


def _as_it_is(batch: Any) -> Any:
    return batch


# Batches: a split of the data, cut into the batches of each epoch, wherever it lies.


def make_batches(
    split: Split | Loaded,
    batch_size: int,
    device: torch.device,
    rank: Rank | None = None,
    *,
    drop_last: bool = False,
    per_update: int = 1,
) -> Batches:
    """The batches of tensors, or of samples that are fetched one by one; `per_update` of them make one
    update."""
    if per_update > 1:
        each = make_batches(split, batch_size, device, rank, drop_last=drop_last)
        return AccumulatedBatches(each, per_update)
    if isinstance(split, Split):
        return SplitBatches(split, batch_size, device, rank, drop_last=drop_last)
    if rank is not None and rank.of > 1:
        raise WorkloadError(
            f"processes: got {rank.of}, but the data is loaded sample by sample; several processes share "
            "tensors only: give a trainlab.Split"
        )
    return LoadedBatches(split, batch_size, device)
