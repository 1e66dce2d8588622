"""IDX files (the format of MNIST and its descendants), read straight into uint8 tensors."""

import gzip
import hashlib
import math
import struct
import zlib
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from trainlab.errors import ChecksumError, DataError, IdxError

UNSIGNED_BYTE = 0x08
"""The only element type the image sets use."""

_CHUNK = 1 << 20


def read_idx(path: Path, shape: tuple[int, ...], sha256: str | None = None) -> Tensor:
    """The file's content as a uint8 tensor of exactly `shape`; gzip is recognised by its first bytes.

    Never reads more than the expected number of bytes, whatever the file claims. Raises IdxError
    for a malformed file and ChecksumError where `sha256` (of the uncompressed content) differs.
    """
    content = bytearray()
    limit = 4 + 4 * len(shape) + math.prod(shape)
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            stream: BinaryIO = gzip.GzipFile(fileobj=raw) if packed else raw  # type: ignore[assignment]
            while len(content) <= limit and (chunk := stream.read(_CHUNK)):
                content += chunk
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise IdxError(f"{path}: broken gzip ({error}); fetch it again") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    tensor = parse_idx(content, shape, str(path))
    if sha256 is not None and (got := hashlib.sha256(content).hexdigest()) != sha256:
        raise ChecksumError(
            f"{path}: SHA-256 is {got[:12]}…, must be {sha256[:12]}…; "
            "not the published file: delete it and fetch it again"
        )
    return tensor


def parse_idx(content: bytearray, shape: tuple[int, ...], where: str) -> Tensor:
    """`content` as a tensor over the same memory, or an IdxError that says what is wrong with it."""
    header = 4 + 4 * len(shape)
    if len(content) < header:
        raise IdxError(f"{where}: {len(content)} bytes, too short for an IDX header of {header}")
    zeros, element, rank = struct.unpack_from(">HBB", content)
    if zeros != 0 or element != UNSIGNED_BYTE or rank != len(shape):
        start, expected_start = content[:4].hex(), f"000008{len(shape):02x}"
        raise IdxError(f"{where}: starts with {start}, must be {expected_start}; not this IDX")
    counts = struct.unpack_from(f">{rank}I", content, 4)
    if counts != shape:
        raise IdxError(f"{where}: holds {_shape_text(counts)} values, must be {_shape_text(shape)}")
    expected = header + math.prod(shape)
    if len(content) != expected:
        fault = "cut short" if len(content) < expected else "has trailing bytes"
        raise IdxError(f"{where}: {fault}: must be {expected} bytes")
    return torch.frombuffer(content, dtype=torch.uint8, offset=header).view(shape)


def idx_bytes(values: Tensor) -> bytes:
    """The IDX file of a uint8 tensor."""
    header = struct.pack(">HBB", 0, UNSIGNED_BYTE, values.dim())
    counts = struct.pack(f">{values.dim()}I", *values.shape)
    return header + counts + values.contiguous().numpy().tobytes()


def _shape_text(shape: tuple[int, ...]) -> str:
    return "x".join(str(extent) for extent in shape)
