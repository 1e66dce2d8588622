"""A state as one file in the safetensors format: nothing in it is ever run, unlike a pickle.

Plain values are JSON among its metadata. The digest of the content is part of the file's name, so that one
that was damaged shows.
"""

import hashlib
import json
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from trainlab.record.files import replacing, sha256_of
from trainlab.train.checkpoint.state import State

SUFFIX = ".safetensors"
DIGITS = 16
"""Of the digest."""


class DamagedError(Exception):
    """The content is not what was written."""


def to_bytes(state: State) -> bytes:
    """The content of a file; KeyError, TypeError or ValueError for a tensor or a value that has no place
    there."""
    # Copies: the format takes no tensors that share memory.
    tensors = {
        name: one.detach().to("cpu", copy=True).contiguous() for name, one in state.tensors.items()
    }
    return save(tensors, {"values": json.dumps(state.values)})


def write_content(folder: Path, name: str, content: bytes) -> Path:
    """Writes beside and renames, synced; the digest is added to the name."""
    path = folder / f"{name}-{hashlib.sha256(content).hexdigest()[:DIGITS]}{SUFFIX}"
    with replacing(path) as part:
        part.write_bytes(content)
    return path


def read_state(path: Path) -> State:
    """Tensors, on the CPU, and values; DamagedError where a bit of them is not as it was written, and
    RecordError where the file cannot be read."""
    if sha256_of(path)[:DIGITS] != path.stem.rpartition("-")[2]:
        raise DamagedError
    try:
        with safe_open(path, framework="pt") as opened:
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118  no mapping
            return State(tensors, json.loads((opened.metadata() or {})["values"]))
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise DamagedError from error
