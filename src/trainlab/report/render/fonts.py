"""Fonts: Chinese that never shows as boxes. A subset of Noto Sans CJK SC lies in `font_files`."""

import base64
import io
from importlib.resources import as_file, files
from pathlib import Path

from trainlab.report.document import Document
from trainlab.report.render.extras import needed

FAMILY = "Trainlab Sans SC"
REGULAR = "TrainlabSansSC-Regular.otf"


def font_folder() -> Path:
    """Where the fonts lie, for programs that take a folder."""
    with as_file(files("trainlab.report.render") / "font_files") as folder:
        return folder


def embedded_font(document: Document) -> str:
    """A style that brings the characters this document uses; empty where Latin is all it uses."""
    if document.lang == "en" and not any(ord(c) >= 0x2E80 for c in repr(document)):
        return ""
    content = base64.b64encode(_subset(characters(document))).decode()
    source = f"url(data:font/woff2;base64,{content}) format('woff2')"
    return (
        f"\n@font-face {{ font-family: 'Trainlab Report'; src: {source}; font-display: block; }}\n"
    )


def characters(document: Document) -> set[str]:
    """Those beyond Latin that the document, or the page around it, can show."""
    from trainlab.words import WORDS

    words = "".join(text for texts in WORDS.values() for text in texts)
    # The value itself tells every text in it, the charts' included.
    return {character for character in words + repr(document) if ord(character) >= 0x80}


def _subset(wanted: set[str]) -> bytes:
    subset = needed("fontTools.subset", "a Chinese HTML report")
    needed("brotli", "a Chinese HTML report")
    options = subset.Options(flavor="woff2", layout_features=["kern"], notdef_outline=True)
    font = subset.load_font(str(font_folder() / REGULAR), options)
    cutter = subset.Subsetter(options)
    cutter.populate(text="".join(sorted(wanted)))
    cutter.subset(font)
    content = io.BytesIO()
    font.recalcTimestamp = False
    subset.save_font(font, content, options)
    return content.getvalue()
