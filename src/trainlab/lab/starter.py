"""A model and a study to start one's own from, commented in the user's language."""

import re
from collections.abc import Mapping
from pathlib import Path
from string import Template

from trainlab.errors import SpecError
from trainlab.record.files import replacing, writing
from trainlab.spec.base import did_you_mean
from trainlab.studies import FOLDER
from trainlab.words import TABLES, Words

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
