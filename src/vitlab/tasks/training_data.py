"""Define what a task asks of the data of a run."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from vitlab.data.targets import Targets


class TrainingData(Protocol):
    """`ImageDataModule`, as tasks and callbacks see it; tests may give less."""

    trainer: Any
    global_batch_size: int
    images: Any
    loading: Any
    preprocessing: Any

    @property
    def splits(self) -> Mapping[str, Any]: ...

    @property
    def class_names(self) -> list[str]: ...

    @property
    def targets(self) -> Targets: ...

    def class_shares(self) -> np.ndarray: ...
