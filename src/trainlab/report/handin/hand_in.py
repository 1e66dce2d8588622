"""HandIn: who hands a report in, and what she wrote."""

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from trainlab import __version__
from trainlab.errors import SpecError
from trainlab.record.files import reading


@dataclass(frozen=True)
class HandIn:
    """What the author adds to a run's report; all of it may be empty."""

    author: str = ""
    student_id: str = ""
    course: str = ""
    notes: str = ""
    """Markdown."""

    def origin(self, lang: str, digest: str) -> str:
        """All that is needed to write the same report of the same run again, as JSON."""
        value = {**vars(self), "lang": lang, "records": digest, "trainlab": __version__}
        return json.dumps(value, ensure_ascii=False, sort_keys=True)


@dataclass(frozen=True)
class Origin:
    """What a report says about how it was written."""

    hand_in: HandIn | None
    """None for a report that was not written to be handed in."""
    lang: str
    records: str = ""
    """The digest of the records it was written from."""
    trainlab: str = ""
    """The version that wrote it."""


def read_origin(text: str) -> Origin:
    """The origin from its JSON; ValueError where it is none."""
    value: Any = json.loads(text)
    names = {*(field.name for field in fields(HandIn)), "lang", "records", "trainlab"}
    if not isinstance(value, dict) or set(value) != names or not _all_texts(value):
        raise ValueError("not the origin of a report")
    hand_in = HandIn(**{field.name: value[field.name] for field in fields(HandIn)})
    return Origin(hand_in, value["lang"], value["records"], value["trainlab"])


def read_notes(path: Path) -> str:
    """The text of a notes file; SpecError where it is not text."""
    with reading(path):
        content = path.read_bytes()
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise SpecError([f"--notes: {path} is not UTF-8 text; save it as UTF-8"]) from None


def _all_texts(value: dict[str, Any]) -> bool:
    return all(isinstance(text, str) for text in value.values())
