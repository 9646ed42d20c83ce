"""Tensors of which every rank holds a part, as plain ones, and plain ones as theirs."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor


def whole(value: Any) -> Any:
    """Gather a tensor on all ranks, each of which calls it; what is not sharded stays what it is."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def whole_state(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: whole(value) for name, value in state.items()}


def fill(own: Tensor, value: Tensor) -> None:
    """Copy a value into a tensor, in place; of a whole value, a sharded tensor takes this rank's part."""
    if isinstance(own, DTensor) and not isinstance(value, DTensor):
        value = distribute_tensor(value, own.device_mesh, own.placements, src_data_rank=None)
    own.copy_(value)


def own_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """What this rank holds of each parameter, by name, a shared one under all its names. Asked for its state, a module
    drops what it has gathered: without that, `parameters()` may give copies, which the next forward pass would go on
    with whatever is written into the parts."""
    state = module.state_dict(keep_vars=True)
    return {name: value for name, value in state.items() if isinstance(value, nn.Parameter)}
