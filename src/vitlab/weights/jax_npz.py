"""Google Research's .npz files: vision_transformer (ViT, AugReg) and big_vision, whose numbering differs a little.

A kernel of flax is (in, out), of a convolution (P, P, C, D), of a head's Q, K and V (D, h, d), and of what joins the
heads (h, d, D).

P patch_size, C channels, D embed_dim, h heads, d head width
"""

from typing import Any

from torch import Tensor

from vitlab.errors import CheckpointError
from vitlab.weights.form import Form
from vitlab.weights.renaming import Rules, Tensors, rename, stack
from vitlab.weights.resize import Interpolation

PREFIXES = ("opt/target/", "params/img/", "params/", "")
ATTENTION = r"MultiHeadDotProductAttention_[01]/"
RULES: Rules = (
    (r"^cls$", "cls_token"),
    (r"^(Transformer/posembed_input/)?pos_embedding$", "pos_embed"),
    (r"^embedding/", "patch_embed.proj."),
    (r"^pre_logits/", "pre_logits.fc."),
    (r"^head/", "head."),
    (r"^Transformer/encoder_norm/", "norm."),
    (r"^Transformer/encoderblock_(\d+)/", r"blocks.\1."),
    (r"^MAPHead_0/probe$", "attn_pool.latent"),
    (rf"^MAPHead_0/({ATTENTION})?LayerNorm_0/", "attn_pool.norm."),
    (r"^MAPHead_0/", "attn_pool."),
    (rf"attn_pool\.{ATTENTION}", "attn_pool."),
    (ATTENTION, "attn."),
    (r"LayerNorm_0/", "norm1."),
    (r"LayerNorm_[12]/", "norm2."),
    (r"MlpBlock_[03]/Dense_0/", "mlp.fc1."),
    (r"MlpBlock_[03]/Dense_1/", "mlp.fc2."),
    (r"(query)/", "q."),
    (r"(key)/", "k."),
    (r"(value)/", "v."),
    (r"(out)/", "proj."),
    (r"(kernel|scale)$", "weight"),
)


def find_prefix(names: set[str]) -> str | None:
    return next((prefix for prefix in PREFIXES if f"{prefix}embedding/kernel" in names), None)


def rename_tensors(tensors: Tensors) -> Tensors:
    prefix = find_prefix(set(tensors)) or ""
    own = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
    own = {name: transpose(name, value) for name, value in unroll_blocks(own).items()}
    return stack(stack(rename(own, RULES), "attn", "qkv"), "attn_pool", "kv")


def unroll_blocks(tensors: Tensors) -> Tensors:
    """Split the arrays in which flax keeps scanned blocks, the block being the first dimension."""
    scanned = "Transformer/encoderblock/"
    out: Tensors = {}
    for name, value in tensors.items():
        if name.startswith(scanned):
            rest = name.removeprefix(scanned)
            out |= {f"Transformer/encoderblock_{i}/{rest}": part for i, part in enumerate(value)}
        else:
            out[name] = value
    return out


def transpose(name: str, value: Tensor) -> Tensor:
    *_, layer, kind = ["", *name.split("/")]
    if layer in ("query", "key", "value"):
        return value.flatten(1).T if kind == "kernel" else value.flatten()
    if kind != "kernel":
        return value
    if layer == "out":
        return value.flatten(0, 1).T
    if value.ndim not in (2, 4):
        raise CheckpointError(f"the array {name} has {value.ndim} dimensions, but a kernel of a ViT has 2 or 4")
    return value.permute(3, 2, 0, 1) if value.ndim == 4 else value.T


def read_facts(tensors: Tensors) -> dict[str, Any]:
    """Read the number of heads off the shape of a query's kernel, and the pooling off its tensors: a model without
    attention pooling and class token averages."""
    prefix = find_prefix(set(tensors)) or ""
    mapped = any(name.startswith(f"{prefix}MAPHead_0/") for name in tensors)
    facts: dict[str, Any] = {"pool": "map" if mapped else "cls" if f"{prefix}cls" in tensors else "mean"}
    for name, value in tensors.items():
        if name.endswith("/query/kernel") and "encoderblock" in name:
            return facts | {"num_heads": int(value.shape[-2])}
    return facts


FORM = Form(
    name="JAX",
    recognises=lambda names: find_prefix(names) is not None,
    rename=rename_tensors,
    interpolation=Interpolation("bilinear", antialias=False),
    facts={"norm_eps": 1e-6},
    read_facts=read_facts,
)
