"""Batches of which several make one update."""

from collections.abc import Iterator, Sequence

from trainlab.train.batches.batches import Batch, Batches, Piece


class AccumulatedBatches(Batches):
    """A piece is the batches of an update, in their order; at the end of an epoch those that are left."""

    def __init__(self, each: Batches, per_update: int) -> None:
        self.each, self._per_update = each, per_update
        self.device, self.rank, self.resident = each.device, each.rank, each.resident
        self.is_cut, self.num_stored, self.num_samples = (
            each.is_cut,
            each.num_stored,
            each.num_samples,
        )
        self.batch_size = each.batch_size * per_update

    def __len__(self) -> int:
        return -(-len(self.each) // self._per_update)

    def resized(self, batch_size: int) -> "AccumulatedBatches":
        return AccumulatedBatches(self.each.resized(batch_size), self._per_update)

    def epoch(self, seed: int, number: int, first: int = 0) -> Sequence[Piece]:
        pieces, size = self.each.epoch(seed, number, first * self._per_update), self._per_update
        return [tuple(pieces[start : start + size]) for start in range(0, len(pieces), size)]

    def gather(self, piece: Piece) -> Batch:
        return [self.each.gather(one) for one in piece]

    def move(self, batch: Batch) -> Batch:
        return [self.each.move(one) for one in batch]

    def is_full(self, piece: Piece) -> bool:
        return len(piece) == self._per_update and self.each.is_full(piece[-1])

    def in_order(self) -> Iterator[Batch]:
        return self.each.in_order()

    def sample(self) -> Batch:
        """One that the model gets at once."""
        return self.each.sample()

    def last_smaller(self) -> Batch | None:
        return self.each.last_smaller()
