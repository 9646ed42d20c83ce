"""The blocks of the Transformer for texts (Vaswani et al., 2017, arXiv:1706.03762, figure 1), with the norms after the
residuals as there, or before attention and MLP as in ViT (Xiong et al., 2020, arXiv:2002.04745, figure 1).

R sequences, M tokens, B memories, D embed_dim
"""

from collections.abc import Callable

from torch import Tensor, nn

from vitlab.layers.key_value_cache import Memory, NoCache


class EncoderBlock(nn.Module):
    """Attention and MLP, each within a residual and before a norm: figure 1, left. (B, M, D) -> (B, M, D).

    `norm` makes a layer each time it is called.
    """

    def __init__(self, *, attention: nn.Module, mlp: nn.Module, norm: Callable[[], nn.Module]):
        super().__init__()
        self.attn = attention
        self.norm1 = norm()
        self.mlp = mlp
        self.norm2 = norm()

    def forward(self, x: Tensor, sequence: NoCache) -> Tensor:
        x = self.norm1(x + self.attn(x, sequence))
        return self.norm2(x + self.mlp(x))


class PreNormEncoderBlock(EncoderBlock):
    def forward(self, x: Tensor, sequence: NoCache) -> Tensor:
        x = x + self.attn(self.norm1(x), sequence)
        return x + self.mlp(self.norm2(x))


class DecoderBlock(nn.Module):
    """Attention to what is written so far, attention to what was read, and an MLP: figure 1, right.
    (R, M, D) -> (R, M, D)."""

    def __init__(
        self, *, attention: nn.Module, cross_attention: nn.Module, mlp: nn.Module, norm: Callable[[], nn.Module]
    ):
        super().__init__()
        self.attn = attention
        self.norm1 = norm()
        self.cross_attn = cross_attention
        self.norm2 = norm()
        self.mlp = mlp
        self.norm3 = norm()

    def forward(self, x: Tensor, sequence: NoCache, memory: Memory) -> Tensor:
        x = self.norm1(x + self.attn(x, sequence))
        x = self.norm2(x + self.cross_attn(x, memory))
        return self.norm3(x + self.mlp(x))


class PreNormDecoderBlock(DecoderBlock):
    def forward(self, x: Tensor, sequence: NoCache, memory: Memory) -> Tensor:
        x = x + self.attn(self.norm1(x), sequence)
        x = x + self.cross_attn(self.norm2(x), memory)
        return x + self.mlp(self.norm3(x))
