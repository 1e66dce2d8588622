"""Makes the fonts a report carries: a subset of Noto Sans CJK SC, from Debian's packages.

    apt-get install fonts-noto-cjk unicode-data
    python scripts/make_report_fonts.py /usr/share

Both weights have the same characters: all of GB 2312, the 8,105 of the Table of General Standard Chinese
Characters (a newborn's name is written in them), and what Western text needs.
"""

import bz2
import re
import sys
from pathlib import Path

from fontTools import subset
from fontTools.ttLib import TTCollection, TTFont

from trainlab.words import WORDS

FAMILY = "Trainlab Sans SC"
FOLDER = Path(__file__).parents[1] / "src" / "trainlab" / "report" / "font_files"
WESTERN = (
    *range(0x20, 0x7F),
    *range(0xA0, 0x180),
    *range(0x370, 0x400),
    *range(0x2010, 0x2040),
    *(0x20AC, 0x2103, 0x2116, 0x2122),
    *range(0x2190, 0x219A),
    *(0x2202, 0x2206, 0x220F, 0x2211, 0x2212, 0x221A, 0x221E, 0x2248, 0x2260, 0x2264, 0x2265),
    *(0x25A0, 0x25A1, 0x25B2, 0x25B3, 0x25BC, 0x25BD, 0x25CB, 0x25CF),
)


def gb2312() -> set[int]:
    """Every character of GB 2312."""
    found = set()
    for high in range(0xA1, 0xF8):
        for low in range(0xA1, 0xFF):
            try:
                found.add(ord(bytes((high, low)).decode("gb2312")))
            except UnicodeDecodeError:
                continue
    return found


def general_standard(unihan: Path) -> set[int]:
    """Every character of the Table of General Standard Chinese Characters."""
    text = bz2.decompress((unihan / "Unihan_OtherMappings.txt.bz2").read_bytes()).decode()
    return {int(code, 16) for code in re.findall(r"^U\+(\w+)\tkTGH\t", text, re.M)}


def write(source: Path, style: str, characters: set[int]) -> None:
    """One weight, with nothing but these characters."""
    fonts = TTCollection(source).fonts
    font = next(one for one in fonts if one["name"].getDebugName(1) == "Noto Sans CJK SC")
    options = subset.Options(
        layout_features=["kern", "liga", "ccmp"], hinting=False, notdef_outline=True
    )
    options.drop_tables += ["VORG", "vhea", "vmtx", "BASE"]
    cutter = subset.Subsetter(options)
    cutter.populate(unicodes=characters)
    cutter.subset(font)
    _rename(font, style)
    font["head"].modified = font["head"].created
    font.recalcTimestamp = False
    path = FOLDER / f"TrainlabSansSC-{style}.otf"
    font.save(path)
    print(f"{path}: {path.stat().st_size:,} bytes, {len(font.getBestCmap()):,} characters")


def _rename(font: TTFont, style: str) -> None:
    """A changed font goes by its own name."""
    full = f"{FAMILY} {style}"
    names = {1: FAMILY, 2: style, 3: full, 4: full, 6: full.replace(" ", "")}
    table = font["name"]
    kept = [one for one in table.names if one.nameID in (0, 13, 14) and one.langID == 0x409]
    table.names = kept
    for number, text in names.items():
        table.setName(text, number, 3, 1, 0x409)
    if "CFF " in font:
        cff = font["CFF "].cff
        cff.fontNames = [names[6]]
        top = cff.topDictIndex[0]
        top.FullName, top.FamilyName = full, FAMILY


def main() -> None:
    """Both weights, from the folder of shared data named."""
    shared = Path(sys.argv[1])
    words = {ord(character) for texts in WORDS.values() for text in texts for character in text}
    characters = gb2312() | general_standard(shared / "unicode") | set(WESTERN) | words
    for style in ("Regular", "Bold"):
        source = shared / "fonts" / "opentype" / "noto" / f"NotoSansCJK-{style}.ttc"
        write(source, style, characters)


if __name__ == "__main__":
    main()
