"""The samples of a split, whatever they are."""

from collections.abc import Sequence

import numpy as np
from torch.utils.data import Dataset

from vitlab.data.pools.packed_names import readable
from vitlab.data.pools.pool import Pool
from vitlab.data.targets import Targets


class Split(Dataset):
    """The samples `indices` (n,) of a pool."""

    def __init__(self, pool: Pool, indices: np.ndarray):
        self.pool, self.indices = pool, indices

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def targets(self) -> Targets:
        return self.pool.targets[self.indices]

    def words(self, index: int, class_names: Sequence[str]) -> str:
        """Say what a sample is labelled with."""
        return self.pool.targets.words(int(self.indices[index]), class_names)

    def asked(self, index: int) -> str:
        """Give the question about a sample; "": there is none."""
        return self.pool.targets.asked(int(self.indices[index]))

    def name(self, index: int) -> str:
        return readable(self.pool.name(int(self.indices[index])))
