"""Where files of a set lie on this machine: the bundled subsets, the user's cache, any folder."""

from pathlib import Path

from trainlab.data.sets import Files, IdxFile, ImageSet
from trainlab.errors import DataError, MissingFileError
from trainlab.machine.cache import cache_folder, expanded
from trainlab.spec.base import did_you_mean
from trainlab.spec.settings import DATA_CHOICES

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


def folder_of(images: ImageSet, choice: str) -> Path:
    """The folder that a user names, or that of the set in it; DataError where it has not all files."""
    try:
        folder = expanded(choice)
        is_folder = folder.is_dir()
    except (DataError, OSError):
        is_folder = False
    if not is_folder:
        hint = did_you_mean(choice, DATA_CHOICES)
        raise DataError(f"data: got {choice!r}, must be full, bundled, auto or a folder{hint}")
    # A folder that holds several sets keeps each in its own sub-folder.
    spellings = (images.name, images.title, images.title.replace("-", ""))
    for candidate in (folder, *(folder / spelling for spelling in spellings)):
        if holds(candidate, images.full):
            return candidate
    names = ", ".join(file.name for file in images.full)
    raise DataError(
        f"{folder}: is not a folder with {images.title}: needs {names} (or .gz of them)"
    )
