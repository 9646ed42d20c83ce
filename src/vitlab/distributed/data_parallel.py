"""Data parallelism: every process has the whole model, and learns from its share of each batch."""

from datetime import timedelta
from typing import Any

from pytorch_lightning.strategies import DDPStrategy, StrategyRegistry
from pytorch_lightning.utilities.types import STEP_OUTPUT

from vitlab.distributed.launcher import Launcher
from vitlab.ranges import Positive

TIMEOUT_MINUTES = 10  # as conf/trainer/ddp.yaml has it, of trainers that name the strategy by a word alone


class DataParallel(DDPStrategy):
    """Lightning's DDP, whose ranks wait for each other for at most `timeout_minutes`. In an evaluation they do not wait
    from batch to batch, since one rank may have more batches than another."""

    def __init__(self, *, timeout_minutes: Positive):
        super().__init__(timeout=timedelta(minutes=timeout_minutes))

    def validation_step(self, *args: Any, **kwargs: Any) -> STEP_OUTPUT:
        """Call the task directly: Lightning goes through DDP's forward here, which may broadcast buffers; the task
        shares them once."""
        with self.precision_plugin.val_step_context():
            return self.lightning_module.validation_step(*args, **kwargs)

    def _configure_launcher(self) -> None:
        assert self.cluster_environment is not None
        self._launcher = Launcher(self.cluster_environment, self.num_processes, self.num_nodes)

    def setup_environment(self) -> None:
        super().setup_environment()
        if isinstance(self.launcher, Launcher):
            self.launcher.start_presence()


def register() -> None:
    """Let Lightning use it where a trainer's strategy is "ddp", or "auto" with more than one device."""
    StrategyRegistry.register("ddp", DataParallel, override=True, timeout_minutes=TIMEOUT_MINUTES)
