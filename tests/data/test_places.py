from pathlib import Path

import platformdirs
import pytest

from trainlab.data.image_sets import MNIST, file_in, holds
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


@pytest.mark.parametrize("sub", ["", "raw"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_file_is_found_plain_or_gzip_in_the_folder_or_in_raw(tmp_path, sub, suffix):
    fill(tmp_path / sub, suffix)
    assert file_in(tmp_path, FILE) == tmp_path / sub / f"{FILE.name}{suffix}"


def test_a_folder_holds_a_set_only_with_all_four_files(tmp_path):
    fill(tmp_path)
    assert holds(tmp_path, MNIST.full)
    (tmp_path / FILE.name).unlink()
    assert not holds(tmp_path, MNIST.full)
