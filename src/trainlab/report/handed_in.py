"""Whether the numbers of a report that was handed in, as HTML, Markdown or PDF, are those of a run."""

import base64
import re
import shutil
import subprocess
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import SequenceMatcher
from html import unescape
from itertools import zip_longest
from pathlib import Path

from trainlab import __version__
from trainlab.analysis.document import Document, OwnText
from trainlab.analysis.evidence import Evidence
from trainlab.errors import RecordError
from trainlab.record.files import reading
from trainlab.record.run_folder import run_digests
from trainlab.report.lab_report import Origin, read_origin
from trainlab.report.writing import FORMATS, document_of
from trainlab.words import LANGUAGES, Words

ORIGIN_COMMENT = re.compile(r"<!-- handed-in ([A-Za-z0-9+/=]+) -->")
ORIGIN_SCRIPT = re.compile(r'<script id="handed-in"[^>]*>(.*?)</script>', re.DOTALL)
PDF_STREAM = re.compile(rb"(?<!end)stream\r?\n(.*?)\r?\nendstream", re.DOTALL)
CHARTS = re.compile(r'<script id="charts"[^>]*>(.*?)</script>', re.DOTALL)
OWN = re.compile(r'<div class="own">.*?</div>', re.DOTALL)
UNSEEN = re.compile(r"<(script|style|title)\b.*?</\1>", re.DOTALL)
FIELD = re.compile(r"<t[dh]\b[^>]*>")
LINE_END = re.compile(r"</?(?:p|tr|li|h[1-4]|figcaption|caption|pre|div|a)\b[^>]*>")
LABELS = ("lab_written_by", "lab_written_by_author")
"""The keys of what stands above an author's text."""
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


@dataclass(frozen=True)
class ReportText:
    """What a report says, without what its author wrote."""

    lines: tuple[str, ...]
    own: tuple[str, ...] = ()
    """The author's lines."""


def read_report(path: Path) -> bytes:
    """The file; RecordError where it is missing or in another format."""
    if path.suffix not in READERS:
        raise RecordError(f"{path}: not a report; must end in {', '.join(READERS)}")
    with reading(path):
        return path.read_bytes()


def origin_in(suffix: str, content: bytes) -> Origin | None:
    """What the report says about how it was written; None where it says nothing."""
    text, candidates = content.decode("utf-8", "replace"), []
    if suffix == ".pdf":
        candidates = [_unpacked(match[1]) for match in PDF_STREAM.finditer(content)]
    elif suffix == ".html":
        candidates = ORIGIN_SCRIPT.findall(text)
    elif found := ORIGIN_COMMENT.search(text):
        candidates = [base64.b64decode(found[1]).decode("utf-8", "replace")]
    for candidate in candidates:
        with suppress(ValueError):
            return read_origin(candidate)
    return None


def html_text(content: bytes) -> ReportText:
    """The visible lines of a page, a row of a table each on one, and its charts' data."""
    page = content.decode("utf-8", "replace")
    charts = "\n".join(CHARTS.findall(page)).replace('},"chart-', '},\n"chart-').splitlines()
    lines = _visible_lines(UNSEEN.sub("", OWN.sub("", page)))
    return ReportText((*lines, *charts), tuple(_visible_lines("\n".join(OWN.findall(page)))))


def _visible_lines(page: str) -> Iterator[str]:
    """Of markup: what a reader sees of it."""
    page = FIELD.sub(" | ", " ".join(page.split()))
    # A mark stands apart from the sentence after it.
    for line in LINE_END.sub("\n", page).replace("</span>", " ").splitlines():
        text = unescape(re.sub(r"<[^>]*>", "", line))
        if told := " ".join(text.split()).removeprefix("| "):
            yield told


def markdown_text(content: bytes) -> ReportText:
    """The lines, without those quoted under the author's label."""
    lines: list[str] = []
    own: list[str] = []
    is_own = False
    for line in content.decode("utf-8", "replace").splitlines():
        if not line.startswith(">"):
            is_own = False
        elif _is_label(line.removeprefix(">").strip().strip("*")):
            is_own = True
        if line.strip() and not ORIGIN_COMMENT.search(line):
            (own if is_own else lines).append(line.strip())
    return ReportText(tuple(lines), tuple(own))


def pdf_text(content: bytes) -> ReportText | None:
    """The words of all pages as lines; None without poppler's pdftotext."""
    program = shutil.which("pdftotext")
    if program is None:
        return None
    done = subprocess.run(
        [program, "-layout", "-", "-"], input=content, capture_output=True, check=False
    )
    lines = (" ".join(line.split()) for line in done.stdout.decode("utf-8", "replace").splitlines())
    return ReportText(tuple(line for line in lines if line))


READERS = {".html": html_text, ".md": markdown_text, ".pdf": pdf_text}
"""The text of a report, by how its name ends."""


def _is_label(text: str) -> bool:
    """Whether a line begins what an author wrote, in any language."""
    labels = (Words(lang).template(key) for lang in LANGUAGES for key in LABELS)
    return any(text.startswith(label.partition("{")[0]) for label in labels)


def _unpacked(stream: bytes) -> str:
    with suppress(zlib.error):
        stream = zlib.decompressobj().decompress(stream)
    return stream.decode("utf-8", "replace") if stream.startswith(b"{") else ""


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
    content, suffix = read_report(path), path.suffix
    origin, digests = origin_in(suffix, content), run_digests(evidence.folder)
    verdicts = []
    # A report that was not written to be handed in does not say its language.
    langs = [origin.lang] if origin is not None and origin.lang in LANGUAGES else LANGUAGES
    for lang in langs:
        document = document_of(evidence, lang, None if origin is None else origin.hand_in)
        expected = FORMATS[suffix[1:]](document)[f"report{suffix}"]
        own_texts = [block for block in document.all_blocks() if isinstance(block, OwnText)]
        own = " ".join(part.text for block in own_texts for part in block.parts)
        differences: list[Difference] | None = []
        if expected != content:
            reported, wanted = READERS[suffix](content), READERS[suffix](expected)
            differences = None
            if reported is not None and wanted is not None:
                differences = list(_changed_lines(reported.lines, wanted.lines))
                own = " ".join(reported.own) or own
        verdicts.append(
            Verdict(
                path=path,
                origin=origin,
                differences=tuple(differences or ()),
                is_same_text=differences == [],
                has_same_records=origin is None or origin.records in ("", digests.all),
                is_only_text=suffix == ".pdf" and expected != content,
                own_numbers=_numbers_of_their_own(document, own),
            )
        )
    return min(verdicts, key=lambda one: (not one.is_same_text, len(one.differences)))


def _changed_lines(reported: Sequence[str], wanted: Sequence[str]) -> Iterator[Difference]:
    matcher = SequenceMatcher(None, reported, wanted, autojunk=False)
    for kind, start, end, other_start, other_end in matcher.get_opcodes():
        if kind != "equal":
            pairs = zip_longest(reported[start:end], wanted[other_start:other_end], fillvalue="")
            yield from (Difference(*pair) for pair in pairs)


def _numbers_of_their_own(document: Document, own: str) -> tuple[str, ...]:
    """Single digits are left out: they count things."""
    blocks = [block for block in document.all_blocks() if not isinstance(block, OwnText)]
    known = set(NUMBER.findall(repr((document.title, document.byline, document.subtitle, blocks))))
    found = dict.fromkeys(NUMBER.findall(own))
    return tuple(number for number in found if len(number) > 1 and number not in known)
