"""What a way to train asks of the data of a run."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np


class TrainingData(Protocol):
    """`ImageDataModule`, as tasks and callbacks see it; tests may give less."""

    trainer: Any
    global_batch_size: int
    train_crop: Any
    preprocessing: Any

    @property
    def splits(self) -> Mapping[str, Any]: ...

    @property
    def class_names(self) -> list[str]: ...

    @property
    def multilabel(self) -> bool: ...

    @property
    def mixed_sizes(self) -> bool: ...

    def class_shares(self) -> np.ndarray: ...
