"""Our models as Hugging Face's image towers: CLIPVisionModel, SiglipVisionModel and DINOv3ViTModel, which give features
(pooler_output) and have no head.

T tokens, N patches, D embed_dim
"""

from typing import Any

import torch
from torch import Tensor

from vitlab.layers import ACTIVATIONS, AttentionPooling, ClassTokenPooling, find_exported_options
from vitlab.models import VisionTransformer
from vitlab.weights.exporting import (
    attention,
    collect_common,
    has,
    merge_layer_scale,
    move_patch_bias,
    positions,
    refuse,
    tensors,
)
from vitlab.weights.renaming import Rules, Tensors, rename, separate, unstack

CLASSES = {"clip_vision_model": "CLIPVisionModel", "siglip_vision_model": "SiglipVisionModel"}
CLASSES["dinov3_vit"] = "DINOv3ViTModel"
CLIP: Rules = (  # and SigLIP
    (r"^cls_token$", "embeddings.class_embedding"),
    (r"^pos_embed$", "embeddings.position_embedding.weight"),
    (r"^patch_embed\.proj\.", "embeddings.patch_embedding."),
    (r"^blocks\.", "encoder.layers."),
    (r"\.attn\.([qkv])\.", r".self_attn.\1_proj."),
    (r"\.attn\.proj\.", ".self_attn.out_proj."),
    (r"\.norm([12])\.", r".layer_norm\1."),
    (r"^norm_pre\.", "pre_layrnorm."),
    (r"^norm\.", "post_layernorm."),
    (r"^attn_pool\.latent$", "head.probe"),
    (r"^attn_pool\.in_proj\.", "head.attention.in_proj_"),
    (r"^attn_pool\.proj\.", "head.attention.out_proj."),
    (r"^attn_pool\.norm\.", "head.layernorm."),
    (r"^attn_pool\.mlp\.", "head.mlp."),
)
DINOV3: Rules = (
    (r"^cls_token$", "embeddings.cls_token"),
    (r"^reg_token$", "embeddings.register_tokens"),
    (r"^mask_token$", "embeddings.mask_token"),
    (r"^patch_embed\.proj\.", "embeddings.patch_embeddings."),
    (r"^blocks\.", "layer."),
    (r"\.attn\.([qkv])\.", r".attention.\1_proj."),
    (r"\.attn\.proj\.", ".attention.o_proj."),
    (r"\.ls([12])\.gamma$", r".layer_scale\1.lambda1"),
    (r"\.mlp\.g\.", ".mlp.gate_proj."),
    (r"\.mlp\.(fc1|x)\.", ".mlp.up_proj."),
    (r"\.mlp\.fc2\.", ".mlp.down_proj."),
)


def choose_tower(model: VisionTransformer) -> str | None:
    """Choose the kind of tower that computes what a model does; None: a plain ViT."""
    if find_exported_options(attention(model).rel_pos, "dinov3_vit") is not None:
        return "dinov3_vit"
    if has(model.norm_pre):
        return "clip_vision_model"
    return "siglip_vision_model" if type(model.attn_pool) is AttentionPooling else None


def tower(model: Any, kind: str) -> tuple[Tensors, dict[str, Any], dict[str, Any]]:
    """Give a tower's tensors and config, and the options of ours that compute the same. Raises ConfigError for an
    option that this kind of tower does not have."""
    own, of_position = collect_common(f"Hugging Face's {CLASSES[kind]}", model, kind)
    D, is_dinov3, gated = model.cls_token.shape[-1], kind == "dinov3_vit", own["mlp"] == "swiglu"
    height, width = model.patch_embed.image_size
    activation = "silu" if gated and is_dinov3 else own["mlp"]
    hidden_act = ACTIVATIONS[activation].hugging_face if activation in ACTIVATIONS else None
    pooling = AttentionPooling if "siglip" in kind else ClassTokenPooling
    refuse(
        f"Hugging Face's {CLASSES[kind]}",
        {
            f"pooling of kind {own['pool']} (model.pool)": type(model.attn_pool) is not pooling,
            "class token (model.class_token)": "siglip" in kind and model.num_prefix_tokens > 0,
            "registers (model.num_registers)": not is_dinov3 and model.reg_token.shape[1] > 0,
            "norm before the blocks (model.pre_norm)": own["pre_norm"] and kind != "clip_vision_model",
            "norm after pooling (model.fc_norm)": "siglip" in kind and has(model.fc_norm),
            f"MLP of kind {own['mlp']} (model.mlp)": hidden_act is None,
            "images that are not square (model.image_size)": height != width,
            f"norm of kind {own['norm']} (model.norm)": own["norm"] != "layer_norm",
            "norm of queries and keys (model.qk_norm)": has(attention(model).q_norm),
            "layer before the head (model.representation_dim)": has(model.pre_logits),
            "distillation token": hasattr(model, "head_dist"),
        },
    )
    state = {name: value for name, value in tensors(model).items() if not name.startswith("head.")}
    state = {name.replace("fc_norm.", "norm."): value for name, value in state.items()}
    config = {
        "architectures": [CLASSES[kind]],
        "model_type": kind,
        "hidden_size": D,
        "num_hidden_layers": model.depth,
        "num_attention_heads": own["num_heads"],
        "intermediate_size": model.blocks[0].mlp.fc2.in_features,
        "hidden_act": hidden_act,
        "layer_norm_eps": own["norm_eps"],
        "image_size": height,
        "patch_size": model.patch_embed.patch_size,
        "num_channels": model.patch_embed.proj.in_channels,
    }
    if is_dinov3:
        state, config = dinov3(model, own, state, config | of_position | {"use_gated_mlp": gated})
        return state, config, {} if has(model.blocks[0].ls1) else {"layer_scale": 1.0}
    state = merge_layer_scale(state) | {"pos_embed": positions(model)}
    if own["pre_norm"]:
        state = move_patch_bias(state, model.num_prefix_tokens)
        state["cls_token"] = state["cls_token"].flatten()
    state["pos_embed"] = state["pos_embed"][0]
    for part in ("weight", "bias") if "siglip" in kind else ():
        state[f"attn_pool.in_proj.{part}"] = torch.cat([state.pop(f"attn_pool.{name}.{part}") for name in ("q", "kv")])
    options = {"position": "learned_1d", "embed_prefix": True, "layer_scale": None, "qkv_bias": True}
    return rename(unstack(add_biases(state), "attn", "qkv"), CLIP), config, options


def dinov3(model: Any, own: dict[str, Any], state: Tensors, config: dict[str, Any]) -> tuple[Tensors, dict[str, Any]]:
    D = model.cls_token.shape[-1]
    state = unstack(separate(state, own["num_heads"]), "attn", "qkv")
    state |= {
        f"blocks.{i}.ls{k}.gamma": torch.ones(D)
        for i in range(model.depth)
        for k in (1, 2)
        if not has(model.blocks[i].ls1)
    }
    if config["use_gated_mlp"]:
        state = unstack({name.replace(".mlp.fc1.", ".mlp.gx."): value for name, value in state.items()}, "mlp", "gx")
    biased = any(name.endswith("attn.q.bias") for name in state)
    state |= {"mask_token": torch.zeros(1, 1, D), "reg_token": model.reg_token.detach().cpu()}
    config |= dict.fromkeys(("query_bias", "key_bias", "value_bias"), biased)
    return rename(state, DINOV3), config | {"num_register_tokens": model.reg_token.shape[1]}


def add_biases(state: Tensors) -> Tensors:
    """Add zeros for queries, keys and values without a bias, which CLIP's always have."""
    zeros: dict[str, Tensor] = {
        name.replace(".weight", ".bias"): value.new_zeros(len(value))
        for name, value in state.items()
        if name.endswith(".qkv.weight")
    }
    return zeros | state
