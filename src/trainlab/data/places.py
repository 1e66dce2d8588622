"""Where files of a set lie on this machine: the bundled subsets, the user's cache, any folder."""

from pathlib import Path

from trainlab.data.sets import Files, IdxFile, ImageSet
from trainlab.errors import DataError, MissingFileError
from trainlab.machine.cache import cache_folder

BUNDLED_FOLDER = Path(__file__).with_name("bundled")
"""Part of the package: 6,000 training and 1,000 test images of each set."""


def cached(images: ImageSet) -> Path:
    """The folder that holds, or would hold, the fetched originals of a set."""
    return cache_folder() / "data" / images.name


def file_in(folder: Path, file: IdxFile) -> Path:
    """The file, plain or gzip, in a folder or in the sub-folder torchvision makes."""
    try:
        for sub in (folder, folder / "raw"):
            for name in (file.name, f"{file.name}.gz"):
                if (sub / name).is_file():
                    return sub / name
    except OSError as error:
        raise DataError(f"{folder}: cannot be read: {error.strerror or error}") from None
    raise MissingFileError(f"{folder}: has no {file.name} or {file.name}.gz")


def holds(folder: Path, files: Files) -> bool:
    """Whether all four files are there; says nothing about their content."""
    try:
        for file in files:
            file_in(folder, file)
    except MissingFileError:
        return False
    return True
