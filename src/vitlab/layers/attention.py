"""Multi-head self-attention (Vaswani et al., 2017, arXiv:1706.03762, section 3.2; ViT appendix A).

B batch, N tokens, D embed_dim, h heads, d head width (D/h)
"""

import math
from collections.abc import Callable
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.layers.exports import WITH_TABLES, Exports
from vitlab.layers.mixed_grids import Grids
from vitlab.layers.written_attention import attention_weights, causal_mask, check_mask, join_masks, written_attention


def fused_attention(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None, dropout_p: float, is_causal: bool
) -> Tensor:
    """AV by torch's kernel, which never holds A. (B, h, N, d) three times -> (B, h, N, d). Raises ValueError for a mask
    of whole numbers."""
    if attn_mask is not None:  # with it, the kernel takes no is_causal
        attn_mask = join_masks(attn_mask, causal_mask(q.shape[-2], q.device)) if is_causal else check_mask(attn_mask)
        is_causal = False
    return F.scaled_dot_product_attention(q, k, v, attn_mask, dropout_p, is_causal)


def auto_attention(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None, dropout_p: float, is_causal: bool
) -> Tensor:
    """AV by the faster of both ways."""
    way = written_attention if is_written_faster(v, q.shape[-2]) else fused_attention
    return way(q, k, v, attn_mask, dropout_p, is_causal)


def is_written_faster(v: Tensor, num_queries: int) -> bool:
    """Whether the equations one by one take less time than torch's kernel, as measured in
    experiments/benchmarks/attention.md: on a CPU they do for a single query of many keys, and where products of
    matrices go through bfloat16, until the N·N weights outgrow the caches. In bfloat16 they round the scores, and their
    error is twice the kernel's: 0.4 % for 65 tokens."""
    if v.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    if num_queries == 1 and v.shape[-2] >= 32:
        return True
    if v.dtype == torch.bfloat16:
        return v.shape[-2] <= 640
    through_bf16 = torch.backends.mkldnn.matmul.fp32_precision == "bf16"  # type: ignore[attr-defined]
    return through_bf16 and v.shape[-2] <= 256


PRODUCTS: dict[str, Callable[..., Tensor]] = {
    "auto": auto_attention,
    "fused": fused_attention,
    "written": written_attention,
}


def split(x: Tensor, num_heads: int) -> Tensor:
    """The width of each token shared out among the heads. (B, N, D) -> (B, h, N, d)"""
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


class CancelScaling(nn.Module):
    """Queries (…, d) times √d, by which attention divides again: what is left is softmax(QKᵀ)V."""

    def forward(self, q: Tensor) -> Tensor:
        return q * math.sqrt(q.shape[-1])


class NoPosition(nn.Module):
    """Attention that does not know where its tokens lie; relative and rotary positions take its place. `exports`: which
    models of other libraries compute such positions; each class declares its own."""

    exports: ClassVar[Exports] = {"timm_vit": {}, **WITH_TABLES}

    def rotate(self, q: Tensor, k: Tensor, grid: Grids | None) -> tuple[Tensor, Tensor]:
        """Return queries and keys (B, h, N, d) with positions applied."""
        return q, k

    def bias(self, attn_mask: Tensor | None, grid: Grids | None) -> Tensor | None:
        """Return what is added to the scores, the mask included."""
        return attn_mask


class Attention(nn.Module):
    """softmax(QKᵀ/√d)V in each of h heads, then one linear map (ViT equations 5 to 8). (B, N, D) -> (B, N, D).

    One matrix gives Q, K and V. `product` is "fused" (torch's kernel), "written" (the equations, one by one) or "auto"
    (the faster of them). `qk_norm`, if given, makes a norm of width d for each of Q and K (Henry et al., 2020,
    arXiv:2010.04245). `position` may rotate Q and K, or bias the scores. `attn_drop_rate` drops attention weights,
    `drop_rate` values of the output. Raises ValueError if h does not divide D.
    """

    def __init__(
        self,
        *,
        embed_dim: int,
        num_heads: int,
        qkv_bias: bool,
        qk_norm: Callable[[int], nn.Module] | None = None,
        product: str = "auto",
        position: NoPosition | None = None,
        drop_rate: float = 0.0,
        attn_drop_rate: float = 0.0,
    ):
        super().__init__()
        if num_heads < 1 or embed_dim % num_heads:
            raise ValueError(f"embed_dim {embed_dim} is not a multiple of num_heads {num_heads}")
        if product not in PRODUCTS:
            raise ValueError(f"attention '{product}' is not one of: {', '.join(PRODUCTS)}")
        self.num_heads = num_heads
        self.attn_drop_rate = attn_drop_rate
        self.product = PRODUCTS[product]
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim, bias=qkv_bias)
        self.q_norm = qk_norm(embed_dim // num_heads) if qk_norm else nn.Identity()
        self.k_norm = qk_norm(embed_dim // num_heads) if qk_norm else nn.Identity()
        self.rel_pos = position or NoPosition()
        self.proj = nn.Linear(embed_dim, embed_dim)
        self.proj_drop = nn.Dropout(drop_rate)

    def forward(
        self, x: Tensor, grid: Grids | None = None, attn_mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        """`grid` (h, w) says how the patches among the tokens lie; None: as the model was made for. That of mixed grids
        hides nothing by itself: `mask_padding` makes the mask. `attn_mask` is broadcast to (B, h, N, N): true where a
        query may look at a key, or numbers added to the scores. `is_causal` lets each token look at itself and those
        before it. They mean what they mean in torch's own attention, and may come together."""
        q, k, v = self.heads(x, grid)
        dropout_p = self.attn_drop_rate if self.training else 0.0
        x = self.product(q, k, v, self.rel_pos.bias(attn_mask, grid), dropout_p, is_causal)
        x = x.transpose(1, 2).flatten(2)  # (B, N, D)
        return self.proj_drop(self.proj(x))

    def heads(self, x: Tensor, grid: Grids | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of each head, equation 5. (B, N, D) -> 3 x (B, h, N, d)."""
        parts = self.qkv(x).chunk(3, dim=-1)  # each (B, N, D)
        q, k, v = (split(part, self.num_heads) for part in parts)  # each (B, h, N, d)
        return *self.rel_pos.rotate(self.q_norm(q), self.k_norm(k), grid), v

    def weights(
        self, x: Tensor, grid: Grids | None = None, attn_mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        """Compute how much each token looks at each other one, anew, since a fused kernel never holds it: equation 6.
        (B, N, D) -> (B, h, N, N), each row a distribution."""
        q, k, _ = self.heads(x, grid)
        return attention_weights(q, k, self.rel_pos.bias(attn_mask, grid), is_causal)
