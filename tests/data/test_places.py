import os
from pathlib import Path

import platformdirs
import pytest

from trainlab.data.image_sets import BUNDLED_FOLDER, FASHION_MNIST, MNIST, cached, file_in, holds
from trainlab.errors import DataError
from trainlab.machine.host import cache_folder

FILE = MNIST.full.train_labels


def fill(folder: Path, suffix: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for file in MNIST.full:
        (folder / f"{file.name}{suffix}").touch()
    return folder


def test_the_cache_is_the_platforms_unless_the_variable_moves_it(monkeypatch, tmp_path):
    monkeypatch.delenv("TRAINLAB_CACHE", raising=False)
    assert cache_folder() == Path(platformdirs.user_cache_dir("trainlab"))
    monkeypatch.setenv("TRAINLAB_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path


def test_an_empty_variable_does_not_move_the_cache(monkeypatch):
    monkeypatch.setenv("TRAINLAB_CACHE", "")
    assert cache_folder() == Path(platformdirs.user_cache_dir("trainlab"))


def test_the_variable_may_start_with_the_home_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TRAINLAB_CACHE", "~/lab")
    assert cache_folder() == tmp_path / "lab"


def test_every_set_has_its_own_folder_in_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("TRAINLAB_CACHE", str(tmp_path))
    assert cached(MNIST) == tmp_path / "data" / "mnist"
    assert cached(FASHION_MNIST) == tmp_path / "data" / "fashion-mnist"


@pytest.mark.parametrize("sub", ["", "raw"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_file_is_found_plain_or_gzip_in_the_folder_or_in_raw(tmp_path, sub, suffix):
    fill(tmp_path / sub, suffix)
    assert file_in(tmp_path, FILE) == tmp_path / sub / f"{FILE.name}{suffix}"


def test_a_folder_with_the_name_of_a_file_is_not_that_file(tmp_path):
    (tmp_path / FILE.name).mkdir()
    with pytest.raises(DataError, match=r"has no train-labels-idx1-ubyte or .*ubyte\.gz"):
        file_in(tmp_path, FILE)


def test_a_folder_holds_a_set_only_with_all_four_files(tmp_path):
    fill(tmp_path)
    assert holds(tmp_path, MNIST.full)
    (tmp_path / FILE.name).unlink()
    assert not holds(tmp_path, MNIST.full)


def test_a_file_or_nothing_in_place_of_a_folder_holds_no_set(tmp_path):
    (tmp_path / "file").touch()
    assert not holds(tmp_path / "file", MNIST.full)
    assert not holds(tmp_path / "none", MNIST.full)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may enter every folder")
def test_a_folder_that_may_not_be_entered_is_told(tmp_path):
    locked = fill(tmp_path / "locked")
    locked.chmod(0)
    try:
        with pytest.raises(DataError, match="locked: cannot be read: Permission denied"):
            holds(locked, MNIST.full)
    finally:
        locked.chmod(0o700)


def test_a_folder_name_too_long_for_the_system_is_told(tmp_path):
    with pytest.raises(DataError, match="cannot be read: File name too long"):
        holds(tmp_path / ("x" * 5000), MNIST.full)


def test_the_bundled_folder_holds_both_sets():
    assert holds(BUNDLED_FOLDER / "mnist", MNIST.bundled)
    assert holds(BUNDLED_FOLDER / "fashion-mnist", FASHION_MNIST.bundled)
