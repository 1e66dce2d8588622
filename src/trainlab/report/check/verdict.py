"""The verdict on a report that was handed in: written again from the run, and laid beside it."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest
from pathlib import Path

from trainlab import __version__
from trainlab.analysis.document import Document, OwnText
from trainlab.analysis.evidence import Evidence
from trainlab.report.check.handed_in import READERS, ReportText, origin_in, read_report
from trainlab.report.handin.hand_in import Origin
from trainlab.report.writing import FORMATS, document_of
from trainlab.words import LANGUAGES

NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


@dataclass(frozen=True)
class Difference:
    """Lines of the report, and what the run gives in their place; one of them may be empty."""

    reported: str
    expected: str


@dataclass(frozen=True)
class Verdict:
    """What can be said about one report."""

    path: Path
    origin: Origin | None
    """None where the report does not say how it was written."""
    differences: tuple[Difference, ...] = ()
    is_same_text: bool = True
    """Whether all that trainlab wrote in it is what the run gives."""
    has_same_records: bool = True
    """Whether it was written from the run's records as they are now."""
    is_only_text: bool = False
    """Whether only the text of a PDF could be compared: the file was saved again, or with other fonts."""
    own_numbers: tuple[str, ...] = ()
    """Numbers that its author wrote and that stand nowhere in what trainlab wrote."""

    @property
    def is_the_runs(self) -> bool:
        """Whether every number that trainlab wrote in it is the run's."""
        return self.is_same_text and self.has_same_records

    @property
    def other_version(self) -> str | None:
        """The version of trainlab that wrote it, if it is another than this one."""
        wrote = "" if self.origin is None else self.origin.trainlab
        return wrote if wrote and wrote != __version__ else None


def check_report(path: Path, evidence: Evidence) -> Verdict:
    """Writes the report again from the run's records and compares what it says."""
    content = read_report(path)
    origin = origin_in(path.suffix, content)
    hand_in, lang = (None, "") if origin is None else (origin.hand_in, origin.lang)
    # A report that was not written to be handed in does not say its language.
    langs = [lang] if lang in LANGUAGES else list(LANGUAGES)
    documents = [document_of(evidence, lang, hand_in) for lang in langs]
    compared = [_compared(path, content, document) for document in documents]
    nearest = min(compared, key=lambda one: (one.differences is None, len(one.differences or ())))
    document = documents[compared.index(nearest)]
    digests = evidence.read_digests()
    written_from = "" if origin is None else origin.records
    return Verdict(
        path=path,
        origin=origin,
        differences=nearest.differences or (),
        is_same_text=nearest.differences == (),
        has_same_records=not written_from or digests is None or written_from == digests.all,
        is_only_text=path.suffix == ".pdf" and not nearest.is_same_file,
        own_numbers=_numbers_of_their_own(document, nearest.own),
    )


@dataclass(frozen=True)
class _Compared:
    differences: tuple[Difference, ...] | None
    """None where the bytes differ and their text cannot be read."""
    is_same_file: bool
    own: str
    """What the author wrote, as far as it can be read."""


def _compared(path: Path, content: bytes, document: Document) -> _Compared:
    files = FORMATS[path.suffix[1:]](document)
    expected = files.pop(f"report{path.suffix}")
    beside = tuple(
        Difference(name, "")
        for name, picture in files.items()
        if (path.parent / name).exists() and (path.parent / name).read_bytes() != picture
    )
    own = " ".join(p.text for b in _own_texts(document) for p in b.parts)
    if expected == content:
        return _Compared(beside, is_same_file=True, own=own)
    reported, wanted = (READERS[path.suffix](one) for one in (content, expected))
    if reported is None or wanted is None:
        return _Compared(None, is_same_file=False, own=own)
    differences = (*_changed_lines(reported, wanted), *beside)
    return _Compared(differences, is_same_file=False, own=" ".join(reported.own) or own)


def _own_texts(document: Document) -> list[OwnText]:
    return [block for block in document.all_blocks() if isinstance(block, OwnText)]


def _changed_lines(reported: ReportText, wanted: ReportText) -> Iterator[Difference]:
    matcher = SequenceMatcher(None, reported.lines, wanted.lines, autojunk=False)
    for kind, start, end, other_start, other_end in matcher.get_opcodes():
        if kind != "equal":
            yield from _paired(reported.lines[start:end], wanted.lines[other_start:other_end])


def _paired(reported: Sequence[str], wanted: Sequence[str]) -> Iterator[Difference]:
    for pair in zip_longest(reported, wanted, fillvalue=""):
        yield Difference(*pair)


def _numbers_of_their_own(document: Document, own: str) -> tuple[str, ...]:
    """Single digits are left out: they count things."""
    blocks = [block for block in document.all_blocks() if not isinstance(block, OwnText)]
    known = set(NUMBER.findall(repr((document.title, document.byline, document.subtitle, blocks))))
    found = dict.fromkeys(NUMBER.findall(own))
    return tuple(number for number in found if len(number) > 1 and number not in known)
