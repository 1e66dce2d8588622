"""A report file as it was handed in: its origin and its text, from HTML, Markdown or PDF."""

import base64
import hashlib
import re
import shutil
import subprocess
import zlib
from contextlib import suppress
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

from trainlab.errors import RecordError
from trainlab.record.files import reading
from trainlab.report.handin.hand_in import Origin, read_origin
from trainlab.words import LANGUAGES, Words

ORIGIN_COMMENT = re.compile(r"<!-- handed-in ([A-Za-z0-9+/=]+) -->")
PDF_STREAM = re.compile(rb"(?<!end)stream\r?\n(.*?)\r?\nendstream", re.DOTALL)
LABELS = ("lab_written_by", "lab_written_by_author")
"""The keys of what stands above an author's text."""
LINE_ENDS = {"p", "tr", "li", "h1", "h2", "h3", "h4", "figcaption", "caption", "pre", "div", "a"}
FIELDS = {"td", "th"}
UNSEEN = {"style", "title"}


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
    """Lines of a page: what a reader sees, the data of charts, and a digest of the code around them, which
    could show something else than it says."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.own: list[str] = []
        self.origin = ""
        self._line = ""
        self._script: str | None = None
        self._is_unseen = False
        self._own_depth = 0
        self._code = hashlib.sha256()

    def close(self) -> None:
        super().close()
        self._end_line()
        self.lines.append(f"code of the page: {self._code.hexdigest()}")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "div" and (self._own_depth or given.get("class") == "own"):
            self._end_line()
            self._own_depth += 1
        if not self._own_depth:
            self._code.update((self.get_starttag_text() or "").encode())
        if tag == "script":
            self._script = given.get("id") or ""
        self._is_unseen = self._is_unseen or tag in UNSEEN
        if tag in FIELDS and self._line:
            self._line += " | "
        elif tag in LINE_ENDS:
            self._end_line()

    def handle_endtag(self, tag: str) -> None:
        if tag in LINE_ENDS:
            self._end_line()
        elif tag == "span" and self._script is None:
            self._line += " "  # a mark stands apart from the sentence after it
        if tag == "div" and self._own_depth:
            self._own_depth -= 1
        if tag == "script":
            self._script = None
        if tag in UNSEEN:
            self._is_unseen = False

    def handle_data(self, data: str) -> None:
        if self._script is not None:
            if self._script == "handed-in":
                self.origin += data
            elif self._script == "charts":
                self.lines += data.replace('},"chart-', '},\n"chart-').splitlines()
            else:
                self._code.update(data.encode())
        elif self._is_unseen:
            self._code.update(data.encode())
        else:
            self._line += data

    def _end_line(self) -> None:
        line = " ".join(self._line.split())
        if line:
            (self.own if self._own_depth else self.lines).append(line)
        self._line = ""
