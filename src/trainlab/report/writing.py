"""Writing reports into a folder, in the formats asked for."""

from collections.abc import Callable, Sequence
from pathlib import Path

from trainlab.analyse.evidence import Evidence
from trainlab.analyse.runs import side_by_side
from trainlab.errors import SpecError
from trainlab.record.files import replacing, writing
from trainlab.record.folder import RunFolder
from trainlab.report.comparison import comparison_of
from trainlab.report.contents import report_of
from trainlab.report.document import Document
from trainlab.report.material import Material, read_material
from trainlab.report.render.html import html_of
from trainlab.report.render.markdown import figure_files, markdown_of
from trainlab.report.render.pdf import pdf_of

STEM = "report"
FORMATS = ("html", "md", "pdf")


def check_formats(asked: str) -> tuple[str, ...]:
    """`html,md` as formats; SpecError naming those there are."""
    formats = tuple(dict.fromkeys(part.strip() for part in asked.split(",") if part.strip()))
    unknown = [one for one in formats if one not in FORMATS]
    if unknown or not formats:
        raise SpecError([f"--format: got {asked!r}, must be of {', '.join(FORMATS)}"])
    return formats


def write_report(
    folder: RunFolder,
    formats: Sequence[str] = ("html",),
    lang: str = "en",
    out: Path | None = None,
    evidence: Evidence | None = None,
) -> list[Path]:
    """Writes a run's report in each format and tells where; into the run's own folder by default.

    `evidence` is the run's where it has been read already.
    """
    document = report_of(read_material(folder, evidence), lang)
    return write_document(document, formats, out or folder.report_folder)


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


def write_comparison(first: Material, second: Material, path: Path, lang: str = "en") -> None:
    """Two runs side by side as one HTML file."""
    found = side_by_side(first.evidence, second.evidence)
    document = comparison_of(first, second, found, lang)
    content = html_of(document).encode()
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    _write(path, content)


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
