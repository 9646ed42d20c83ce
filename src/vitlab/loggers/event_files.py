"""Log to TensorBoard: event files in the run's folder, for tensorboard --logdir runs."""

from importlib.util import find_spec
from typing import Any

import numpy as np
import yaml
from lightning_fabric.loggers.logger import rank_zero_experiment
from PIL import Image
from pytorch_lightning.loggers import TensorBoardLogger
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from vitlab.errors import ConfigError
from vitlab.loggers.run_logger import RunLogger
from vitlab.ranges import Natural


class TensorBoard(TensorBoardLogger, RunLogger):
    """Lightning's TensorBoardLogger, with pictures and the config as a text. A resumed run goes on in another file of
    the same folder, and what an earlier one says of steps after `first_step` no longer counts. Raises ConfigError where
    the package is not installed."""

    def __init__(self, *, folder: str, first_step: Natural, run_config: dict[str, Any]):
        if find_spec("tensorboard") is None:
            raise ConfigError("logger=tensorboard needs the package tensorboard: pip install 'vitlab[tensorboard]'")
        super().__init__(folder, name="tensorboard", version="", purge_step=first_step + 1 if first_step else None)
        self.run_config = run_config

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        new = self._experiment is None
        writer = super().experiment
        if new:
            written = yaml.safe_dump(self.run_config, sort_keys=False, allow_unicode=True)
            writer.add_text("config", "\n".join(f"    {line}" for line in written.splitlines()))  # as code in Markdown
        return writer

    @rank_zero_only
    def log_image(self, key: str, images: list[str], step: int | None = None) -> None:
        """Log pictures, given by their files."""
        for path in images:
            pixels = np.asarray(Image.open(path).convert("RGB"))
            self.experiment.add_image(key, pixels, step, dataformats="HWC")
