"""Whether the numbers of a report that was handed in, as HTML, Markdown or PDF, are those of a run."""

import base64
import re
import shutil
import subprocess
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import SequenceMatcher
from html import unescape
from itertools import zip_longest
from pathlib import Path

from pydantic import TypeAdapter

from trainlab import __version__
from trainlab.analysis.document import Document, OwnText
from trainlab.analysis.evidence import Evidence
from trainlab.errors import RecordError
from trainlab.record.files import reading
from trainlab.record.run_folder import run_digests
from trainlab.report.html import html_of
from trainlab.report.lab_report import Origin
from trainlab.report.markdown import markdown_of
from trainlab.report.pdf import pdf_of
from trainlab.report.writing import document_of
from trainlab.words import LANGUAGES

ORIGIN_COMMENT = re.compile(rb"<!-- handed-in ([A-Za-z0-9+/=]+) -->")
ORIGIN_SCRIPT = re.compile(r'<script id="handed-in"[^>]*>(.*?)</script>', re.DOTALL)
PDF_STREAM = re.compile(rb"(?<!end)stream\r?\n(.*?)\r?\nendstream", re.DOTALL)
CHARTS = re.compile(r'<script id="charts"[^>]*>(.*?)</script>', re.DOTALL)
OWN = re.compile(r'<div class="own">.*?</div>', re.DOTALL)
UNSEEN = re.compile(r"<(script|style|title)\b.*?</\1>", re.DOTALL)
FIELD = re.compile(r"<t[dh]\b[^>]*>")
LINE_END = re.compile(r"</?(?:p|tr|li|h[1-4]|figcaption|caption|pre|div|a)\b[^>]*>")
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")

Lines = tuple[list[str], list[str]]
"""What trainlab wrote in a report, and what its author did, as far as the format tells them apart."""


def origin_in(content: bytes) -> Origin | None:
    """What the report says about how it was written; None where it says nothing."""
    # In a script of HTML, a comment of Markdown, or a stream of a PDF.
    candidates: list[str | bytes] = [*ORIGIN_SCRIPT.findall(content.decode("utf-8", "replace"))]
    candidates += map(base64.b64decode, ORIGIN_COMMENT.findall(content))
    for stream in PDF_STREAM.findall(content):
        candidates.append(stream)
        with suppress(zlib.error):  # compressed where the file was saved again
            candidates.append(zlib.decompressobj().decompress(stream))
    for candidate in candidates:
        with suppress(ValueError):
            return TypeAdapter(Origin).validate_json(candidate)
    return None


def html_lines(content: bytes) -> Lines:
    """The visible lines of a page, a row of a table each on one, and its charts' data."""
    page = content.decode("utf-8", "replace")
    charts = "\n".join(CHARTS.findall(page)).replace('},"chart-', '},\n"chart-').splitlines()
    told = [*_visible_lines(UNSEEN.sub("", OWN.sub("", page))), *charts]
    return told, [*_visible_lines("\n".join(OWN.findall(page)))]


def _visible_lines(page: str) -> Iterator[str]:
    """Of markup: what a reader sees of it."""
    page = FIELD.sub(" | ", " ".join(page.split()))
    # A mark stands apart from the sentence after it.
    for line in LINE_END.sub("\n", page).replace("</span>", " ").splitlines():
        text = unescape(re.sub(r"<[^>]*>", "", line))
        if told := " ".join(text.split()).removeprefix("| "):
            yield told


def markdown_lines(content: bytes) -> Lines:
    """What the author wrote is quoted; so are notices, which begin with their kind."""
    told, own, was_quoted, is_own = list[str](), list[str](), False, False
    for line in content.decode("utf-8", "replace").splitlines():
        is_quoted = line.startswith(">")
        if not (is_quoted and was_quoted):
            is_own = is_quoted and not line.startswith("> [!")
        was_quoted = is_quoted
        if line.strip() and not line.startswith("<!-- handed-in "):
            (own if is_own else told).append(line.strip())
    return told, own


def pdf_lines(content: bytes) -> Lines | None:
    """The words of all pages as lines; None without poppler's pdftotext."""
    program = shutil.which("pdftotext")
    if program is None:
        return None
    done = subprocess.run(
        [program, "-layout", "-", "-"], input=content, capture_output=True, check=False
    )
    lines = (" ".join(line.split()) for line in done.stdout.decode("utf-8", "replace").splitlines())
    return [line for line in lines if line], []


FORMATS: dict[str, tuple[Callable[[Document], bytes], Callable[[bytes], Lines | None]]] = {
    ".html": (lambda document: html_of(document).encode(), html_lines),
    ".md": (lambda document: markdown_of(document).encode(), markdown_lines),
    ".pdf": (pdf_of, pdf_lines),
}
"""How a report is written and how its text is read, by how its name ends."""


@dataclass(frozen=True)
class Verdict:
    """What can be said about one report."""

    path: Path
    origin: Origin | None
    """None where the report does not say how it was written."""
    differences: tuple[tuple[str, str], ...] | None
    """Lines that trainlab wrote in it, and what the run gives in their place, where that is another; one of
    them may be empty. None where its text cannot be read."""
    has_same_records: bool
    """Whether it was written from the run's records as they are now."""
    is_only_text: bool
    """Whether only the text of a PDF could be compared: the file was saved again, or with other fonts."""
    own_numbers: tuple[str, ...]
    """Numbers that its author wrote and that stand nowhere in what trainlab wrote."""

    @property
    def is_the_runs(self) -> bool:
        """Whether every number that trainlab wrote in it is the run's."""
        return self.differences == () and self.has_same_records

    @property
    def other_version(self) -> str | None:
        """The version of trainlab that wrote it, if it is another than this one."""
        wrote = "" if self.origin is None else self.origin.trainlab
        return wrote if wrote and wrote != __version__ else None


def check_report(path: Path, evidence: Evidence) -> Verdict:
    """Writes the report again from the run's records and compares what it says. RecordError where the file
    is missing or in another format."""
    if path.suffix not in FORMATS:
        raise RecordError(f"{path}: not a report; must end in {', '.join(FORMATS)}")
    with reading(path):
        content = path.read_bytes()
    origin, digests = origin_in(content), run_digests(evidence.folder)
    write, read = FORMATS[path.suffix]
    verdicts = []
    # A report that was not written to be handed in does not say its language.
    langs = [origin.lang] if origin is not None and origin.lang in LANGUAGES else LANGUAGES
    for lang in langs:
        document = document_of(evidence, lang, origin)
        expected, blocks = write(document), [*document.all_blocks()]
        written = (block.parts for block in blocks if isinstance(block, OwnText))
        own = " ".join(part.text for parts in written for part in parts)
        differences: tuple[tuple[str, str], ...] | None = ()
        if expected != content:
            reported, wanted = read(content), read(expected)
            differences = None
            if reported is not None and wanted is not None:
                differences = tuple(_differences(reported[0], wanted[0]))
                own = " ".join(reported[1]) or own
        ours = [block for block in blocks if not isinstance(block, OwnText)]
        shown = repr((document.title, document.byline, document.subtitle, ours))
        known, found = set(NUMBER.findall(shown)), dict.fromkeys(NUMBER.findall(own))
        verdicts.append(
            Verdict(
                path=path,
                origin=origin,
                differences=differences,
                has_same_records=origin is None or origin.records in ("", digests.all),
                is_only_text=path.suffix == ".pdf" and expected != content,
                # Single digits are left out: they count things.
                own_numbers=tuple(n for n in found if len(n) > 1 and n not in known),
            )
        )
    return min(verdicts, key=lambda one: (one.differences is None, len(one.differences or ())))


def _differences(reported: Sequence[str], wanted: Sequence[str]) -> Iterator[tuple[str, str]]:
    matcher = SequenceMatcher(None, reported, wanted, autojunk=False)
    for kind, start, end, other_start, other_end in matcher.get_opcodes():
        if kind != "equal":
            yield from zip_longest(reported[start:end], wanted[other_start:other_end], fillvalue="")
