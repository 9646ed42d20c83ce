"""Named arrays in one file that is mapped into memory rather than read, and notices damage.

The file: MAGIC, the length and the CRC-32 of a header (4 bytes each, little-endian), the header as JSON, the arrays.
"""

import json
import math
import mmap
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from vitlab.atomic_files import writing_whole

MAGIC = b"vitlab arrays 1\n"
LENGTHS = struct.Struct("<II")
ALIGNMENT = 64  # bytes: no element lies across a page


def write_arrays(path: Path, about: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Write the arrays and `about`, plain values. The file is there whole or not at all; the last of several writers
    wins. Raises OSError."""
    start, entries = 0, []
    for name, array in arrays.items():
        start += -start % ALIGNMENT
        entries.append([name, array.dtype.str, list(array.shape), start, zlib.crc32(content_of(array))])
        start += array.nbytes
    header = json.dumps({"about": about, "arrays": entries}).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing_whole(path) as temporary, open(temporary, "wb") as file:
        file.write(MAGIC + LENGTHS.pack(len(header), zlib.crc32(header)) + header)
        for array in arrays.values():
            file.write(bytes(-file.tell() % ALIGNMENT))
            file.write(content_of(array))


def content_of(array: np.ndarray) -> memoryview | bytes:
    return np.ascontiguousarray(array).data.cast("B") if array.size else b""


def first_array(header_size: int) -> int:
    """Where in the file the arrays begin."""
    end = len(MAGIC) + LENGTHS.size + header_size
    return end + -end % ALIGNMENT


def read_arrays(path: Path, *, check: bool = True) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What `write_arrays` wrote, the arrays read-only and mapped. Raises OSError where there is no file and ValueError
    for a damaged one; without `check` the arrays are taken as they are."""
    with open(path, "rb") as file:
        try:
            content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except ValueError:  # an empty file cannot be mapped
            content = memoryview(b"")
    body = len(MAGIC) + LENGTHS.size
    if len(content) < body or content[: len(MAGIC)] != MAGIC:
        raise ValueError(f"{path} is no file of arrays")
    size, crc = LENGTHS.unpack(content[len(MAGIC) : body])
    header = bytes(content[body : body + size])
    if len(header) != size or zlib.crc32(header) != crc:
        raise ValueError(f"{path} is damaged")
    described = json.loads(header)
    arrays = {}
    for name, dtype, shape, start, crc in described["arrays"]:
        length = math.prod(shape) * np.dtype(dtype).itemsize
        begin = first_array(size) + start
        part = content[begin : begin + length]
        if len(part) != length or (check and zlib.crc32(part) != crc):
            raise ValueError(f"{path} is damaged")
        arrays[name] = np.frombuffer(part or b"", dtype=dtype).reshape(shape)
    return described["about"], arrays
