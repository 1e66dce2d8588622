"""Whether the numbers of a report that was handed in, as HTML, Markdown or PDF, are those of a run."""

import base64
import re
import shutil
import subprocess
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from difflib import SequenceMatcher
from html.parser import HTMLParser
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
PDF_STREAM = re.compile(rb"(?<!end)stream\r?\n(.*?)\r?\nendstream", re.DOTALL)
LABELS = ("lab_written_by", "lab_written_by_author")
"""The keys of what stands above an author's text."""
LINE_ENDS = {"p", "tr", "li", "h1", "h2", "h3", "h4", "figcaption", "caption", "pre", "div", "a"}
FIELDS = {"td", "th"}
UNSEEN = {"script", "style", "title"}


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
    candidates: list[str] = []
    if suffix == ".pdf":
        candidates = [_unpacked(match[1]) for match in PDF_STREAM.finditer(content)]
    elif suffix == ".html":
        parser = _PageText()
        parser.feed(content.decode("utf-8", "replace"))
        candidates = [parser.origin]
    elif found := ORIGIN_COMMENT.search(content.decode("utf-8", "replace")):
        candidates = [base64.b64decode(found[1]).decode("utf-8", "replace")]
    for text in candidates:
        try:
            return read_origin(text)
        except ValueError:
            continue
    return None


def html_text(content: bytes) -> ReportText:
    """The visible lines of a page, a row of a table each on one, and its charts' data."""
    parser = _PageText()
    parser.feed(content.decode("utf-8", "replace"))
    parser.close()
    return ReportText(tuple(parser.lines), tuple(parser.own))


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


class _PageText(HTMLParser):
    """Lines of a page: what a reader sees, and the data of charts."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.own: list[str] = []
        self.origin = ""
        self._line = ""
        self._unseen: str | None = None
        self._own_depth = 0

    def close(self) -> None:
        super().close()
        self._end_line()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "div" and (self._own_depth or given.get("class") == "own"):
            self._end_line()
            self._own_depth += 1
        if tag in UNSEEN:
            self._unseen = given.get("id") or ""
        if tag in FIELDS and self._line:
            self._line += " | "
        elif tag in LINE_ENDS:
            self._end_line()

    def handle_endtag(self, tag: str) -> None:
        if tag in LINE_ENDS:
            self._end_line()
        elif tag == "span" and self._unseen is None:
            self._line += " "  # a mark stands apart from the sentence after it
        if tag == "div" and self._own_depth:
            self._own_depth -= 1
        if tag in UNSEEN:
            self._unseen = None

    def handle_data(self, data: str) -> None:
        if self._unseen is None:
            self._line += data
        elif self._unseen == "handed-in":
            self.origin += data
        elif self._unseen == "charts":
            self.lines += data.replace('},"chart-', '},\n"chart-').splitlines()

    def _end_line(self) -> None:
        line = " ".join(self._line.split())
        if line:
            (self.own if self._own_depth else self.lines).append(line)
        self._line = ""


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
    compared = []
    for lang in langs:
        document = document_of(evidence, lang, hand_in)
        expected = FORMATS[path.suffix[1:]](document)[f"report{path.suffix}"]
        own_texts = [block for block in document.all_blocks() if isinstance(block, OwnText)]
        own = " ".join(part.text for block in own_texts for part in block.parts)
        # None where the bytes differ and their text cannot be read.
        differences: tuple[Difference, ...] | None = ()
        if expected != content:
            reported, wanted = (READERS[path.suffix](one) for one in (content, expected))
            differences = None
            if reported is not None and wanted is not None:
                differences = tuple(_changed_lines(reported, wanted))
                own = " ".join(reported.own) or own
        compared.append((differences, document, own, expected == content))
    differences, document, own, is_same_file = min(
        compared, key=lambda one: (one[0] is None, len(one[0] or ()))
    )
    digests = run_digests(evidence.folder)
    written_from = "" if origin is None else origin.records
    return Verdict(
        path=path,
        origin=origin,
        differences=differences or (),
        is_same_text=differences == (),
        has_same_records=not written_from or written_from == digests.all,
        is_only_text=path.suffix == ".pdf" and not is_same_file,
        own_numbers=_numbers_of_their_own(document, own),
    )


def _changed_lines(reported: ReportText, wanted: ReportText) -> Iterator[Difference]:
    matcher = SequenceMatcher(None, reported.lines, wanted.lines, autojunk=False)
    for kind, start, end, other_start, other_end in matcher.get_opcodes():
        if kind != "equal":
            pairs = (reported.lines[start:end], wanted.lines[other_start:other_end])
            yield from (Difference(*pair) for pair in zip_longest(*pairs, fillvalue=""))


def _numbers_of_their_own(document: Document, own: str) -> tuple[str, ...]:
    """Single digits are left out: they count things."""
    blocks = [block for block in document.all_blocks() if not isinstance(block, OwnText)]
    known = set(NUMBER.findall(repr((document.title, document.byline, document.subtitle, blocks))))
    found = dict.fromkeys(NUMBER.findall(own))
    return tuple(number for number in found if len(number) > 1 and number not in known)
