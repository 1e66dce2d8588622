import gzip
import shutil
from dataclasses import replace
from pathlib import Path

import platformdirs
import pytest
import torch

from trainlab.data import fetch as loading
from trainlab.data.fetch import load_images
from trainlab.data.image_sets import BUNDLED_FOLDER, IMAGE_SETS, MNIST, ImageSet, idx_bytes
from trainlab.errors import DataError, FetchError
from trainlab.machine.host import cache_folder


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache, and no way to fill it."""
    monkeypatch.setenv("TRAINLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TRAINLAB_OFFLINE", "1")
    return tmp_path / "cache" / "data"


@pytest.fixture
def bundle_as_full(monkeypatch: pytest.MonkeyPatch) -> ImageSet:
    """MNIST as if its bundled files were all there is, so that a full set is at hand."""
    images = replace(MNIST, full=MNIST.bundled._replace())
    monkeypatch.setattr(loading, "image_set", {"mnist": images}.__getitem__)
    return images


def copy_bundle(folder: Path) -> Path:
    return Path(shutil.copytree(BUNDLED_FOLDER / "mnist", folder))


def test_the_bundled_subset_has_images_and_labels_and_says_it_is_a_subset():
    for name in IMAGE_SETS:
        data = load_images(name, "bundled")
        assert data.name == name
        assert (data.source, data.is_subset, data.note) == ("bundled", True, "")
        for split, num_samples in ((data.train, 6000), (data.test, 1000)):
            assert split.inputs.shape == (num_samples, 1, 28, 28)
            assert split.inputs.dtype == torch.uint8
            assert split.targets.shape == (num_samples,)
            assert split.targets.dtype == torch.int64
            assert split.targets.unique().tolist() == list(range(10))
        assert len(data.classes) == 10


def test_an_unknown_set_is_told_with_the_nearest_name():
    with pytest.raises(DataError, match="'minst' is not known; did you mean mnist"):
        load_images("minst", "bundled")


def test_without_the_full_set_auto_takes_the_bundle_and_full_names_the_remedy():
    data = load_images("mnist", "auto")
    assert (data.source, data.is_subset) == ("bundled", True)
    assert data.note.endswith("not fetched, TRAINLAB_OFFLINE is set")
    told = "TRAINLAB_OFFLINE is set. Name a folder .* --data FOLDER, or use --data bundled"
    with pytest.raises(FetchError, match=told):
        load_images("mnist", "full")


def test_a_filled_cache_is_read_without_fetching_and_verified(bundle_as_full, cache):
    folder = copy_bundle(cache / "mnist")
    for choice in ("auto", "full"):
        data = load_images("mnist", choice)
        assert (data.source, data.is_subset, data.note) == ("cache", False, "")
        assert len(data.train) == 6000
    changed = folder / "t10k-labels-idx1-ubyte.gz"
    changed.write_bytes(gzip.compress(idx_bytes(torch.zeros(1000, dtype=torch.uint8))))
    with pytest.raises(DataError, match=r"t10k-labels-idx1-ubyte\.gz: SHA-256 is .*delete it"):
        load_images("mnist", "auto")


def test_a_folder_with_the_files_is_read_and_told_as_the_source(bundle_as_full, tmp_path):
    folder = copy_bundle(tmp_path / "mine")
    data = load_images("mnist", str(folder))
    assert (data.source, data.is_subset) == (f"folder {folder}", False)
    assert torch.equal(data.train.targets, load_images("mnist", "bundled").train.targets)


def test_a_folder_of_several_sets_is_searched_as_others_lay_it_out(bundle_as_full, tmp_path):
    for sub in ("mnist", "MNIST", "MNIST/raw", "raw"):
        folder = copy_bundle(tmp_path / sub.replace("/", "-") / sub)
        plain = folder / "t10k-labels-idx1-ubyte"
        plain.write_bytes(gzip.decompress((folder / f"{plain.name}.gz").read_bytes()))
        (folder / f"{plain.name}.gz").unlink()
        assert len(load_images("mnist", str(tmp_path / sub.replace("/", "-"))).train) == 6000


def test_a_folder_that_is_none_of_the_set_is_told_with_what_it_needs(bundle_as_full, tmp_path):
    lacking = copy_bundle(tmp_path / "mine")
    (lacking / "t10k-labels-idx1-ubyte.gz").unlink()
    for folder, told in (
        (BUNDLED_FOLDER / "fashion-mnist", r"ubyte\.gz: SHA-256 is 03c237968cc2…"),
        (tmp_path / "none", "data: got .*none', must be full, bundled, auto or a folder"),
        (lacking, r"mine: is not a folder with MNIST: needs .*, t10k-labels-idx1-ubyte \(or \.gz"),
    ):
        with pytest.raises(DataError, match=told):
            load_images("mnist", str(folder))


def test_the_cache_is_the_platforms_unless_the_variable_moves_it(monkeypatch, tmp_path):
    monkeypatch.delenv("TRAINLAB_CACHE")
    assert cache_folder() == Path(platformdirs.user_cache_dir("trainlab"))
    monkeypatch.setenv("TRAINLAB_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
