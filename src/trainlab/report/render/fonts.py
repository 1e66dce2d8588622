"""Fonts, so that Chinese never shows as boxes: a subset of Noto Sans CJK SC lies in `font_files`."""

import base64
import io
from importlib.resources import as_file, files
from pathlib import Path

from trainlab.analysis.document import Document, OwnText
from trainlab.extras import import_extra
from trainlab.words import WORDS

FAMILY = "Trainlab Sans SC"
REGULAR = "TrainlabSansSC-Regular.otf"


def font_folder() -> Path:
    """The folder of the fonts, for programs that take one."""
    with as_file(files("trainlab.report.render") / "font_files") as folder:
        return folder


def embedded_font(document: Document) -> str:
    """A style with the characters this document uses in it; empty where it has no Chinese ones."""
    if not any(ord(character) >= 0x2E80 for character in repr(document)):
        return ""
    content = base64.b64encode(_subset(characters(document))).decode()
    source = f"url(data:font/woff2;base64,{content}) format('woff2')"
    return (
        f"\n@font-face {{ font-family: 'Trainlab Report'; src: {source}; font-display: block; }}\n"
    )


def characters(document: Document) -> set[str]:
    """All characters beyond ASCII that the document, or the page around it, can show."""
    words = "".join(text for texts in WORDS.values() for text in texts)
    # The document's repr has every text in it, also those of charts.
    return {character for character in words + repr(document) if ord(character) >= 0x80}


def lacks_glyphs(document: Document) -> bool:
    """Whether an author's text has characters that the bundled font does not: a rare name, an emoji."""
    tools = import_extra("fontTools.ttLib", "a report")
    known = tools.TTFont(font_folder() / REGULAR).getBestCmap()
    own = document.byline + repr([b for b in document.all_blocks() if isinstance(b, OwnText)])
    return any(ord(character) >= 0x80 and ord(character) not in known for character in own)


def _subset(shown: set[str]) -> bytes:
    subset = import_extra("fontTools.subset", "a Chinese HTML report")
    import_extra("brotli", "a Chinese HTML report")
    options = subset.Options(flavor="woff2", layout_features=["kern"], notdef_outline=True)
    font = subset.load_font(str(font_folder() / REGULAR), options)
    cutter = subset.Subsetter(options)
    cutter.populate(text="".join(sorted(shown)))
    cutter.subset(font)
    content = io.BytesIO()
    font.recalcTimestamp = False
    subset.save_font(font, content, options)
    return content.getvalue()
