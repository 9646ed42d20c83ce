"""Which patches speak for a class: attention weighted by the gradient of the class's logit (Chefer et al., 2021,
arXiv:2012.09838, equations 13 and 14), with the attention itself in place of its layer-wise relevance, as in the
authors' later arXiv:2103.15679, equations 5 and 6.

K classes, L layers, N patches, T tokens, h heads
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from vitlab.layers import Attention
from vitlab.layers.written_attention import attention_weights
from vitlab.models import DistilledVisionTransformer, VisionTransformer
from vitlab.models.activation_checkpointing import keep_activations
from vitlab.views.capture import eval_mode


def why_no_relevance(model: VisionTransformer) -> str | None:
    """Say what keeps a model from this view; None for one that reads its class token, or the mean of patches."""
    if model.attn_pool.chooses:
        return "it is defined where a class token or the mean of the patches is read, and this model pools by attention"
    if isinstance(model, DistilledVisionTransformer):
        return "it is defined where one token is read, and this model reads two, one for its teacher"
    return None


def relevance(model: VisionTransformer, image: Tensor, k: int) -> Tensor:
    """Compute how much each patch of an image (1, C, H, W) speaks for class k -> (N,), none below 0, on the CPU.

    The row of C for the class token, or the mean of the patches' rows where the head reads their mean, less what a
    token is itself: of a mean, all patches are as large a part before any attention.
    """
    with torch.inference_mode(False):  # in which Lightning tests
        weights, logits = capture_layers(model, image)
        slopes = torch.autograd.grad(logits[0, k], weights)
    joint = combine_relevance([a[0].float().cpu() for a in weights], [g[0].float().cpu() for g in slopes])
    prefix = model.num_prefix_tokens
    share = model.attn_pool.share(len(joint), prefix)
    return (share @ joint - share)[prefix:].detach()


def capture_layers(model: VisionTransformer, image: Tensor) -> tuple[list[Tensor], Tensor]:
    """The attention A of each layer, L times (1, h, T, T), of which the logits (1, K) are a function."""
    kept: list[Tensor] = []

    def product(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None, dropout_p: float, is_causal: bool) -> Any:
        kept.append(attention_weights(q, k, attn_mask, is_causal))
        return kept[-1] @ v

    layers = [module for module in model.blocks.modules() if isinstance(module, Attention)]
    before = [layer.product for layer in layers]
    try:
        for layer in layers:
            layer.product = product
        with eval_mode(model), keep_activations(model), torch.enable_grad():
            logits = model.classify_tokens(model.forward_features(image.detach().clone().requires_grad_()))
    finally:
        for layer, own in zip(layers, before, strict=True):
            layer.product = own
    return kept, logits


def combine_relevance(weights: Sequence[Tensor], slopes: Sequence[Tensor]) -> Tensor:
    """Ā(l) = I + E_h[(∇A(l) ⊙ A(l))⁺], equation 13, and C = Ā(L) … Ā(2) Ā(1), equation 14: the first layer acts first.

    L times (h, T, T), twice -> (T, T): row t says what has come from each token of the input to token t.
    """
    joint = torch.eye(weights[0].shape[-1])
    for A, slope in zip(weights, slopes, strict=True):
        joint = joint + (slope * A).clamp_min(0).mean(dim=0) @ joint
    return joint
