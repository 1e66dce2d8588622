"""Writing reports into a folder, in the formats asked for."""

from collections.abc import Callable, Sequence
from pathlib import Path

from trainlab.analysis.comparison import comparison_of, side_by_side
from trainlab.analysis.document import Document
from trainlab.analysis.evidence import Evidence
from trainlab.analysis.overview import data_of
from trainlab.errors import SpecError
from trainlab.record.files import make_folder, replacing
from trainlab.report.contents import report_of
from trainlab.report.html import html_of
from trainlab.report.lab_report import HandIn, lab_report_of
from trainlab.report.markdown import figure_files, markdown_of
from trainlab.report.pdf import pdf_of

FORMATS: dict[str, Callable[[Document], dict[str, bytes]]] = {
    "html": lambda document: {"report.html": html_of(document).encode()},
    "md": lambda document: {**figure_files(document), "report.md": markdown_of(document).encode()},
    "pdf": lambda document: {"report.pdf": pdf_of(document)},
}
"""The files of each format by their names; the report itself is `report.<format>`."""
TABLES = "csv"
"""A format that is no document: the run's tables, made again from its records."""


def check_formats(text: str) -> tuple[str, ...]:
    """`html,md` as formats; SpecError listing the formats there are."""
    formats = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    known = (*FORMATS, TABLES)
    if not formats or set(formats) - set(known):
        raise SpecError([f"--format: got {text!r}, must be of {', '.join(known)}"])
    return formats


def write_report(
    evidence: Evidence,
    out: Path,
    formats: Sequence[str] = ("html",),
    lang: str = "en",
    hand_in: HandIn | None = None,
) -> list[Path]:
    """Writes a run's report in each format and returns the paths; with `hand_in` as a lab report."""
    return write_document(document_of(evidence, lang, hand_in), formats, out)


def document_of(evidence: Evidence, lang: str, hand_in: HandIn | None = None) -> Document:
    """A run's report as a value; with `hand_in` in the form of a lab report."""
    data = data_of(evidence)
    report = report_of(data, lang)
    return report if hand_in is None else lab_report_of(report, data, hand_in)


def write_document(document: Document, formats: Sequence[str], out: Path) -> list[Path]:
    """The document as `report.html`, `report.md` with `figures/`, `report.pdf`."""
    # Everything is rendered before anything is written: a missing package leaves no half of a report.
    rendered = [FORMATS[name](document) for name in formats]
    for files in rendered:
        for name, content in files.items():
            _write(out / name, content)
    return [out / f"report.{name}" for name in formats]


def write_new(path: Path, text: str, option: str) -> None:
    """Writes a file that is not there yet: what somebody has filled in is never overwritten."""
    if path.exists():
        raise SpecError([f"{option}: {path} exists already; name another file, or remove it"])
    _write(path, text.encode())


def write_comparison(
    first: Evidence, second: Evidence, path: Path, lang: str = "en", labels: Sequence[str] = ()
) -> None:
    """Two runs side by side as one HTML file; `labels` tell runs of one name apart."""
    compared = side_by_side(first, second)
    document = comparison_of(data_of(first), data_of(second), compared, lang, labels)
    _write(path, html_of(document).encode())


def _write(path: Path, content: bytes) -> None:
    make_folder(path.parent)
    with replacing(path) as part:
        part.write_bytes(content)
