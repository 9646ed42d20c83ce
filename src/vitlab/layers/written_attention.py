"""Attention written out, equation by equation, as it is taught; equal to the fused kernel.

B batch, N tokens, h heads, d head width
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def attention_weights(q: Tensor, k: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
    """A = softmax(QKᵀ/√d) (Vaswani et al., 2017, arXiv:1706.03762, equation 1; ViT equation 6).

    (B, h, N, d), (B, h, N, d) -> (B, h, N, N): row n is how token n shares out its attention, and sums to 1. Products
    of d independent terms have variance d: without the √d the softmax would be all but one-hot, and learn nothing.
    `attn_mask`, broadcast to (B, h, N, N), is true where a query may look at a key, or is added to the scores;
    `is_causal` lets token n look at tokens 0 to n. What may not be seen scores -∞, and weighs nothing; the row of a
    token that may look at none is 0, as in torch's kernel. Raises ValueError for a mask of whole numbers.
    """
    scores = (q / math.sqrt(q.shape[-1])) @ k.transpose(-2, -1)  # (B, h, N, N); there are fewer queries to divide
    if is_causal:
        scores = mask_scores(scores, causal_mask(q.shape[-2], device=q.device))
    if attn_mask is None:
        return scores.softmax(dim=-1)
    scores = mask_scores(scores, attn_mask)
    blind = scores.isneginf().all(dim=-1, keepdim=True)
    return scores.masked_fill(blind, 0).softmax(dim=-1).masked_fill(blind, 0)  # not NaN, nor in the gradient


def written_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
) -> Tensor:
    """AV, the values, each by how much it is looked at: ViT equation 7. (B, h, N, d) three times -> (B, h, N, d).

    Takes what `torch.nn.functional.scaled_dot_product_attention` takes, and gives the same.
    """
    A = attention_weights(q, k, attn_mask, is_causal)
    return F.dropout(A, dropout_p) @ v


def mask_scores(scores: Tensor, attn_mask: Tensor) -> Tensor:
    """Scores, or what is added to them, with -∞ where the mask is false; numbers in the mask are added."""
    if check_mask(attn_mask).dtype == torch.bool:
        return scores.masked_fill(~attn_mask, -math.inf)
    return scores + attn_mask


def join_masks(attn_mask: Tensor, allowed: Tensor) -> Tensor:
    """A mask, of bools or of numbers to add, and one of bools as one: a query may look where both let it."""
    return attn_mask & allowed if check_mask(attn_mask).dtype == torch.bool else mask_scores(attn_mask, allowed)


def check_mask(attn_mask: Tensor) -> Tensor:
    """The mask itself. Raises ValueError for whole numbers, which could mean either kind."""
    if attn_mask.dtype != torch.bool and not attn_mask.is_floating_point():
        raise ValueError(f"an attn_mask holds bools, or floats to add to the scores, not {attn_mask.dtype}")
    return attn_mask


def causal_mask(num_tokens: int, device: torch.device | None = None) -> Tensor:
    """True where a token may look: at itself and at those before it. -> (N, N)."""
    return torch.ones(num_tokens, num_tokens, dtype=torch.bool, device=device).tril()


def padding_mask(present: Tensor) -> Tensor:
    """Turn which tokens are there, true or false (B, N), into a mask that lets all look at them: (B, 1, 1, N), an
    `attn_mask`."""
    return present.bool()[:, None, None, :]
