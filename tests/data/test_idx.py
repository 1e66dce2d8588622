import gzip
import hashlib
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainlab.data.image_sets import idx_bytes, read_idx
from trainlab.errors import DataError

SHAPE = (5, 4, 3)
CONTENT = idx_bytes(torch.arange(60, dtype=torch.uint8).view(SHAPE))
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("idx") / "some-idx3-ubyte"


# How long a disk takes says nothing about the reader.
@settings(deadline=None, max_examples=30)
@given(shape=st.lists(st.integers(1, 6), min_size=1, max_size=4).map(tuple), data=st.data())
def test_what_was_written_is_read_back(path, shape, data):
    size = torch.Size(shape).numel()
    values = data.draw(st.binary(min_size=size, max_size=size))
    tensor = torch.frombuffer(bytearray(values), dtype=torch.uint8).view(shape)
    for pack in (bytes, gzip.compress):
        path.write_bytes(pack(idx_bytes(tensor)))
        got = read_idx(path, shape, hashlib.sha256(idx_bytes(tensor)).hexdigest())
        assert got.dtype == torch.uint8
        assert got.shape == shape
        assert torch.equal(got, tensor)


def test_the_layout_is_the_published_one():
    assert idx_bytes(torch.tensor([[7, 8, 9]], dtype=torch.uint8)) == bytes.fromhex(
        "00000802 00000001 00000003 070809"
    )


def test_a_file_cut_short_or_changed_is_refused(path):
    packed = gzip.compress(CONTENT, mtime=0)
    for content, told in (
        (CONTENT[:-1], "some-idx3-ubyte: SHA-256 is .*delete it and fetch it again"),
        (CONTENT + b"\0", "some-idx3-ubyte: SHA-256 is "),
        (CONTENT[:40] + b"\xff" + CONTENT[41:], "some-idx3-ubyte: SHA-256 is "),
        (packed[:-1], "broken gzip .*fetch it again"),
        (packed[:20], "broken gzip"),
        (packed[:12] + b"\xff" + packed[13:], "broken gzip|SHA-256 is "),
    ):
        path.write_bytes(content)
        with pytest.raises(DataError, match=told):
            read_idx(path, SHAPE, SHA256)


def test_another_checksum_and_a_missing_file_are_told_with_their_path(path, tmp_path):
    path.write_bytes(CONTENT)
    told = f"SHA-256 is {SHA256[:12]}…, must be 0000000000ab…; .*delete it and fetch it again"
    with pytest.raises(DataError, match=told):
        read_idx(path, SHAPE, "0000000000ab" + "0" * 52)
    with pytest.raises(DataError, match="none: cannot be read: No such file"):
        read_idx(tmp_path / "none", SHAPE, SHA256)
