"""Loads an image set from the first place that has it: folder, cache, mirrors, package, bundle."""

from dataclasses import replace
from pathlib import Path

from trainlab.data.dataset import Dataset, Split
from trainlab.data.fetch import fetch
from trainlab.data.idx import read_idx
from trainlab.data.places import BUNDLED_FOLDER, cached, file_in, folder_of, holds
from trainlab.data.sets import Files, ImageSet, image_set
from trainlab.errors import FetchError


def load_images(name: str, choice: str = "auto") -> Dataset:
    """An image set as uint8 tensors of shape (n, 1, 28, 28) and int64 labels.

    `choice` is full (fetched if need be), bundled, auto (full if it can be had, else bundled) or
    a folder with the original files. Every file is verified each time it is read.
    """
    images = image_set(name)
    if choice == "bundled":
        return _read(images, images.bundled, BUNDLED_FOLDER / images.name, "bundled")
    if choice in ("auto", "full"):
        return _full_or_bundled(images, choice)
    return _read(images, images.full, folder_of(images, choice), f"folder {choice}")


def _full_or_bundled(images: ImageSet, choice: str) -> Dataset:
    folder = cached(images)
    if not holds(folder, images.full):
        try:
            fetch(images)
        except FetchError as error:
            if choice == "full":
                raise FetchError(
                    f"{error}. Name a folder that has it with --data FOLDER, or use --data bundled"
                ) from None
            return replace(load_images(images.name, "bundled"), note=str(error))
    return _read(images, images.full, folder, "cache")


def _read(images: ImageSet, files: Files, folder: Path, source: str) -> Dataset:
    train_images, train_labels, test_images, test_labels = (
        read_idx(file_in(folder, file), file.shape, file.sha256) for file in files
    )
    return Dataset(
        name=images.name,
        train=Split(train_images.unsqueeze(1), train_labels.long()),
        test=Split(test_images.unsqueeze(1), test_labels.long()),
        source=source,
        is_subset=files is images.bundled,
        classes=images.classes,
    )
