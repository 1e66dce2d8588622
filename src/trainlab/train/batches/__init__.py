"""Batches: a split of the data, cut into the batches of each epoch, wherever it lies."""

import torch

from trainlab.data.dataset import Split
from trainlab.data.loaded import Loaded
from trainlab.errors import WorkloadError
from trainlab.train.batches.accumulated import AccumulatedBatches as AccumulatedBatches
from trainlab.train.batches.batches import Batches as Batches
from trainlab.train.batches.loaded import LoadedBatches
from trainlab.train.batches.split import SplitBatches as SplitBatches
from trainlab.train.rank import Rank


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
