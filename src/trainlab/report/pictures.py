"""What formats show alike: numbers of figures and tables, fonts, charts and images as still pictures."""

import base64
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import as_file, files
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image

from trainlab.analysis.charts import VEGA_LITE, config, fit_legends
from trainlab.analysis.document import Block, Document, Drawing, Figure, Gallery, Table
from trainlab.errors import MissingExtraError, SpecError
from trainlab.extras import import_extra
from trainlab.record.files import writing
from trainlab.record.learning_record import Picture
from trainlab.words import WORDS, Words

Labels = Callable[[Block], str]


def labels_of(document: Document, words: Words) -> Labels:
    """`Figure 1`, `Table 2`: what gives a figure or table its label, counted in reading order."""
    labels: dict[int, str] = {}
    for key, kinds in (("figure_number", Figure | Drawing | Gallery), ("table_number", Table)):
        counted = (block for block in document.all_blocks() if isinstance(block, kinds))
        # By identity: two tables may be equal in every field.
        labels |= {id(block): words(key, number=n) for n, block in enumerate(counted, start=1)}
    return lambda block: labels[id(block)]


def table_note(table: Table, words: Words) -> str:
    """The note under a table, and how many rows are not shown; empty where there is neither."""
    notes = [table.note] if table.note else []
    if len(table.shown) < len(table.rows):
        notes.append(words("more_rows", shown=len(table.shown), number=len(table.rows)))
    return words.sentences(*notes)


FAMILY = "Trainlab Sans SC"
REGULAR = "TrainlabSansSC-Regular.otf"
LATIN = {400: "SourceSans3-Regular.woff2", 600: "SourceSans3-SemiBold.woff2"}
"""Of a page, by weight."""


def font_folder() -> Path:
    """The folder of the fonts, for programs that take one."""
    with as_file(files("trainlab.report") / "font_files") as folder:
        return folder


def embedded_font(document: Document) -> str:
    """A style with the Latin face, and the Chinese characters that this document uses where it has any."""
    latin = (
        _face("Trainlab Latin", weight, (font_folder() / name).read_bytes())
        for weight, name in LATIN.items()
    )
    # The document's repr has every text in it, also those of charts; the page around it is of our words.
    shown = repr(document)
    if not any(ord(character) >= 0x2E80 for character in shown):
        return "".join(latin)
    shown += "".join(text for texts in WORDS.values() for text in texts)
    subset = import_extra("fontTools.subset", "a Chinese HTML report")
    import_extra("brotli", "a Chinese HTML report")
    options = subset.Options(flavor="woff2", layout_features=["kern"], notdef_outline=True)
    font = subset.load_font(str(font_folder() / REGULAR), options)
    cutter = subset.Subsetter(options)
    cutter.populate(text="".join(sorted({one for one in shown if ord(one) >= 0x80})))
    cutter.subset(font)
    font.recalcTimestamp = False
    content = io.BytesIO()
    subset.save_font(font, content, options)
    return "".join((*latin, _face("Trainlab Report", 400, content.getvalue())))


def _face(family: str, weight: int, content: bytes) -> str:
    data = f"url(data:font/woff2;base64,{base64.b64encode(content).decode()}) format('woff2')"
    look = f"font-family: '{family}'; font-weight: {weight}; src: {data}; font-display: block;"
    return f"\n@font-face {{ {look} }}\n"


def lacks_glyphs(document: Document) -> bool:
    """Whether an author's text has characters that the bundled font does not: a rare name, an emoji."""
    tools = import_extra("fontTools.ttLib", "a report")
    known = tools.TTFont(font_folder() / REGULAR).getBestCmap()
    lines = chain(*document.byline, *(text.lines() for text in document.own_texts()))
    own = "".join(lines)
    return any(ord(character) >= 0x80 and ord(character) not in known for character in own)


def png_of_picture(picture: Picture, scale: int = 1) -> bytes:
    """The picture pixel by pixel, grey or in colours, each `scale` pixels wide and high."""
    values = np.frombuffer(picture.values, np.uint8)
    shape = (picture.height, picture.width, picture.channels)[: 3 if picture.channels > 1 else 2]
    image = Image.fromarray(values.reshape(shape))
    size = picture.width * scale, picture.height * scale
    return compressed(image.resize(size, Image.Resampling.NEAREST), "png")


def compressed(image: Image.Image, kind: Literal["png", "jpeg"]) -> bytes:
    """The file of a picture."""
    content = io.BytesIO()
    image.save(content, kind, quality=88)
    return content.getvalue()


WIDTH = 520
CONFIG = config(FAMILY, "white", "#1c2430", "#566070", {"gridColor": "#dfe4ea"}) | {"padding": 8}


def picture_files(
    document: Document,
    widths: Mapping[str, int] | None = None,
    *,
    in_pixels: bool = False,
    small_side: int = 1,
) -> dict[str, bytes]:
    """Name to content of every picture of a document: `<id>.svg` of charts and drawings, or `<id>.png` in
    pixels with their glyphs drawn, for readers whose machine lacks the font; `<id>-<number>.png` of the
    pictures of a gallery. `widths` of charts in pixels where they are not the usual; pictures smaller than
    `small_side` are made so many times larger. MissingExtraError without vl-convert."""
    widths = widths or {}
    svgs = {drawing.id: drawing.svg for drawing in document.drawings()}
    svgs |= {one.id: picture(one, widths.get(one.id, WIDTH)) for one in document.figures()}
    suffix, encoded = ("png", png_of) if in_pixels else ("svg", str.encode)
    files = {f"{name}.{suffix}": encoded(svg) for name, svg in svgs.items()}
    # White where only its size is known: the lines around it stand where they stood.
    own = (
        inner for text in document.own_texts() for part in text.parts for inner in part.with_inner()
    )
    for part in own:
        if (one := part.picture) is not None:
            white = Image.new("L", (one.width, one.height), 255)
            files[part.style] = base64.b64decode(one.content) or compressed(white, one.kind)
    for gallery in document.galleries():
        for number, item in enumerate(gallery.items):
            scale = max(1, small_side // max(item.picture.height, item.picture.width))
            files[file_of(gallery, number)] = png_of_picture(item.picture, scale)
    return files


def file_of(gallery: Gallery, number: int) -> str:
    """The name of the file of one of its pictures, counted from 0."""
    return f"{gallery.id}-{number}.png"


def picture(figure: Figure, width: int = WIDTH) -> str:
    """One chart as SVG."""
    return _svg(json.dumps(figure.spec), width)


def png_of(svg: str) -> bytes:
    """The picture in pixels, with its glyphs drawn: for readers whose machine lacks the font."""
    return bytes(_converter().svg_to_png(svg, scale=2.0))


@cache
def _svg(spec: str, width: int) -> str:
    """Cached, since a report that is checked is drawn again."""
    still = json.loads(spec) | {"width": width, "config": CONFIG}
    fit_legends(still, width)
    if still["layer"][0]["encoding"]["y"]["type"] == "quantitative":
        # Charts of curves keep their proportions; all others are as high as their rows need.
        still["height"] = round(still["height"] * width / WIDTH)
    # Points that are there only to hover over have nothing to show here.
    still["layer"] = [layer for layer in still["layer"] if layer["mark"].get("opacity") != 0]
    svg: str = _converter().vegalite_to_svg(still, VEGA_LITE)
    # A viewer of Markdown lacks our font; without others to fall back to it would use its serif one.
    family = f'font-family="{FAMILY}'
    return svg.replace(f'{family}"', f'{family}, Helvetica, Arial, sans-serif"')


@cache
def _converter() -> Any:
    converter = import_extra("vl_convert", "a chart")
    converter.register_font_directory(str(font_folder()))
    return converter


@dataclass(frozen=True, repr=False)
class Chart:
    """One figure of a run."""

    figure: Figure

    @property
    def spec(self) -> dict[str, Any]:
        """Vega-Lite with its data in it, as `altair.Chart.from_dict` takes it."""
        return self.figure.spec

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The data of the chart."""
        rows: list[dict[str, Any]] = self.figure.spec["data"]["values"]
        return rows

    def svg(self) -> str:
        """The picture; MissingExtraError without vl-convert."""
        return picture(self.figure)

    def save(self, path: Path | str) -> Path:
        """Writes the picture as .svg or .png, and returns its path."""
        path = Path(path)
        if path.suffix not in (".svg", ".png"):
            raise SpecError([f"{path}: must end in .svg or .png"])
        content = self.svg().encode() if path.suffix == ".svg" else png_of(self.svg())
        with writing(path):
            path.write_bytes(content)
        return path

    def __repr__(self) -> str:
        return f"<Chart {self.figure.caption}: {self.figure.alt}>"

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """For a notebook: the picture, or why there is none."""
        try:
            return {"image/svg+xml": self.svg(), "text/plain": repr(self)}
        except MissingExtraError as error:
            return {"text/plain": f"{self!r} ({error})"}
