"""Arrays in a file that any tool can open: the safetensors format, written as a stream.

The library that reads it would write it too, but of a copy of everything in memory. A replay may be as large as the
memory that is left, so here each array is written from where it lies, and the file's hash is taken on the way.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from motet.errors import BadOption
from motet.runs.reading import Damaged

TYPES = {
    "bool": "BOOL",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "uint8": "U8",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
}
"""What NumPy calls a type -> what the format calls it."""
PIECE = 2**24
"""Bytes that are written at once."""


def write(file: Path, arrays: Mapping[str, np.ndarray]) -> str:
    """Write arrays to a new file, to the disk -> its SHA-256."""
    sha = hashlib.sha256()
    with file.open("xb") as out:
        head = _header(arrays)
        for piece in (struct.pack("<Q", len(head)), head):
            sha.update(piece)
            out.write(piece)
        for array in arrays.values():
            flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            for start in range(0, flat.size, PIECE):
                piece = flat[start : start + PIECE].data
                sha.update(piece)
                out.write(piece)
        out.flush()
        os.fsync(out.fileno())
    return sha.hexdigest()


def _header(arrays: Mapping[str, np.ndarray]) -> bytes:
    table: dict[str, Any] = {}
    end = 0
    for name, array in arrays.items():
        kind = TYPES.get(array.dtype.name)
        if kind is None:
            raise BadOption(f"An array of {array.dtype} ({name}) cannot be saved; known are {', '.join(TYPES)}.")
        table[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [end, end + array.nbytes]}
        end += array.nbytes
    text = json.dumps(table, separators=(",", ":")).encode()
    return text + b" " * (-len(text) % 8)


def read(file: Path, sha256: str) -> dict[str, np.ndarray]:
    """The arrays of a file that has this hash, in memory of their own."""
    from safetensors import SafetensorError, safe_open

    if _hash(file) != sha256:
        raise Damaged(f"{file} is damaged: it is not what was written.")
    try:
        with safe_open(file, framework="numpy") as opened:
            return {name: np.array(opened.get_tensor(name)) for name in opened.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, ValueError, TypeError) as error:
        raise Damaged(f"{file} is damaged: {error}.") from None


def _hash(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
