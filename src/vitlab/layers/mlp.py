"""The MLP of an encoder block, plain or gated.

B batch, N tokens, D embed_dim
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class MLP(nn.Module):
    """Two linear layers with a nonlinearity between, (B, N, D) -> (B, N, D).

    A GELU in ViT (section 3.1; Hendrycks & Gimpel, 2016, arXiv:1606.08415); `activation` makes another one.
    """

    def __init__(
        self, *, embed_dim: int, mlp_dim: int, drop_rate: float, activation: Callable[[], nn.Module] = nn.GELU
    ):
        super().__init__()
        self.fc1 = nn.Linear(embed_dim, mlp_dim)
        self.act = activation()
        self.drop1 = nn.Dropout(drop_rate)
        self.fc2 = nn.Linear(mlp_dim, embed_dim)
        self.drop2 = nn.Dropout(drop_rate)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop2(self.fc2(self.drop1(self.act(self.fc1(x)))))


class QuickGELU(nn.Module):
    """x·σ(1.702x), an approximation of the GELU (Hendrycks & Gimpel, 2016, section 2), which CLIP computes with."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.702 * x)


class ClippedGELU(nn.Module):
    """A GELU that goes no further than 10, for whole numbers of 8 bits (Wu et al., 2020, arXiv:2004.09602)."""

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(x).clamp(-10, 10)


class SwiGLU(nn.Module):
    """(swish(xW) ⊙ xV) W₂ (Shazeer, 2020, arXiv:2002.05202, equation 6), with W and V in one matrix `fc1`.

    (B, N, D) -> (B, N, D). `mlp_dim` is the width after the gate; two thirds of a plain MLP's keep its cost.
    """

    def __init__(self, *, embed_dim: int, mlp_dim: int, drop_rate: float):
        super().__init__()
        self.fc1 = nn.Linear(embed_dim, 2 * mlp_dim)
        self.drop1 = nn.Dropout(drop_rate)
        self.fc2 = nn.Linear(mlp_dim, embed_dim)
        self.drop2 = nn.Dropout(drop_rate)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.fc1(x).chunk(2, dim=-1)
        return self.drop2(self.fc2(self.drop1(F.silu(gate) * value)))


class Activation(NamedTuple):
    """What makes a nonlinearity, and what timm and Hugging Face call it; None where a library does not have it."""

    make: Callable[[], nn.Module]
    timm: str | None = None
    hugging_face: str | None = None


ACTIVATIONS = {
    "gelu": Activation(nn.GELU, "gelu", "gelu"),
    "gelu_tanh": Activation(partial(nn.GELU, approximate="tanh"), "gelu_tanh", "gelu_pytorch_tanh"),
    "quick_gelu": Activation(QuickGELU, "quick_gelu", "quick_gelu"),
    "gelu_10": Activation(ClippedGELU, None, "gelu_10"),
    "silu": Activation(nn.SiLU, "silu", "silu"),  # Elfwing et al., 2017, arXiv:1702.03118
    "relu": Activation(nn.ReLU, "relu", "relu"),  # the original Transformer's
}
MLPS: dict[str, Callable[..., nn.Module]] = {
    **{name: partial(MLP, activation=activation.make) for name, activation in ACTIVATIONS.items()},
    "swiglu": SwiGLU,
}


def mlp_width(embed_dim: int, mlp_ratio: float | None, mlp_dim: int | None) -> int:
    """Give the width of the hidden layer. One of both is given; a ratio is cut off, and 4.363636 of 1408 is 6143."""
    if (mlp_ratio is None) == (mlp_dim is None):
        raise ValueError("exactly one of mlp_ratio and mlp_dim must be given; set the other to null")
    width = mlp_dim if mlp_ratio is None else int(embed_dim * mlp_ratio)
    if width is None or width < 1:
        raise ValueError(f"mlp_ratio {mlp_ratio}, mlp_dim {mlp_dim}: a hidden layer of width {width} is not at least 1")
    return width
