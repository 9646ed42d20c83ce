"""Keep buffers, such as the statistics of batch normalisation, the same on every rank."""

import torch
from torch import nn


@torch.no_grad()
def share_buffers(module: nn.Module) -> None:
    """Give every rank the first one's buffers, in place; every rank calls it. Without other ranks nothing happens."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        for buffer in module.buffers():
            whole = buffer.contiguous()
            torch.distributed.broadcast(whole, src=0)
            buffer.copy_(whole)
