"""Makes the bundled subsets from the verified originals and prints the checksums to pin.

    python scripts/make_bundled_data.py FOLDER_WITH_MNIST FOLDER_WITH_FASHION_MNIST

Stratified: every class keeps its share of the original. Which images of a class are taken is
drawn from a fixed seed, and they keep their original order, so that a rerun gives the same bytes.
"""

import gzip
import hashlib
import sys
from pathlib import Path

import torch
from torch import Tensor

from trainlab.data.image_sets import (
    BUNDLED_FOLDER,
    FASHION_MNIST,
    MNIST,
    Files,
    ImageSet,
    file_in,
    idx_bytes,
    read_idx,
)

SEED = 20260131


def stratified_rows(labels: Tensor, num_wanted: int) -> Tensor:
    """Row numbers, ascending: `num_wanted` of them, each class by its share (largest remainder)."""
    counts = torch.bincount(labels.long())
    exact = counts.double() * num_wanted / len(labels)
    quota = exact.floor().long()
    for label in (exact - quota).argsort(descending=True)[: num_wanted - int(quota.sum())]:
        quota[label] += 1
    draw = torch.Generator().manual_seed(SEED)
    chosen = []
    for label, wanted in enumerate(quota.tolist()):
        rows = (labels == label).nonzero().flatten()
        chosen.append(rows[torch.randperm(len(rows), generator=draw)[:wanted]])
    return torch.cat(chosen).sort().values


def make(original: ImageSet, folder: Path) -> None:
    """Writes the four gzip files of the subset and prints their checksums."""

    def read(files: Files, part: str) -> Tensor:
        file = getattr(files, part)
        return read_idx(file_in(folder, file), file.shape, file.sha256)

    target = BUNDLED_FOLDER / original.name
    target.mkdir(parents=True, exist_ok=True)
    for split in ("train", "test"):
        labels = read(original.full, f"{split}_labels")
        images = read(original.full, f"{split}_images")
        subset = getattr(original.bundled, f"{split}_labels")
        rows = stratified_rows(labels, subset.shape[0])
        for part, values in ((f"{split}_images", images[rows]), (f"{split}_labels", labels[rows])):
            content = idx_bytes(values)
            name = getattr(original.bundled, part).name
            (target / f"{name}.gz").write_bytes(gzip.compress(content, 9, mtime=0))
            print(original.name, name, hashlib.sha256(content).hexdigest())


if __name__ == "__main__":
    make(MNIST, Path(sys.argv[1]))
    make(FASHION_MNIST, Path(sys.argv[2]))
