"""Multi-head self-attention (Vaswani et al., 2017, arXiv:1706.03762, section 3.2; ViT appendix A).

B batch, N tokens, D embed_dim, h heads, d head width (D/h)
"""

import torch.nn.functional as F
from torch import Tensor, nn


class Attention(nn.Module):
    """softmax(QKᵀ/√d)V in each of h heads, then one linear map (ViT equations 5 to 8). (B, N, D) -> (B, N, D).

    One matrix gives Q, K and V; the product runs in torch's fused kernel. `attn_drop_rate` drops attention
    weights, `drop_rate` values of the output. Raises ValueError if h does not divide D.
    """

    def __init__(self, *, embed_dim: int, num_heads: int, qkv_bias: bool, drop_rate: float, attn_drop_rate: float):
        super().__init__()
        if num_heads < 1 or embed_dim % num_heads:
            raise ValueError(f"embed_dim {embed_dim} is not a multiple of num_heads {num_heads}")
        if not 0 <= attn_drop_rate < 1:
            raise ValueError(f"attn_drop_rate {attn_drop_rate} is not in [0, 1)")
        self.num_heads = num_heads
        self.attn_drop_rate = attn_drop_rate
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim, bias=qkv_bias)
        self.proj = nn.Linear(embed_dim, embed_dim)
        self.proj_drop = nn.Dropout(drop_rate)

    def forward(self, x: Tensor) -> Tensor:
        B, N, D = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, self.num_heads, D // self.num_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # each (B, h, N, d)
        x = F.scaled_dot_product_attention(q, k, v, dropout_p=self.attn_drop_rate if self.training else 0.0)
        x = x.transpose(1, 2).reshape(B, N, D)
        return self.proj_drop(self.proj(x))
