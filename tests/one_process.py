"""A process that is a run of several by itself: what is sharded over all ranks is sharded, and whole, here."""

from contextlib import contextmanager

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh


@contextmanager
def one_process():
    """A mesh of one, on a CPU with gloo."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield init_device_mesh("cpu", (1,))
    finally:
        dist.destroy_process_group()


SHARDING = {"reshard_after_forward": True, "gather_bf16": False, "reduce_once": True}  # of the strategy FullySharded
