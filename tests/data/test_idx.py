import gzip
import hashlib
import struct
from pathlib import Path

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from trainlab.data.image_sets import idx_bytes, read_idx
from trainlab.errors import ChecksumError, DataError, IdxError

SHAPE = (5, 4, 3)
VALUES = torch.arange(60, dtype=torch.uint8).view(SHAPE)
CONTENT = idx_bytes(VALUES)
HEADER = 16
SHA256 = hashlib.sha256(CONTENT).hexdigest()
PACKED = gzip.compress(CONTENT, mtime=0)
GZIP_TRAILER = 8
MIB = 1 << 20

shapes = st.lists(st.integers(1, 6), min_size=1, max_size=4).map(tuple)
# How long a disk takes says nothing about the reader.
untimed = settings(deadline=None)
either_way = pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("idx") / "some-idx3-ubyte"


def read(path: Path, content: bytes, sha256: str | None = None) -> Tensor:
    path.write_bytes(content)
    return read_idx(path, SHAPE, sha256)


@either_way
@untimed
@given(shape=shapes, data=st.data())
def test_what_was_written_is_read_back(path, pack, shape, data):
    size = torch.Size(shape).numel()
    values = data.draw(st.binary(min_size=size, max_size=size))
    tensor = torch.frombuffer(bytearray(values), dtype=torch.uint8).view(shape)
    path.write_bytes(pack(idx_bytes(tensor)))
    got = read_idx(path, shape, hashlib.sha256(idx_bytes(tensor)).hexdigest())
    assert got.dtype == torch.uint8
    assert got.shape == shape
    assert torch.equal(got, tensor)


def test_the_layout_is_the_published_one():
    assert idx_bytes(torch.tensor([[7, 8, 9]], dtype=torch.uint8)) == bytes.fromhex(
        "00000802 00000001 00000003 070809"
    )


@either_way
@untimed
@given(kept=st.integers(0, len(CONTENT) - 1))
def test_content_cut_anywhere_is_refused(path, pack, kept):
    with pytest.raises(IdxError, match=r"too short for an IDX header of 16|cut short: must be 76"):
        read(path, pack(CONTENT[:kept]))


@untimed
@given(kept=st.integers(0, len(PACKED) - 1))
def test_a_gzip_file_cut_anywhere_is_refused(path, kept):
    with pytest.raises(IdxError, match=r"broken gzip|too short"):
        read(path, PACKED[:kept])


@either_way
@untimed
@given(magic=st.binary(min_size=4, max_size=4))
def test_any_other_magic_is_refused(path, pack, magic):
    assume(magic != CONTENT[:4])
    assume(not magic.startswith(b"\x1f\x8b"))
    with pytest.raises(IdxError, match=f"starts with {magic.hex()}, must be 00000803; not this"):
        read(path, pack(magic + CONTENT[4:]))


@either_way
@untimed
@given(counts=st.tuples(*[st.integers(0, 2**32 - 1) | st.integers(0, 6)] * 3))
def test_any_other_counts_are_refused(path, pack, counts):
    assume(counts != SHAPE)
    told = "x".join(map(str, counts))
    with pytest.raises(IdxError, match=f"holds {told} values, must be 5x4x3"):
        read(path, pack(CONTENT[:4] + struct.pack(">3I", *counts) + CONTENT[HEADER:]))


@either_way
@untimed
@given(more=st.binary(min_size=1))
def test_bytes_after_the_last_value_are_refused(path, pack, more):
    with pytest.raises(IdxError, match="has trailing bytes: must be 76"):
        read(path, pack(CONTENT + more))


@untimed
@given(at=st.integers(0, len(CONTENT) - 1), flip=st.integers(1, 255))
def test_any_changed_byte_is_noticed_by_format_or_checksum(path, at, flip):
    changed = bytearray(CONTENT)
    changed[at] ^= flip
    expected = IdxError if at < HEADER else ChecksumError
    with pytest.raises(expected, match="some-idx3-ubyte: "):
        read(path, bytes(changed), SHA256)


def test_another_checksum_is_told_with_both_values_and_the_remedy(path):
    told = f"SHA-256 is {SHA256[:12]}…, must be 0000000000ab…; .*delete it and fetch it again"
    with pytest.raises(ChecksumError, match=told):
        read(path, CONTENT, "0000000000ab" + "0" * 52)


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(DataError, match="none: cannot be read: No such file"):
        read_idx(tmp_path / "none", SHAPE)
