"""Writing reports into a folder, in the formats asked for."""

from collections.abc import Callable, Sequence
from pathlib import Path

from trainlab.analyse.evidence import Evidence
from trainlab.analyse.side_by_side import side_by_side
from trainlab.errors import SpecError
from trainlab.record.files import replacing, writing
from trainlab.report.comparison import comparison_of
from trainlab.report.contents import report_of
from trainlab.report.document import Document
from trainlab.report.render.html import html_of
from trainlab.report.render.markdown import figure_files, markdown_of
from trainlab.report.render.pdf import pdf_of
from trainlab.report.run_data import RunData

STEM = "report"


def check_formats(asked: str) -> tuple[str, ...]:
    """`html,md` as formats; SpecError naming those there are."""
    formats = tuple(dict.fromkeys(part.strip() for part in asked.split(",") if part.strip()))
    unknown = [one for one in formats if one not in WRITERS]
    if unknown or not formats:
        raise SpecError([f"--format: got {asked!r}, must be of {', '.join(WRITERS)}"])
    return formats


def write_report(
    evidence: Evidence, out: Path, formats: Sequence[str] = ("html",), lang: str = "en"
) -> list[Path]:
    """Writes a run's report in each format and says where."""
    return write_document(report_of(RunData(evidence), lang), formats, out)


def write_document(document: Document, formats: Sequence[str], out: Path) -> list[Path]:
    """The document as `report.html`, `report.md` with `figures/`, `report.pdf`."""
    # All is made before anything is written: a missing package leaves no half of a report.
    made = [(out / f"{STEM}.{name}", WRITERS[name](document)) for name in formats]
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    for path, contents in made:
        for name, content in contents.items():
            _write(path if not name else out / name, content)
    return [path for path, _ in made]


def write_comparison(first: Evidence, second: Evidence, path: Path, lang: str = "en") -> None:
    """Two runs side by side as one HTML file."""
    runs = RunData(first), RunData(second)
    document = comparison_of(*runs, side_by_side(first, second), lang)
    _write(path, html_of(document).encode())


def _write(path: Path, content: bytes) -> None:
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as part:
        part.write_bytes(content)


def _html(document: Document) -> dict[str, bytes]:
    return {"": html_of(document).encode()}


def _markdown(document: Document) -> dict[str, bytes]:
    return {**figure_files(document), "": markdown_of(document).encode()}


def _pdf(document: Document) -> dict[str, bytes]:
    return {"": pdf_of(document)}


WRITERS: dict[str, Callable[[Document], dict[str, bytes]]] = {
    "html": _html,
    "md": _markdown,
    "pdf": _pdf,
}
"""Format to the files it makes; the empty name is the report itself."""
