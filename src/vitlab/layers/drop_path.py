"""Stochastic depth (Huang et al., 2016, arXiv:1603.09382).

B batch
"""

from collections.abc import Callable

from torch import Tensor, nn

DROP_PATH_SHAPES: dict[str, Callable[[int, int], float]] = {  # the share of the rate that a block of so many has
    "linear": lambda layer, depth: layer / max(depth - 1, 1),
    "constant": lambda layer, depth: 1.0,
}


class DropPath(nn.Module):
    """Drop the whole residual branch of a sample with probability `rate`, and scale the others by 1/(1 - rate).

    (B, ...) -> (B, ...); the identity when evaluating. Raises ValueError if `rate` is not in [0, 1).
    """

    def __init__(self, rate: float):
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0:
            return x
        keep = x.new_empty(x.shape[0], *[1] * (x.ndim - 1)).bernoulli_(1 - self.rate)
        return x * keep / (1 - self.rate)
