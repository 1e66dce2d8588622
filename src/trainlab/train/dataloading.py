"""Batches of samples that are fetched one by one, by a torch DataLoader and its workers.

What fetching a batch draws (augmentation, masks) derives from the seed, the epoch and the batch alone, so
it is the same however many workers fetch and wherever a training is resumed.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count, groupby, islice
from typing import Any

import torch
from torch.utils.data import DataLoader

from trainlab.data.dataset import Loaded, Split, generator_of
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


class LoadedBatches(Batches):
    """Cut as the trial says, or as they come where the data makes its own batches."""

    resident = False

    def __init__(self, split: Loaded, batch_size: int, device: torch.device) -> None:
        self.device, self.rank, self.batch_size = device, Rank(), batch_size
        self._split, self.is_cut = split, not split.is_counted
        self._num_batches: int | None = None
        self._taking: _Taking | None = None
        if split.is_counted:
            counts = [count_of(batch) for batch in self._stream(0, 0)]
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

    def resized(self, batch_size: int) -> "LoadedBatches":
        size = self.batch_size if self._split.makes_batches else batch_size
        return self if size == self.batch_size else LoadedBatches(self._split, size, self.device)

    def epoch(self, seed: int, number: int, first: int = 0) -> Sequence["Fetch"]:
        return _Epoch(self, self._rows(seed, number), seed, number).pieces[first:]

    def gather(self, piece: "Fetch") -> Batch:
        if self._taking is None or self._taking.epoch is not piece.epoch:
            self._taking = None  # its workers end before others begin
            self._taking = _Taking(piece.epoch)
        return self._taking.take(piece)

    def in_order(self) -> Iterator[Batch]:
        epoch = _Epoch(self, self._rows_in_order(), 0, 0)
        taking = _Taking(epoch)
        for piece in epoch.pieces:
            yield self.move(taking.take(piece))

    def sample(self) -> Batch:
        epoch = _Epoch(self, None if self._split.is_counted else self._rows(0, 1), 0, 1)
        return self.move(epoch.fetch(epoch.pieces[0]))

    def last_smaller(self) -> Batch | None:
        if self._split.is_counted or self.num_samples % self.batch_size == 0:
            return None
        epoch = _Epoch(self, self._rows_in_order(), 0, 0)
        return self.move(epoch.fetch(epoch.pieces[-1])) if len(epoch.pieces) > 1 else None

    def inputs_of(self, places: Sequence[int]) -> Iterator[Any]:
        if not self.is_cut:
            yield from super().inputs_of(places)
            return
        epoch = _Epoch(self, self._rows_in_order(), 0, 0)
        for number, of_batch in groupby(sorted(places), lambda place: place // self.batch_size):
            batch = epoch.fetch(epoch.pieces[number])
            for place in of_batch:
                yield input_in(batch, place - number * self.batch_size)

    def _rows_in_order(self) -> list[int] | None:
        """As stored; those that a sampler of the user's own names, in an order that repeats."""
        if self._split.sampler is not None:
            return self._rows(0, 0)
        return None if self._split.is_counted else list(range(len(self._split)))

    def _rows(self, seed: int, number: int) -> list[int] | None:
        """Of an epoch, in its order; None where the data has an order of its own."""
        split = self._split
        if split.is_counted:
            return None
        if split.sampler is not None:
            generator = generator_of(split.sampler)
            if generator is not None:
                generator.manual_seed(derived_seed(seed, "order", number))
            with seeded(seed, "order", number):
                return list(split.sampler)
        if split.shuffle:
            return data_order(seed, number, len(split)).tolist()
        return list(range(len(split)))

    def _stream(self, seed: int, number: int) -> Iterator[Batch]:
        return _streamed(self._split, self.batch_size, seed, number)


def _streamed(split: Loaded, batch_size: int, seed: int, number: int) -> Iterator[Batch]:
    """The batches of data that has an order of its own, from the first on."""
    with seeded(seed, FETCHES, number * EPOCHS_APART):
        source = split.samples
        if split.streams:
            source = DataLoader(
                split.samples,
                batch_size,
                collate_fn=split.collate,
                num_workers=split.workers,
                drop_last=split.drop_last,
                worker_init_fn=split.worker_init,
            )
        coming = iter(source)
    for place in count():
        with seeded(seed, FETCHES, number * EPOCHS_APART + place):
            batch = next(coming, coming)
        if batch is coming:
            return
        yield batch


class Fetch(list[int]):
    """The samples of a batch, with what its fetching draws from and the epoch that it is of."""

    def __init__(self, rows: Sequence[int], seed: int, epoch: "_Epoch") -> None:
        super().__init__(rows)
        self.seed, self.epoch = seed, epoch

    def __reduce__(self) -> Any:
        return _Sent, (list(self), self.seed)  # to a worker, which needs no more


class _Sent(list[int]):
    def __init__(self, rows: Sequence[int], seed: int) -> None:
        super().__init__(rows)
        self.seed = seed


class _Fetching:
    """The samples as torch's loader asks for them: a whole batch at a time, put together here too, so that
    a collate function may draw."""

    def __init__(self, split: Loaded) -> None:
        self._split, self.is_cut = split, not split.is_counted

    def __getitems__(self, piece: "Fetch | _Sent") -> Any:
        samples = self._split.samples
        with seeded(piece.seed, FETCHES):
            if hasattr(samples, "__getitems__"):
                return self._split.collate(samples.__getitems__(list(piece)))
            return self._split.collate([samples[row] for row in piece])


class _Epoch:
    """The batches of one epoch, from its first piece that is asked for on."""

    def __init__(
        self, batches: LoadedBatches, rows: list[int] | None, seed: int, number: int
    ) -> None:
        self._split = batches._split
        first = number * EPOCHS_APART
        if rows is None:
            places = range(len(batches))
            self.pieces = [
                Fetch([place], derived_seed(seed, FETCHES, place), self) for place in places
            ]
            # Of the split alone: the batches refer to the epoch that is being taken.
            self._stream: Callable[[], Iterator[Batch]] | None = partial(
                _streamed, batches._split, batches.batch_size, seed, number
            )
        else:
            size = batches.batch_size
            cuts = [rows[start : start + size] for start in range(0, batches.num_samples, size)]
            self.pieces = [
                Fetch(cut, derived_seed(seed, FETCHES, first + place), self)
                for place, cut in enumerate(cuts)
            ]
            self._stream = None
        self._places = {id(piece): place for place, piece in enumerate(self.pieces)}

    @property
    def is_stream(self) -> bool:
        """Whether a batch is reached by going through those before it."""
        return self._stream is not None

    def fetch(self, piece: Fetch) -> Batch:
        """The batch of a piece, out of turn."""
        if self._stream is not None:
            return next(islice(self._stream(), self._places[id(piece)], None))
        return _Fetching(self._split).__getitems__(piece)

    def place_of(self, piece: Fetch) -> int:
        """Among the pieces, from 0."""
        return self._places[id(piece)]

    def coming(self, place: int) -> Iterator[Batch]:
        """The batches from a place on, by the workers."""
        if self._stream is not None:
            return islice(self._stream(), place, None)
        split = self._split
        loader: DataLoader[Any] = DataLoader(
            _Fetching(split),  # type: ignore[arg-type]
            batch_sampler=self.pieces[place:],
            collate_fn=_as_it_is,
            num_workers=split.workers,
            pin_memory=split.pin_memory and torch.cuda.is_available(),
        )
        # Seeds of its own for the workers, which each batch sets anew: nothing of ours is drawn from.
        loader.generator = torch.Generator().manual_seed(0)
        return iter(loader)


class _Taking:
    """The batches of an epoch as they come, the workers behind them. Nothing that the workers are given
    refers to it, so that it goes, and they with it, as soon as it is dropped: as part of a circle their
    queues would be gone before they are told to end, and each would be waited for."""

    def __init__(self, epoch: _Epoch) -> None:
        self.epoch = epoch
        self._next: int | None = None
        self._coming: Iterator[Batch] = iter(())

    def take(self, piece: Fetch) -> Batch:
        """The batch of a piece; of those that follow each other, from the workers."""
        place = self.epoch.place_of(piece)
        if self._next is None or (self.epoch.is_stream and place < self._next):
            self._next, self._coming = place, self.epoch.coming(place)
        if place > self._next and self.epoch.is_stream:
            self._next, self._coming = place, islice(self._coming, place - self._next, None)
        if place != self._next:
            return self.epoch.fetch(piece)
        self._next += 1
        batch = next(self._coming, self)
        if batch is self:
            raise WorkloadError(
                f"data: gave {place} batches in an epoch and {len(self.epoch.pieces)} in the first; it "
                "must give as many each time"
            )
        return batch


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
