"""Images that are files."""

import hashlib
import os
from collections.abc import Iterable, Sequence

import numpy as np

from vitlab.data.pools.file_content import content
from vitlab.data.pools.packed_names import PackedNames
from vitlab.data.pools.pool import Pool
from vitlab.data.targets import Targets


class FilePool(Pool):
    """Image files: `paths` (n,), relative ones below `folder`. A million of them come as `PackedNames`, not as a
    list."""

    def __init__(self, paths: Sequence[str] | np.ndarray, targets: Targets, fingerprint: str, folder: str = ""):
        super().__init__(targets, fingerprint)
        self.paths = paths
        self.folder = folder

    @classmethod
    def from_names(cls, paths: Iterable[str], targets: Targets, folder: str) -> "FilePool":
        """Make a pool of files known by name and class alone: their sizes do not enter the fingerprint."""
        packed = PackedNames.pack(paths)
        digest = hashlib.blake2b(packed.offsets.tobytes() + packed.block.tobytes() + targets.tobytes(), digest_size=8)
        return cls(packed, targets, digest.hexdigest(), folder)

    def load(self, i: int) -> bytes:
        return content(self.name(i))

    def name(self, i: int) -> str:
        return os.path.join(self.folder, self.paths[i])
