"""The pre-norm encoder block (Dosovitskiy et al., 2021, arXiv:2010.11929, figure 1 and equations 2 and 3).

B batch, N tokens, D embed_dim
"""

from torch import Tensor, nn

from vitlab.layers.attention import Attention
from vitlab.layers.drop_path import DropPath
from vitlab.layers.mlp import MLP


class Block(nn.Module):
    """Attention and MLP, each after a LayerNorm and within a residual. (B, N, D) -> (B, N, D)."""

    def __init__(
        self,
        *,
        embed_dim: int,
        num_heads: int,
        mlp_dim: int,
        qkv_bias: bool,
        drop_rate: float,
        attn_drop_rate: float,
        drop_path_rate: float,
    ):
        super().__init__()
        self.norm1 = nn.LayerNorm(embed_dim, eps=1e-6)
        self.attn = Attention(
            embed_dim=embed_dim,
            num_heads=num_heads,
            qkv_bias=qkv_bias,
            drop_rate=drop_rate,
            attn_drop_rate=attn_drop_rate,
        )
        self.drop_path1 = DropPath(drop_path_rate)
        self.norm2 = nn.LayerNorm(embed_dim, eps=1e-6)
        self.mlp = MLP(embed_dim=embed_dim, mlp_dim=mlp_dim, drop_rate=drop_rate)
        self.drop_path2 = DropPath(drop_path_rate)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop_path1(self.attn(self.norm1(x)))  # equation 2
        return x + self.drop_path2(self.mlp(self.norm2(x)))  # equation 3
