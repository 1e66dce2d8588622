"""Rank: one of the processes of a trial, which samples of a batch it takes, and what they count."""

from torch import Tensor

from trainlab.spec import Spec


class Rank(Spec):
    """A process by its number, from 0, among so many."""

    number: int = 0
    of: int = 1

    def num_in(self, batch_size: int) -> int:
        """Samples of a batch that this process takes; the first processes take one more where it does not
        divide evenly."""
        each, rest = divmod(batch_size, self.of)
        return each + (self.number < rest)

    def share_of(self, rows: Tensor) -> Tensor:
        """The rows of a batch that this process takes. One that gets none takes the first, which then
        counts nothing: it has to take part in the update all the same."""
        if self.of == 1:
            return rows
        return rows.tensor_split(self.of)[self.number] if self.num_in(len(rows)) else rows[:1]

    def weight_in(self, batch_size: int) -> float:
        """What the mean loss of its share counts, so that the mean over all processes is that of the whole
        batch."""
        return self.num_in(batch_size) * self.of / batch_size
