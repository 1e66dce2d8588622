import gzip
import hashlib
import os
import struct
import time
import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from trainlab.data.image_sets import idx_bytes, parse_idx, read_idx
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


def test_a_tensor_is_written_in_its_logical_order_whatever_its_strides(path):
    turned = torch.arange(6, dtype=torch.uint8).view(2, 3).t()
    path.write_bytes(idx_bytes(turned))
    assert read_idx(path, (3, 2)).tolist() == [[0, 3], [1, 4], [2, 5]]


def test_the_layout_is_the_published_one():
    assert idx_bytes(torch.tensor([[7, 8, 9]], dtype=torch.uint8)) == bytes.fromhex(
        "00000802 00000001 00000003 070809"
    )


def test_the_tensor_shares_the_memory_that_was_read():
    content = bytearray(CONTENT)
    tensor = parse_idx(content, SHAPE, "here")
    content[HEADER] = 201
    assert tensor[0, 0, 0] == 201


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
@given(shape=shapes)
def test_any_other_rank_is_refused(path, pack, shape):
    assume(len(shape) != len(SHAPE))
    with pytest.raises(IdxError, match=f"starts with 0000080{len(shape)}, must be|too short"):
        read(path, pack(idx_bytes(torch.zeros(shape, dtype=torch.uint8))))


@either_way
@untimed
@given(more=st.binary(min_size=1))
def test_bytes_after_the_last_value_are_refused(path, pack, more):
    with pytest.raises(IdxError, match="has trailing bytes: must be 76"):
        read(path, pack(CONTENT + more))


@untimed
@given(more=st.binary(min_size=1).filter(any))
def test_bytes_after_the_gzip_stream_are_refused(path, more):
    with pytest.raises(IdxError, match=r"broken gzip|has trailing bytes"):
        read(path, PACKED + more)


@untimed
@given(at=st.integers(0, len(CONTENT) - 1), flip=st.integers(1, 255))
def test_any_changed_byte_is_noticed_by_format_or_checksum(path, at, flip):
    changed = bytearray(CONTENT)
    changed[at] ^= flip
    expected = IdxError if at < HEADER else ChecksumError
    with pytest.raises(expected, match="some-idx3-ubyte: "):
        read(path, bytes(changed), SHA256)


@untimed
@given(at=st.integers(0, len(PACKED) - 1), flip=st.integers(1, 255))
def test_a_changed_byte_in_a_gzip_stream_never_changes_the_values(path, at, flip):
    changed = bytearray(PACKED)
    changed[at] ^= flip
    try:
        got = read(path, bytes(changed), SHA256)
    except (IdxError, ChecksumError):
        return
    # The time stamp and such, and the bits that fill up the last byte, mean nothing to the content.
    assert torch.equal(got, VALUES)


@untimed
@given(at=st.integers(len(PACKED) - GZIP_TRAILER, len(PACKED) - 1), flip=st.integers(1, 255))
def test_a_changed_byte_in_the_gzip_trailer_is_refused(path, at, flip):
    changed = bytearray(PACKED)
    changed[at] ^= flip
    with pytest.raises(IdxError, match=r"broken gzip \(.+\); fetch it again"):
        read(path, bytes(changed))


@untimed
@given(prefix=st.sampled_from([b"", CONTENT[:4], PACKED[:2], PACKED[:4]]), noise=st.binary())
def test_random_bytes_are_refused(path, prefix, noise):
    with pytest.raises((IdxError, ChecksumError), match="some-idx3-ubyte: "):
        read(path, prefix + noise, SHA256)


def test_another_checksum_is_told_with_both_values_and_the_remedy(path):
    told = f"SHA-256 is {SHA256[:12]}…, must be 0000000000ab…; .*delete it and fetch it again"
    with pytest.raises(ChecksumError, match=told):
        read(path, CONTENT, "0000000000ab" + "0" * 52)


def _gzip_bomb(head: bytes, num_mib: int) -> bytes:
    """A gzip stream of `head` and zeros: fully flushed blocks need no history, so one is repeated."""
    deflate = zlib.compressobj(wbits=31)
    start = deflate.compress(head) + deflate.flush(zlib.Z_FULL_FLUSH)
    block = deflate.compress(bytes(16 * MIB)) + deflate.flush(zlib.Z_FULL_FLUSH)
    return start + block * (num_mib // 16)


@contextmanager
def _within(peak_bytes: int, timeout_s: float) -> Iterator[None]:
    tracemalloc.start()
    begun = time.perf_counter()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < peak_bytes
    assert time.perf_counter() - begun < timeout_s


@pytest.mark.parametrize(
    ("head", "told"),
    [(CONTENT, "has trailing bytes"), (b"", "starts with 00000000")],
    ids=["after the content", "from the start"],
)
def test_a_gzip_bomb_is_not_unpacked_past_the_expected_size(path, head, told):
    path.write_bytes(_gzip_bomb(head, num_mib=1024))
    with _within(4 * MIB, timeout_s=1), pytest.raises(IdxError, match=told):
        read_idx(path, SHAPE)


def test_the_bomb_of_these_tests_does_expand():
    bomb = _gzip_bomb(CONTENT, num_mib=32)
    assert len(bomb) < MIB
    assert zlib.decompressobj(wbits=31).decompress(bomb) == CONTENT + bytes(32 * MIB)


def test_a_huge_plain_file_is_not_read_past_the_expected_size(path):
    with path.open("wb") as file:
        file.write(CONTENT)
        file.truncate(4 << 30)
    with _within(4 * MIB, timeout_s=1), pytest.raises(IdxError, match="has trailing bytes"):
        read_idx(path, SHAPE)


def test_a_folder_in_place_of_the_file_is_told(tmp_path):
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        read_idx(tmp_path, SHAPE)


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(DataError, match="none: cannot be read: No such file"):
        read_idx(tmp_path / "none", SHAPE)


def test_a_link_to_itself_is_told(tmp_path):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(DataError, match="loop: cannot be read: "):
        read_idx(loop, SHAPE)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_without_read_permission_is_told(tmp_path):
    locked = tmp_path / "locked"
    locked.write_bytes(CONTENT)
    locked.chmod(0)
    with pytest.raises(DataError, match="locked: cannot be read: Permission denied"):
        read_idx(locked, SHAPE)
