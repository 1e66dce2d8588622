"""Tensors and plain values in one file of the safetensors format: a header of JSON, then raw numbers.

Any program that reads safetensors reads it. Nothing in it is ever run, unlike a pickle. The values are JSON
among the header's metadata, and so is a digest of everything, which shows a file that was damaged.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

DTYPES: Mapping[str, torch.dtype] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
LENGTH_BYTES = 8


class DamagedError(Exception):
    """The content is not what was written."""


def to_bytes(tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> bytes:
    """The content of a file; KeyError for a tensor of a type that the format lacks."""
    parts, header, end = list[bytes](), dict[str, Any](), 0
    for name, tensor in tensors.items():
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        content = flat.view(torch.uint8).numpy().tobytes()
        place = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape)}
        header[name] = {**place, "data_offsets": [end, end + len(content)]}
        parts.append(content)
        end += len(content)
    data, text = b"".join(parts), json.dumps(values)
    metadata = {"values": text, "sha256": _digest(header, text, data)}
    head = json.dumps({"__metadata__": metadata, **header}).encode()
    head += b" " * (-len(head) % LENGTH_BYTES)
    return len(head).to_bytes(LENGTH_BYTES, "little") + head + data


def from_bytes(content: bytes) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors, on the CPU, and values; DamagedError where a bit of them is not as it was written."""
    start = LENGTH_BYTES + int.from_bytes(content[:LENGTH_BYTES], "little")
    try:
        header = json.loads(content[LENGTH_BYTES:start])
        metadata, data = header.pop("__metadata__"), content[start:]
        if metadata["sha256"] != _digest(header, metadata["values"], data):
            raise DamagedError
        tensors = {name: _tensor(place, data) for name, place in header.items()}
        return tensors, json.loads(metadata["values"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedError from error


def _tensor(place: Mapping[str, Any], data: bytes) -> Tensor:
    first, end = place["data_offsets"]
    shape = tuple(place["shape"])
    if not math.prod(shape):
        return torch.empty(shape, dtype=DTYPES[place["dtype"]])
    numbers = torch.from_numpy(np.frombuffer(data[first:end], np.uint8).copy())
    return numbers.view(DTYPES[place["dtype"]]).reshape(shape)


def _digest(header: Mapping[str, Any], values: str, data: bytes) -> str:
    told = hashlib.sha256(json.dumps([header, values], sort_keys=True).encode())
    told.update(data)
    return told.hexdigest()
