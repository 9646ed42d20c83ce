"""Note the attention weights of each layer while a model computes as it always does.

B batch, h heads, N queries, M keys
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from vitlab.layers import Attention, MemoryAttention


@contextmanager
def record_attention(blocks: nn.Module, device: str | None = None) -> Iterator[dict[nn.Module, Tensor]]:
    """While it lasts, each attention layer notes how much everything it is given looks at everything else, (B, h, N, M)
    in float32, each row a distribution: computed anew, since a fused kernel holds no weights. Each is moved to `device`
    before the next layer computes; None: they stay where they are."""
    layers = [layer for layer in blocks.modules() if isinstance(layer, Attention | MemoryAttention)]
    found: dict[nn.Module, Tensor] = {}

    def note(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        found[layer] = layer.weights(*args, **kwargs).float().to(device)

    hooks = [layer.register_forward_pre_hook(note, with_kwargs=True) for layer in layers]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()
