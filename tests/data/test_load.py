import gzip
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from trainlab.data import fetch as loading
from trainlab.data.fetch import load_images
from trainlab.data.image_sets import BUNDLED_FOLDER, MNIST, ImageSet, idx_bytes
from trainlab.errors import ChecksumError, DataError, FetchError

every_set = pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])


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


@every_set
def test_the_bundled_subset_has_images_and_labels_and_says_it_is_a_subset(name):
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


@every_set
def test_auto_falls_back_to_the_bundle_and_notes_why(name):
    data = load_images(name, "auto")
    assert (data.source, data.is_subset) == ("bundled", True)
    assert data.note.endswith("not fetched, TRAINLAB_OFFLINE is set")


@every_set
def test_full_that_cannot_be_had_names_the_remedy(name):
    told = "TRAINLAB_OFFLINE is set. Name a folder .* --data FOLDER, or use --data bundled"
    with pytest.raises(FetchError, match=told):
        load_images(name, "full")


@pytest.mark.parametrize("choice", ["auto", "full"])
def test_a_filled_cache_is_read_without_fetching(bundle_as_full, cache, choice):
    copy_bundle(cache / "mnist")
    data = load_images("mnist", choice)
    assert (data.source, data.is_subset, data.note) == ("cache", False, "")
    assert len(data.train) == 6000


@pytest.mark.parametrize("choice", ["auto", "full"])
def test_a_cached_file_with_other_content_is_named(bundle_as_full, cache, choice):
    changed = copy_bundle(cache / "mnist") / "t10k-labels-idx1-ubyte.gz"
    changed.write_bytes(gzip.compress(idx_bytes(torch.zeros(1000, dtype=torch.uint8))))
    with pytest.raises(ChecksumError, match=r"t10k-labels-idx1-ubyte\.gz: SHA-256 is .*delete it"):
        load_images("mnist", choice)


def test_a_folder_with_the_files_is_read_and_told_as_the_source(bundle_as_full, tmp_path):
    folder = copy_bundle(tmp_path / "mine")
    data = load_images("mnist", str(folder))
    assert (data.source, data.is_subset) == (f"folder {folder}", False)
    assert torch.equal(data.train.targets, load_images("mnist", "bundled").train.targets)


@pytest.mark.parametrize("sub", ["mnist", "MNIST", "MNIST/raw", "raw"])
def test_a_folder_of_several_sets_is_searched_as_others_lay_it_out(bundle_as_full, tmp_path, sub):
    copy_bundle(tmp_path / "mine" / sub)
    assert len(load_images("mnist", str(tmp_path / "mine")).train) == 6000


def test_a_folder_with_files_of_another_set_is_refused(bundle_as_full):
    with pytest.raises(
        ChecksumError, match=r"train-images-idx3-ubyte\.gz: SHA-256 is 03c237968cc2…"
    ):
        load_images("mnist", str(BUNDLED_FOLDER / "fashion-mnist"))


def test_a_folder_that_is_not_there_is_told_with_the_choices(tmp_path):
    told = "data: got .*none', must be full, bundled, auto or a folder"
    with pytest.raises(DataError, match=told):
        load_images("mnist", str(tmp_path / "none"))


def test_a_folder_that_lacks_one_file_is_told_what_it_needs(bundle_as_full, tmp_path):
    folder = copy_bundle(tmp_path / "mine")
    (folder / "t10k-labels-idx1-ubyte.gz").unlink()
    told = r"mine: is not a folder with MNIST: needs .*, t10k-labels-idx1-ubyte \(or \.gz of them\)"
    with pytest.raises(DataError, match=told):
        load_images("mnist", str(folder))
