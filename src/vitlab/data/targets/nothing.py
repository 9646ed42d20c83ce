"""Label images with nothing, for regimes that learn from images alone.

n images
"""

from collections.abc import Sequence

import numpy as np

from vitlab.data.targets.targets import Targets


class NoTargets(Targets):
    """No target for any of n images."""

    kind = "without a label"

    @classmethod
    def times(cls, n: int) -> "NoTargets":
        return cls(np.zeros((n, 0), dtype=np.uint8))

    def collate(self) -> None:
        return None

    def words(self, i: int, class_names: Sequence[str]) -> str:
        return ""
