import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainlab.data.image_sets import (
    BUNDLED_FOLDER,
    FASHION_MNIST,
    IMAGE_SETS,
    MNIST,
    file_in,
    read_idx,
)

SCRIPT = Path(__file__).parents[2] / "scripts" / "make_bundled_data.py"
MAX_BYTES = 6_000_000

MNIST_TRAIN = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
MNIST_TEST = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_bundled_data", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_bundled_file_has_its_pinned_checksum_and_no_blank_image():
    for name, images in IMAGE_SETS.items():
        for file in images.bundled:
            values = read_idx(file_in(BUNDLED_FOLDER / name, file), file.shape, file.sha256)
            assert values.shape == file.shape
            assert values.dim() == 1 or values.flatten(1).amax(1).min() > 0


def test_every_class_keeps_its_share_to_within_one_image():
    for images, part, originals in (
        (MNIST, "train_labels", MNIST_TRAIN),
        (MNIST, "test_labels", MNIST_TEST),
        (FASHION_MNIST, "train_labels", [6000] * 10),
        (FASHION_MNIST, "test_labels", [1000] * 10),
    ):
        file = getattr(images.bundled, part)
        assert sum(originals) == getattr(images.full, part).shape[0]
        labels = read_idx(file_in(BUNDLED_FOLDER / images.name, file), file.shape, file.sha256)
        kept = torch.bincount(labels, minlength=10).tolist()
        shares = [count * len(labels) / sum(originals) for count in originals]
        assert len(kept) == len(images.classes)
        assert all(abs(got - share) < 1 for got, share in zip(kept, shares, strict=True)), kept


def test_the_bundled_folder_is_small_and_names_the_licence_of_each_set():
    files = [path for path in BUNDLED_FOLDER.rglob("*") if path.is_file()]
    assert 0 < sum(path.stat().st_size for path in files) < MAX_BYTES
    assert {f"LICENSE-{name}" for name in IMAGE_SETS} <= {path.name for path in files}


@settings(deadline=None)
@given(labels=st.lists(st.integers(0, 5), min_size=1, max_size=60), share=st.floats(0, 1))
def test_stratified_rows_give_every_class_its_share_to_within_one(script, labels, share):
    wanted = round(share * len(labels))
    rows = script.stratified_rows(torch.tensor(labels, dtype=torch.uint8), wanted)
    kept = [labels[row] for row in rows.tolist()]
    for label in set(labels):
        assert abs(kept.count(label) - labels.count(label) * wanted / len(labels)) < 1
