"""Merge similar tokens between attention and MLP of each block (ToMe; Bolya et al., 2023, arXiv:2210.09461).

B batch, N patches, T tokens (P prefix tokens and the patches), D embed_dim, h heads, d head width, r merged patches
"""

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.models import DistilledVisionTransformer, VisionTransformer


class TokenMerging(nn.Module):
    """A finished Vision Transformer, each of whose blocks merges `num_merged` (r) patches into similar ones. Images
    (B, C, H, W) -> logits (B, K).

    Class token and registers are never merged. A merged patch counts as many times as it has parts: attention adds the
    logarithm of that size to the scores (section 3, proportional attention), and mean pooling is weighted by it. Works
    on a copy in evaluation mode. Raises ValueError for a model whose tokens cannot be merged.
    """

    def __init__(self, model: nn.Module, num_merged: int):
        super().__init__()
        if (reason := explain_unmergeable(model)) is not None:
            raise ValueError(reason)
        self.model: Any = copy.deepcopy(model).eval()
        self.num_merged = num_merged

    def forward(self, x: Tensor) -> Tensor:
        model = self.model
        x, _ = model.embed(x)
        size = None  # of each token, (B, T, 1); None as long as nothing is merged
        for block in model.blocks:
            x, size = self.run_block(block, x, size)
        return self.classify_tokens(model.norm(x), size)

    def run_block(self, block: Any, x: Tensor, size: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Compute equations 2 and 3 of the ViT paper, and merge between them. (B, T, D) -> (B, T-r, D)"""
        y, keys = attend(block.attn, block.norm1(x), size)
        x = x + block.ls1(y)
        x, size = merge_tokens(x, keys, size, self.num_merged, self.model.num_prefix_tokens)
        return x + block.ls2(block.mlp(block.norm2(x))), size

    def classify_tokens(self, x: Tensor, size: Tensor | None) -> Tensor:
        """Tokens (B, T, D) -> logits (B, K)"""
        model, P = self.model, self.model.num_prefix_tokens
        logits: Tensor
        if size is None or model.attn_pool.needs_class_token:
            logits = model.classify_tokens(x)
        else:
            mean = (x * size)[:, P:].sum(dim=1) / size[:, P:].sum(dim=1)  # (B, D)
            logits = model.head(model.pre_logits(model.fc_norm(mean)))
        return logits

    def get_classifier(self) -> tuple[nn.Linear, ...]:
        """Name the heads, as models of timm do, for what reads the features before them."""
        return tuple(self.model.heads())


def explain_unmergeable(model: nn.Module) -> str | None:
    """Say in one sentence why the tokens of a model cannot be merged; None if they can."""
    if not isinstance(model, VisionTransformer) or type(model) not in (VisionTransformer, DistilledVisionTransformer):
        return f"token merging needs a plain Vision Transformer, not {type(model).__name__}"
    if model.positions_in_blocks:
        return "positions act in each block, where a merged token has none"
    if model.attn_pool.timm_name not in ("token", "avg"):
        return f"{type(model.attn_pool).__name__} does not know the sizes of merged tokens"
    return None


def attend(attention: Any, x: Tensor, size: Tensor | None) -> tuple[Tensor, Tensor]:
    """Attend with scores plus log(size): softmax(QKᵀ/√d + log s). -> (B, T, D), and the keys averaged over the heads
    (B, T, d), by which tokens are compared."""
    q, k, v = attention.heads(x, None)
    bias = None if size is None else size.log()[:, None, None, :, 0]  # (B, 1, 1, T)
    y = attention.product(q, k, v, bias if bias is None else bias.to(q.dtype), 0.0, False)
    return attention.proj(y.transpose(1, 2).flatten(2)), k.mean(dim=1)


def merge_tokens(
    x: Tensor, keys: Tensor, size: Tensor | None, num_merged: int, num_prefix_tokens: int
) -> tuple[Tensor, Tensor | None]:
    """Merge r patches by bipartite soft matching (section 3): every second patch proposes its most similar one among
    the others, by the cosine of their keys, and the r most similar pairs become one, their mean weighted by size. At
    most half of the patches are merged. (B, T, D), (B, T, d), (B, T, 1) -> (B, T-r, D), (B, T-r, 1)"""
    P, D = num_prefix_tokens, x.shape[-1]
    r = min(num_merged, (x.shape[1] - P) // 2)
    if r < 1:
        return x, size
    size = torch.ones_like(x[..., :1]) if size is None else size
    keys = F.normalize(keys[:, P:], dim=-1)
    similarity, partner = (keys[:, 1::2] @ keys[:, ::2].transpose(-2, -1)).max(dim=-1)  # (B, N/2) each
    order = similarity.argsort(dim=-1, descending=True)[..., None]  # (B, N/2, 1)
    merged, kept = order[:, :r], order[:, r:].sort(dim=1).values
    target = partner[..., None].gather(1, merged)  # (B, r, 1)

    def join(values: Tensor, width: int) -> Tensor:
        """Add those of the merged patches to their partners'. (B, T, width) -> (B, T-r, width)"""
        prefix, patches = values[:, :P], values[:, P:]
        proposing, others = patches[:, 1::2], patches[:, ::2]
        moved = proposing.gather(1, merged.expand(-1, -1, width))
        others = others.scatter_add(1, target.expand(-1, -1, width), moved)
        return torch.cat([prefix, proposing.gather(1, kept.expand(-1, -1, width)), others], dim=1)

    sums, size = join(x * size, D), join(size, 1)
    return sums / size, size
