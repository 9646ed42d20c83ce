"""Note every number on the way from an image to its class (Dosovitskiy et al., 2021, arXiv:2010.11929, equations 1-8).

C channels, P patch_size, h w grid, N patches, T tokens (prefix and patches), D embed_dim, L layers, H heads, d head
width, K classes
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vitlab.layers import Block, Grid, PatchEmbedding, RotaryPosition, compute_grid
from vitlab.models import VisionTransformer
from vitlab.views import cosine_similarity, eval_mode, relevance, rollout, why_no_relevance


def refuse_model(model: VisionTransformer) -> str | None:
    """Say which part of a model the page cannot explain; None for a model that it can."""
    if not isinstance(model.patch_embed, PatchEmbedding):
        return "it cuts no patches but begins with convolutions (patch_size=null)"
    if any(type(block) is not Block for block in model.blocks):
        return "it adds positions in every layer (position_place), where the page shows them once"
    return None


def trace(model: VisionTransformer, image: Tensor) -> dict[str, Tensor]:
    """Compute all stages of one normalised image (1, C, H, W) of any size, in float32, each by its name. Their sums are
    checked against the model's own forward pass."""
    _, grid = compute_grid(image.shape[2:], model.patch_embed.patch_size)
    with eval_mode(model):
        found = trace_stem(model, image, grid)
        z, layers, lens = found["stem"][None], [], []
        for block in model.blocks:
            lens.append(read_stream(model, z))
            layers.append(trace_block(block, z, grid))
            z = layers[-1].pop("stream")
        lens.append(read_stream(model, z))
        own = model.classify_tokens(model.forward_features(image, grid))
        assert torch.allclose(lens[-1], own, rtol=1e-3, atol=1e-3)
        found |= {name: torch.stack([layer[name] for layer in layers]) for name in layers[0]}
        if model.attn_pool.chooses:
            found["pooling"] = model.attn_pool.looks(model.norm(z))[0].mean(dim=0)  # (N,)
    weights = [layer["score"].softmax(dim=-1) for layer in layers]  # L times (H, T, T)
    share = model.attn_pool.share(weights[0].shape[-1], model.num_prefix_tokens)
    found["rollout"] = (share @ rollout(weights)[-1])[model.num_prefix_tokens :]  # (N,)
    return found | {"lens": torch.cat(lens)}  # (L + 1, K), logits


def trace_stem(model: VisionTransformer, image: Tensor, grid: Grid) -> dict[str, Tensor]:
    """Equation 1: patches, mapped linearly and by a strided convolution (N, D), what is added to them (T, D), and the
    tokens that enter the first block."""
    projected, _ = model.patch_embed(image, grid)
    proj: Any = model.patch_embed.proj
    convolved = F.conv2d(image, proj.weight, proj.bias, stride=model.patch_embed.patch_size).flatten(2).transpose(1, 2)
    stem, _ = model.embed(image, grid)
    embedded = torch.cat([model.prefix(), projected], dim=1)
    positions = model.position(model.pos_embed, grid)
    return {
        "linear": projected[0],
        "convolution": convolved[0],
        "embedded": embedded[0],
        "position": positions.expand_as(stem)[0],
        "stem": stem[0],
    }


def trace_block(block: Any, z: Tensor, grid: Grid) -> dict[str, Tensor]:
    """Equations 2, 3 and 5 to 7 of one block, for tokens (1, T, D)."""
    attention, normed = block.attn, block.norm1(z)
    q, k, v = attention.heads(normed, grid)  # (1, H, T, d)
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    bias = attention.rel_pos.bias(None, grid)
    scores = scores if bias is None else scores + bias
    output = scores.softmax(dim=-1) @ v  # (1, H, T, d)
    looked = block.ls1(attention(normed, grid))
    assert torch.allclose(block.ls1(attention.proj(output.transpose(1, 2).flatten(2))), looked, rtol=1e-3, atol=1e-3)
    between = z + looked
    thought = block.ls2(block.mlp(block.norm2(between)))
    after = block(z, grid)
    assert torch.allclose(between + thought, after, rtol=1e-3, atol=1e-3)
    lengths = torch.stack([x[0].norm(dim=-1) for x in (z, looked, between, thought, after)], dim=-1)  # (T, 5)
    found = {"q": q[0], "k": k[0], "v": v[0], "score": scores[0], "output": output[0], "length": lengths}
    return {**found, **({} if bias is None else {"bias": bias[0]}), "stream": after}


def read_stream(model: VisionTransformer, z: Tensor) -> Tensor:
    """Read tokens (1, T, D) with the last norm and the head, as if no block followed (nostalgebraist, 2020: the logit
    lens). -> (1, K)"""
    return model.classify_tokens(model.norm(z))


def compare_positions(model: VisionTransformer, grid: Grid) -> Tensor | None:
    """Compare what the positions of each two patches say (N, N), 1 for the same: the embeddings that are added, or by
    how much rotary positions turn them apart. None without positions, and for relative ones, which are a bias."""
    prefix = model.num_prefix_tokens
    with eval_mode(model):
        if model.pos_embed.numel():
            return cosine_similarity(model.position(model.pos_embed, grid)[0, prefix:])
        block: Any = model.blocks[0]
        kind = block.attn.rel_pos
        if isinstance(kind, RotaryPosition):
            angles = kind.angles(grid)[prefix:]  # (N, d/2)
            return (angles[:, None] - angles).cos().mean(dim=-1)
    return None


def trace_evidence(model: VisionTransformer, image: Tensor, classes: list[int]) -> Tensor | None:
    """Compute how much each patch speaks for each of these classes, -> (classes, N), or None where the method is not
    defined for this model."""
    if why_no_relevance(model):
        return None
    return torch.stack([relevance(model, image, k) for k in classes])
