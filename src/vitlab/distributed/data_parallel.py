"""Data parallelism: every process has the whole model, and learns from its share of each batch."""

from datetime import timedelta
from inspect import signature
from typing import Any

from pytorch_lightning.strategies import DDPStrategy, StrategyRegistry
from pytorch_lightning.utilities.types import STEP_OUTPUT
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from vitlab.distributed.launcher import Launcher
from vitlab.ranges import Positive

COMPRESSIONS = ("none", "fp16", "bf16")
SYNC_BUFFERS = next(  # torch 2.15 calls it by another name
    name
    for name in ("forward_sync_buffers", "broadcast_buffers")
    if name in signature(DistributedDataParallel).parameters
)
DEFAULTS = {  # as conf/trainer/ddp.yaml has them, of trainers that name the strategy by a word alone
    "timeout_minutes": 10,
    "bucket_mb": 25,
    "gradient_as_bucket_view": False,
    "static_graph": False,
    "compression": "none",
}


class DataParallel(DDPStrategy):
    """Lightning's DDP, whose ranks wait for each other for at most `timeout_minutes`. In an evaluation they do not wait
    from batch to batch, since one rank may have more batches than another.

    Gradients are sent in buckets of `bucket_mb`, in the numbers that `compression` names ("fp16", "bf16"; "none": their
    own). `gradient_as_bucket_view` keeps them in the buckets alone; `static_graph` lets torch assume that every step
    uses the same parameters. Raises ValueError for another compression.
    """

    def __init__(
        self,
        *,
        timeout_minutes: Positive,
        bucket_mb: Positive,
        gradient_as_bucket_view: bool,
        static_graph: bool,
        compression: str,
    ):
        if compression not in COMPRESSIONS:
            raise ValueError(f"compression '{compression}' is not one of: {', '.join(COMPRESSIONS)}")
        super().__init__(
            timeout=timedelta(minutes=timeout_minutes),
            bucket_cap_mb=bucket_mb,
            gradient_as_bucket_view=gradient_as_bucket_view,
            static_graph=static_graph,
        )
        self.compression = compression

    def configure_ddp(self) -> None:
        """Wrap the task. Its buffers are sent with each batch only if some are kept in checkpoints: the others are
        computed, and the same on all ranks."""
        state = self.lightning_module.state_dict(keep_vars=True).values()
        self._ddp_kwargs[SYNC_BUFFERS] = any(not isinstance(value, nn.Parameter) for value in state)
        super().configure_ddp()

    def _register_ddp_hooks(self) -> None:
        if self.compression != "none":
            assert isinstance(self.model, DistributedDataParallel)
            self.model.register_comm_hook(None, getattr(default_hooks, f"{self.compression}_compress_hook"))

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
    StrategyRegistry.register("ddp", DataParallel, override=True, **DEFAULTS)
