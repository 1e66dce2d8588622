"""A report that was handed in, as HTML, Markdown or PDF: who wrote it, whether its numbers are those of a
run, and what was edited."""

import base64
import re
import shutil
import subprocess
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from html import unescape
from itertools import product, zip_longest
from pathlib import Path

from pydantic import TypeAdapter

from trainlab import __version__
from trainlab.analysis.document import Document, OwnText
from trainlab.analysis.evidence import Evidence
from trainlab.errors import RecordError
from trainlab.record.files import reading
from trainlab.record.run_folder import run_digests
from trainlab.report.html import html_of
from trainlab.report.lab_report import NAMED_BY, Origin
from trainlab.report.markdown import escaped, markdown_of
from trainlab.report.pdf import pdf_of
from trainlab.report.writing import document_of
from trainlab.words import LANGUAGES, Words

ORIGIN_COMMENT = re.compile(rb"<!-- handed-in ([A-Za-z0-9+/=]+) -->")
ORIGIN_SCRIPT, CHARTS = (rf'<script() id="{name}"[^>]{{0,99}}>' for name in ("handed-in", "charts"))
PDF_STREAM = re.compile(rb"(?<!end)stream\r?\n")
CHART = re.compile(r'(?:\{"config":.*?"charts":\{)?("chart-[^"]+")')
OWN, UNSEEN = r'(<div class="own">[^<]{0,9}<p[^<]*</p>)', ("script", "style", "title")
"""Whose text an author's is trainlab wrote."""
FIELD = re.compile(r"<m?t[dh]\b[^<>]*>")
LINE_END = re.compile(r"</?(?:p|tr|li|h[1-4]|figcaption|summary|caption|pre|div|a)\b[^<>]*>")
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
WORD = re.compile(
    r"[0-9a-f]{32,}|(?:(?<![\w.])[-+\u2212])?\d+(?:[.,]\d+)*(?:e[-+]?\d+)?%?"
    r"|[\u4e00-\u9fff]|[^\W\d_\u4e00-\u9fff]+|\S"
)
"""A digest, a number with its sign and unit, a Chinese character, a word, or a sign by itself."""
LONGEST_ORIGIN = 4 << 20
"""Bytes of a stream of a PDF that are unpacked; what says how it was written is far smaller."""
ENDS = {".html": b"</html>", ".md": b"-->", ".pdf": b"%%EOF"}
"""What stands in the last bytes of a report that is whole."""
LAST_BYTES, FIRST_LINES, PDF_S = 4096, 12, 60.0

Lines = tuple[list[str], list[str]]
"""What trainlab wrote in a report, and what its author did, as far as the format tells them apart."""


def origin_in(content: bytes) -> Origin | None:
    """What the report says about how it was written; None where it says nothing."""
    adapter = TypeAdapter(Origin)
    for candidate in _candidates(content):
        with suppress(ValueError):
            return adapter.validate_json(candidate)
    return None


def _candidates(content: bytes) -> Iterator[str | bytes]:
    """In a script of HTML, a comment of Markdown, or a stream of a PDF."""
    yield from _parted(ORIGIN_SCRIPT, "</script>", content.decode("utf-8", "replace"))[1]
    for text in ORIGIN_COMMENT.findall(content):
        with suppress(ValueError):  # cut off, or edited
            yield base64.b64decode(text)
    for part in PDF_STREAM.split(content)[1:]:
        stream, end, _ = part.partition(b"endstream")
        yield stream if end else b""
        with suppress(zlib.error):  # compressed where the file was saved again
            yield zlib.decompressobj().decompress(stream, LONGEST_ORIGIN)


def _parted(opening: str, closing: str, page: str) -> tuple[str, list[str]]:
    """A page without what is in elements of a kind, and that; of an opening its group is kept."""
    before, *others = re.split(opening, page)
    parts = [one.partition(closing) for one in others[1::2]]
    kept = (first + after for first, (*_, after) in zip(others[::2], parts, strict=True))
    return "".join([before, *kept]), [inner for inner, end, _ in parts if end]


def html_lines(content: bytes) -> Lines:
    """The visible lines of a page, a row of a table each on one, and its charts' data."""
    page = content.decode("utf-8", "replace")
    charts = "\n".join(_parted(CHARTS, "</script>", page)[1]).replace('},"chart-', '},\n"chart-')
    page, own = _parted(OWN, "</div>", page)
    for name in UNSEEN:
        page = _parted(rf"<{name}()\b", f"</{name}>", page)[0]
    return [*_visible_lines(page), *charts.splitlines()], [*_visible_lines("\n".join(own))]


def _visible_lines(page: str) -> Iterator[str]:
    """Of markup: what a reader sees of it."""
    page = FIELD.sub(" | ", " ".join(page.split()))
    # A mark stands apart from the sentence after it.
    for line in LINE_END.sub("\n", page).replace("</span>", " ").splitlines():
        text = unescape(re.sub(r"<[^<>]*>", "", line))
        if told := " ".join(text.split()).removeprefix("| "):
            yield told


def markdown_lines(content: bytes) -> Lines:
    """What the author wrote is quoted, below a line that says so; so are notices, which begin with their
    kind."""
    told, own, was_quoted, is_own = list[str](), list[str](), False, False
    for line in content.decode("utf-8", "replace").splitlines():
        is_quoted = line.startswith(">")
        is_label = is_quoted and not was_quoted
        if is_label or not is_quoted:
            is_own = is_quoted and not line.startswith("> [!")
        was_quoted = is_quoted
        if line.strip() and not line.startswith("<!-- handed-in "):
            (own if is_own and not is_label else told).append(line.strip())
    return told, own


def pdf_lines(content: bytes) -> Lines | None:
    """The words of all pages as lines; None without poppler's pdftotext, or where it takes too long."""
    program = shutil.which("pdftotext")
    if program is None:
        return None
    asked = [program, "-layout", "-", "-"]
    try:
        done = subprocess.run(asked, input=content, capture_output=True, check=False, timeout=PDF_S)
    except subprocess.TimeoutExpired:
        return None
    lines = (" ".join(line.split()) for line in done.stdout.decode("utf-8", "replace").splitlines())
    return [line for line in lines if line], []


FORMATS: dict[str, tuple[Callable[[Document], bytes], Callable[[bytes], Lines | None]]] = {
    ".html": (lambda document: html_of(document).encode(), html_lines),
    ".md": (lambda document: markdown_of(document).encode(), markdown_lines),
    ".pdf": (pdf_of, pdf_lines),
}
"""How a report is written and how its text is read, by how its name ends."""


@dataclass(frozen=True)
class ReportFile:
    """A file that may be a report, as it was handed in."""

    path: Path
    content: bytes

    @property
    def suffix(self) -> str:
        return self.path.suffix.lower()

    @cached_property
    def origin(self) -> Origin | None:
        """None where it does not say how it was written."""
        return origin_in(self.content)

    @cached_property
    def lines(self) -> Lines | None:
        """None where the program that reads its format is missing."""
        return FORMATS[self.suffix][1](self.content)

    @property
    def is_whole(self) -> bool:
        return ENDS[self.suffix] in self.content[-LAST_BYTES:]

    @property
    def is_ours(self) -> bool:
        """Whether trainlab wrote it, as far as that can be told of one whose end is missing."""
        is_page = b'name="generator" content="trainlab"' in self.content[:LAST_BYTES]
        is_text = self.suffix == ".md" and b"trainlab" in self.content and bool(self.shown_names)
        return self.origin is not None or is_page or is_text

    @property
    def own_lines(self) -> list[str]:
        """What its author wrote, as it stands there now; a PDF does not tell it apart: as it was given."""
        if self.suffix == ".pdf":
            placed = self.origin.own().placed if self.origin else {}
            return [line for parts in placed.values() for part in parts for line in part.lines()]
        lines = self.lines[1] if self.lines else []
        return [text for line in lines if (text := line.lstrip("> ").strip())]

    @property
    def shown_names(self) -> dict[str, str]:
        """Author, student ID and course as a reader sees them, by field."""
        head = self.lines[0][:FIRST_LINES] if self.lines else []
        return next(filter(None, map(names_in, head)), {})


def names_in(line: str) -> dict[str, str]:
    """Author, student ID and course in the line that names them, by field; none in any other line."""
    found = {}
    for (field, key), words in product(NAMED_BY.items(), map(Words, LANGUAGES)):
        label = rf"(?:^|\*\*|· ){words(key)}{words('colon').strip()}"
        if match := re.search(rf"{label}\s*(.*?)(?= · |\*\*$|$)", line):
            found[field] = match[1]
    return found


def read_report(path: Path) -> ReportFile:
    """RecordError where the file is missing or in another format."""
    if path.suffix.lower() not in FORMATS:
        raise RecordError(f"{path}: not a report; must end in {', '.join(FORMATS)}")
    with reading(path):
        return ReportFile(path, path.read_bytes())


@dataclass(frozen=True)
class Difference:
    """A line that trainlab wrote in a report, and what the run gives in its place; one of them may be
    empty."""

    reported: str
    expected: str
    section: str
    """The title of its section, or the caption of its chart; empty above the first section."""


@dataclass(frozen=True)
class Verdict:
    """What can be said about one report."""

    path: Path
    origin: Origin | None
    """None where the report does not say how it was written."""
    differences: tuple[Difference, ...] | None
    """None where its text cannot be read."""
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
    report = read_report(path)
    origin, digests = report.origin, run_digests(evidence.folder)
    write, read = FORMATS[report.suffix]
    verdicts = []
    # A report that was not written to be handed in does not say its language.
    langs = [origin.lang] if origin is not None and origin.lang in LANGUAGES else LANGUAGES
    for lang in langs:
        document = document_of(evidence, lang, origin)
        expected, blocks = write(document), [*document.all_blocks()]
        own = " ".join(line for text in document.own_texts() for line in text.lines())
        differences: tuple[Difference, ...] | None = ()
        if expected != report.content:
            reported, wanted = report.lines, read(expected)
            differences = None
            if reported is not None and wanted is not None:
                sections = _sections(wanted[0], _titles(document))
                differences = tuple(_differences(reported[0], wanted[0], sections))
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
                is_only_text=report.suffix == ".pdf" and expected != report.content,
                # Single digits are left out: they count things.
                own_numbers=tuple(n for n in found if len(n) > 1 and n not in known),
            )
        )
    return min(verdicts, key=lambda one: (one.differences is None, len(one.differences or ())))


def _titles(document: Document) -> dict[str, str]:
    """The titles of sections by the lines they stand in, and the captions of charts by their keys."""
    inner = (one.title for section in document.sections for one in section.with_inner())
    titles = {line: title for title in inner for line in (escaped(title), " ".join(title.split()))}
    return titles | {f'"chart-{one.id}"': one.caption for one in document.figures()}


def _sections(lines: Sequence[str], titles: Mapping[str, str]) -> list[str]:
    """The section before the first line, and then after each."""
    found = [""]
    for line in lines:
        chart = CHART.match(line)
        found.append(titles.get(chart[1] if chart else line.lstrip("# "), found[-1]))
    return found


def _differences(
    reported: Sequence[str], wanted: Sequence[str], sections: Sequence[str]
) -> Iterator[Difference]:
    matcher = SequenceMatcher(None, reported, wanted, autojunk=False)
    for kind, start, end, place, other_end in matcher.get_opcodes():
        if kind != "equal":
            lines = reported[start:end], wanted[place:other_end]
            for ours, theirs in zip_longest(*lines, fillvalue=""):
                yield Difference(ours, theirs, sections[place + bool(theirs)])
                place += bool(theirs)


ALIKE, MANY_WORDS = 0.5, 2000
"""The share of words in common from which on a line is another, edited; the words of a chart's data."""


def differing_words(expected: str, reported: str) -> list[tuple[str, str]]:
    """What of a line was edited: its words before and after, of which one may be none; numbers first. The
    whole line where little of it is left."""
    ours, theirs = [*WORD.finditer(expected)], [*WORD.finditer(reported)]
    before, after = ([word[0] for word in line] for line in (ours, theirs))
    matcher = SequenceMatcher(None, before, after, autojunk=len(before) > MANY_WORDS)
    if matcher.ratio() < ALIKE:
        return [(expected, reported)] if before != after else []

    def text(line: str, words: Sequence[re.Match[str]]) -> str:
        return line[words[0].start() : words[-1].end()] if words else ""

    found = [
        (text(expected, ours[a:b]), text(reported, theirs[c:d]))
        for kind, a, b, c, d in matcher.get_opcodes()
        if kind != "equal"
    ]
    return sorted(found, key=lambda pair: not all(map(NUMBER.search, pair)))


EDITS = (
    *(f"edited_{field}" for field in NAMED_BY),
    *("edited_number", "edited_words", "line_removed", "line_added"),
)
"""What can be done to a report; the gravest first."""


@dataclass(frozen=True)
class Edit:
    """One thing that was edited in what trainlab wrote, wherever it was."""

    edit: str
    """One of EDITS."""
    before: str
    after: str
    sections: tuple[str, ...] = ()
    """In which it was edited alike; none for names."""


def changes_of(differences: Iterable[Difference]) -> list[Edit]:
    """What was edited, word by word, the gravest first."""
    places: dict[tuple[str, str, str], dict[str, None]] = {}
    for one in differences:
        expected, reported = one.expected, one.reported
        found: list[tuple[str, str, str]] = []
        if not one.section and (names := names_in(expected)):
            shown = names_in(reported)
            found = [(f"edited_{f}", names.get(f, ""), shown.get(f, "")) for f in NAMED_BY]
        elif not expected or not reported:
            found = [("line_added" if reported else "line_removed", expected, reported)]
        else:
            for pair in differing_words(expected, reported):
                edit = "edited_number" if all(map(NUMBER.search, pair)) else "edited_words"
                found.append((edit, *pair))
        for edit, before, after in found:
            if before != after:
                places.setdefault((edit, before, after), {})[one.section] = None
    changes = [Edit(*key, tuple(sections)) for key, sections in places.items()]
    return sorted(changes, key=lambda change: EDITS.index(change.edit))
