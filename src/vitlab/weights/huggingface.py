"""The names of Hugging Face's ViT, DeiT and DINOv2, in files (old) and in memory (new), and the way back."""

from typing import Any

from vitlab.layers import Grid
from vitlab.weights.form import Form
from vitlab.weights.renaming import Rules, Tensors, rename, stack, unstack
from vitlab.weights.resize import Interpolation

RULES: Rules = (
    (r"^(vit|deit|dinov2|dinov2_with_registers)\.", ""),
    (r"^embeddings\.(cls_token|mask_token)$", r"\1"),
    (r"^embeddings\.distillation_token$", "dist_token"),
    (r"^embeddings\.register_tokens$", "reg_token"),
    (r"^embeddings\.position_embeddings$", "pos_embed"),
    (r"^embeddings\.patch_embeddings\.projection\.", "patch_embed.proj."),
    (r"^(encoder\.layer|layers)\.(\d+)\.", r"blocks.\2."),
    (r"\.attention\.(attention\.)?(q)(uery|_proj)\.", r".attn.q."),
    (r"\.attention\.(attention\.)?(k)(ey|_proj)\.", r".attn.k."),
    (r"\.attention\.(attention\.)?(v)(alue|_proj)\.", r".attn.v."),
    (r"\.attention\.(output\.dense|o_proj)\.", ".attn.proj."),
    (r"\.intermediate\.dense\.", ".mlp.fc1."),
    (r"^(blocks\.\d+)\.output\.dense\.", r"\1.mlp.fc2."),
    (r"\.layernorm_before\.", ".norm1."),
    (r"\.layernorm_after\.", ".norm2."),
    (r"\.layer_scale([12])\.lambda1$", r".ls\1.gamma"),
    (r"\.mlp\.weights_in\.", ".mlp.fc1."),
    (r"\.mlp\.weights_out\.", ".mlp.fc2."),
    (r"^layernorm\.", "norm."),
    (r"^pooler\.dense\.", "pre_logits.fc."),
    (r"^(cls_)?classifier\.", "head."),
    (r"^distillation_classifier\.", "head_dist."),
)
BACK: Rules = (
    (r"^(cls_token)$", r"vit.embeddings.\1"),
    (r"^pos_embed$", "vit.embeddings.position_embeddings"),
    (r"^patch_embed\.proj\.", "vit.embeddings.patch_embeddings.projection."),
    (r"\.attn\.q\.", ".attention.attention.query."),
    (r"\.attn\.k\.", ".attention.attention.key."),
    (r"\.attn\.v\.", ".attention.attention.value."),
    (r"\.attn\.proj\.", ".attention.output.dense."),
    (r"\.mlp\.fc1\.", ".intermediate.dense."),
    (r"\.mlp\.fc2\.", ".output.dense."),
    (r"\.norm1\.", ".layernorm_before."),
    (r"\.norm2\.", ".layernorm_after."),
    (r"^blocks\.", "vit.encoder.layer."),
    (r"^norm\.", "vit.layernorm."),
    (r"^head\.", "classifier."),
)
ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu"}


def renamed(tensors: Tensors) -> Tensors:
    return stack(rename(tensors, RULES), "attn", "qkv")


def back(tensors: Tensors) -> Tensors:
    """Ours as ViTForImageClassification's files have them."""
    return rename(unstack(tensors, "attn", "qkv"), BACK)


FORM = Form(
    name="Hugging Face",
    recognises=lambda names: any(name.endswith("embeddings.patch_embeddings.projection.weight") for name in names),
    renamed=renamed,
    interpolation=Interpolation(antialias=False, align_corners=False),
    extras=r"mask_token$",
)


def stated(config: dict[str, Any]) -> tuple[dict[str, Any], Grid | None]:
    """Facts and grid that a config.json states."""
    keys = {"num_attention_heads": "num_heads", "layer_norm_eps": "norm_eps"}
    facts = {ours: config[theirs] for theirs, ours in keys.items() if theirs in config}
    if config.get("use_swiglu_ffn"):
        facts["mlp"] = "swiglu"
    elif "hidden_act" in config:
        facts["mlp"] = ACTIVATIONS.get(config["hidden_act"], config["hidden_act"])
    size, patch = (pair(config.get(key)) for key in ("image_size", "patch_size"))
    return facts, (size[0] // patch[0], size[1] // patch[1]) if size and patch else None


def pair(value: Any) -> Grid | None:
    if value is None:
        return None
    return (value, value) if isinstance(value, int) else (value[0], value[1])
