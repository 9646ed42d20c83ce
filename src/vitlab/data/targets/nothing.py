"""No target: images alone, for regimes that learn from these.

n images
"""

from collections.abc import Sequence

import numpy as np

from vitlab.data.targets.targets import Targets


class Nothing(Targets):
    """n times nothing."""

    kind = "without a label"

    @classmethod
    def times(cls, n: int) -> "Nothing":
        return cls(np.zeros((n, 0), dtype=np.uint8))

    def collate(self) -> None:
        return None

    def words(self, i: int, class_names: Sequence[str]) -> str:
        return ""
