"""Means over the batches of all processes."""

import torch
from torch import distributed

from trainlab.train.steps.meter import Means, Meter


class SharedMeter(Meter):
    """Adds up the shares of this process. All processes ask for means at the same time and get the same."""

    def means(self) -> Means:
        self._reduce()
        counts = torch.cat(self._reduced_counts)
        weighted = torch.cat(self._reduced_losses) * counts
        every = torch.cat([self._sums, weighted, counts])
        distributed.all_reduce(every)
        num_sums, num_steps = len(self._sums), len(counts)
        self._sums, weighted, counts = every.split([num_sums, num_steps, num_steps])
        self._reduced_losses, self._reduced_counts = [weighted / counts], [counts]
        self._num_samples = int(counts.sum())
        return super().means()
