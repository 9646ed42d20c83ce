"""Gather sharded tensors into plain ones, and fill sharded tensors from plain ones."""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor


def unshard_tensor(value: Any) -> Any:
    """Return the whole of a sharded tensor on all ranks, each of which calls it; any other value as it is."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def unshard_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state dict whose tensors are whole; every rank calls it."""
    return {name: unshard_tensor(value) for name, value in state.items()}


def fill(own: Tensor, value: Tensor) -> None:
    """Copy a value into a tensor, in place; a sharded tensor takes this rank's part of a whole value."""
    own.copy_(take_own_part(value, own))


def take_own_part(value: Any, like: Tensor) -> Any:
    """Take this rank's part of a whole value shaped as a sharded tensor; return any other value as it is."""
    is_whole = isinstance(value, Tensor) and not isinstance(value, DTensor)
    if not (isinstance(like, DTensor) and is_whole and value.shape == like.shape):
        return value
    return distribute_tensor(value.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def get_own_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """Give what this rank holds of each parameter, by name; a shared one under all its names.

    The state dict is asked for them because a sharded module then drops what it has gathered. `parameters()` may give
    gathered copies, with which the next forward pass would run whatever is written into the parts.
    """
    state = module.state_dict(keep_vars=True)
    return {name: value for name, value in state.items() if isinstance(value, nn.Parameter)}


def iterate_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield all parameters and buffers by name; a shared one under each of its names."""
    return chain(module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False))
