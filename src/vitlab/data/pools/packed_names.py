"""Hold many names in one block of memory, without the cost of a million strings.

n names, U bytes of all of them together
"""

import os
from array import array
from collections.abc import Iterable, Sequence
from typing import overload

import numpy as np


def format_name(name: str) -> str:
    """Write a name as text that every file, terminal and picture takes: bytes that are not UTF-8 as \\xNN."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


class PackedNames(Sequence[str]):
    """n file names. `block` (U,) uint8: name i is block[offsets[i] : offsets[i + 1]]; `offsets` (n + 1,) int64.

    Forked workers share both, since nothing ever writes to them, and both may be mapped from a file. Names that are
    not UTF-8 come back as os.fsdecode gives them, and open the files they name.
    """

    def __init__(self, block: np.ndarray, offsets: np.ndarray):
        self.block = block
        self.offsets = offsets

    @classmethod
    def pack(cls, names: Iterable[str | bytes]) -> "PackedNames":
        block, offsets = bytearray(), array("q", [0])
        for name in names:
            block += os.fsencode(name)
            offsets.append(len(block))
        views = memoryview(block).toreadonly(), memoryview(offsets).toreadonly()
        return cls(np.frombuffer(views[0], dtype=np.uint8), np.frombuffer(views[1], dtype=np.int64))

    @classmethod
    def join(cls, parts: Sequence["PackedNames"]) -> "PackedNames":
        """Concatenate the names of all parts."""
        lengths = np.concatenate([np.zeros(1, dtype=np.int64), *[np.diff(part.offsets) for part in parts]])
        return cls(np.concatenate([np.zeros(0, dtype=np.uint8), *[part.block for part in parts]]), np.cumsum(lengths))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, i: int) -> str: ...
    @overload
    def __getitem__(self, i: slice) -> list[str]: ...
    def __getitem__(self, i: int | slice) -> str | list[str]:
        if isinstance(i, slice):
            return [self[k] for k in range(*i.indices(len(self)))]
        i = range(len(self))[i]  # negative ones count from the end, others raise IndexError
        return os.fsdecode(self.block[self.offsets[i] : self.offsets[i + 1]].tobytes())
