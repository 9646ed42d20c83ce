"""Store columns of numbers in one safetensors file, which is mapped into memory rather than read."""

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from vitlab.atomic_files import write_whole

TYPES = {"I64": np.int64, "I32": np.int32, "U32": np.uint32, "U8": np.uint8, "F64": np.float64}
NO_COLUMNS = (ValueError, LookupError, TypeError, AttributeError, RecursionError)  # what other bytes lead to


def write_columns(path: Path, columns: dict[str, np.ndarray], metadata: dict[str, str]) -> None:
    """Write columns whole or not at all. Raises OSError."""
    from safetensors.numpy import save

    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, save({name: np.ascontiguousarray(column) for name, column in columns.items()}, metadata))


def map_columns(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Map the columns as read-only views into the file, and read its metadata. Raises OSError where there is no file,
    and ValueError for a damaged one."""
    try:
        content = np.memmap(path, mode="r").view(np.ndarray)
        begin = 8 + int(content[:8].view(np.uint64)[0])
        header = json.loads(content[8:begin].tobytes())
        metadata = header.pop("__metadata__", {})
        columns = {
            name: content[begin + entry["data_offsets"][0] : begin + entry["data_offsets"][1]]
            .view(TYPES[entry["dtype"]])
            .reshape(entry["shape"])
            for name, entry in header.items()
        }
    except NO_COLUMNS as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    return columns, metadata


def write_checked(path: Path, about: dict[str, Any], columns: dict[str, np.ndarray]) -> None:
    """Write columns with `about`, plain values, and a checksum of all. Raises OSError."""
    text = json.dumps(about)
    write_columns(path, columns, {"about": json.dumps([text, checksum(text, columns)])})


def map_checked(path: Path, *, check: bool = True) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Map what `write_checked` wrote. Raises OSError where there is no file and ValueError for a damaged one; without
    `check` the checksum is not compared."""
    columns, metadata = map_columns(path)
    try:
        text, expected = json.loads(metadata["about"])
        if check and checksum(text, columns) != expected:
            raise ValueError("its checksum is another")
        return json.loads(text), columns
    except NO_COLUMNS as error:
        raise ValueError(f"{path} is damaged: {error}") from error


def checksum(text: str, columns: dict[str, np.ndarray]) -> int:
    found = zlib.crc32(text.encode())
    for name in sorted(columns):
        column = np.ascontiguousarray(columns[name])
        found = zlib.crc32(f"{name} {column.dtype.str} {column.shape}".encode(), found)
        found = zlib.crc32(column.data.cast("B") if column.size else b"", found)
    return found
