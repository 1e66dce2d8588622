"""Small pictures as PNG files, written by hand: a report needs no package for images."""

import struct
import zlib

from trainlab.record.confusion import Picture

COLOUR_TYPES = {1: 0, 3: 2}
"""By channels: grey, or red, green and blue."""


def png_of_picture(picture: Picture, scale: int = 1) -> bytes:
    """The picture pixel by pixel, each `scale` pixels wide and high."""
    step = picture.width * picture.channels
    values, rows = picture.values, []
    for start in range(0, len(values), step):
        row = values[start : start + step]
        pixels = [row[at : at + picture.channels] for at in range(0, step, picture.channels)]
        # Each row begins with its filter: none.
        rows += [b"\0" + b"".join(pixel * scale for pixel in pixels)] * scale
    size = picture.width * scale, picture.height * scale
    head = struct.pack(">IIBBBBB", *size, 8, COLOUR_TYPES[picture.channels], 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(b"".join(rows), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, content) for kind, content in parts)


def _chunk(kind: bytes, content: bytes) -> bytes:
    check = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)
