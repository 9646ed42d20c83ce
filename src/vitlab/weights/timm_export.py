"""Our models as a folder of timm: timm.create_model("local-dir:FOLDER", pretrained=True)."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitlab.layers import ACTIVATIONS, AttentionPooling, LayerScale, find_exported_options
from vitlab.models import DistilledVisionTransformer
from vitlab.weights.exporting import (
    Export,
    ExportedPreprocessing,
    attention,
    collect_common,
    has,
    move_patch_bias,
    positions,
    refuse,
    require_vit,
    tensors,
)
from vitlab.weights.timm_names import NORMS

EPS = 1e-6  # eps that timm takes when a norm is named by a string, as in JSON
BASES = {1e-6: "vit_base_patch16_224", 1e-5: "vit_base_patch16_clip_224"}  # architectures, by the eps of their norms
ROTARY_BASES = {1e-6: "vit_small_patch16_rope_224", 1e-5: "vit_small_patch16_dinov3"}
GATED = "vit_giant_patch14_dinov2"  # the architecture of timm that brings a gated MLP
DISTILLED = "deit_base_distilled_patch16_224"


def export_timm(
    model: Any, class_names: list[str], preprocessing: ExportedPreprocessing, several_labels: bool = False
) -> Export:
    """Write a model in timm's form, whose files do not say whether an image may have several labels. Raises ConfigError
    for an option that timm's VisionTransformer does not have, or that JSON cannot give it."""
    model = require_vit(model)
    rotary = find_exported_options(attention(model).rel_pos, "timm_eva") is not None
    own, of_position = collect_common("timm's ViT", model, "timm_eva" if rotary else "timm_vit")
    distilled = isinstance(model, DistilledVisionTransformer)
    activation = ACTIVATIONS.get(own["mlp"])
    gated, pooled = own["mlp"] == "swiglu", type(model.attn_pool)
    bases = ROTARY_BASES if rotary else {**BASES, EPS: DISTILLED if distilled else GATED if gated else BASES[EPS]}
    named = own["norm"] != "layer_norm" or distilled or (gated and not rotary)  # timm then uses its own eps
    refuse(
        "timm's ViT",
        {
            "layer before the head (model.representation_dim)": has(model.pre_logits),
            f"norm_eps {own['norm_eps']:g} in a config.json, only {EPS:g} and mostly 1e-05 (model.norm_eps)": (
                own["norm_eps"] not in ({EPS} if named else bases)
            ),
            f"MLP of kind {own['mlp']} (model.mlp)": not gated and (activation is None or activation.timm is None),
            f"norm of kind {own['norm']} (model.norm)": own["norm"] not in NORMS.values(),
            f"pooling of kind {own['pool']} (model.pool)": vars(pooled).get("timm_name") is None,
            "MLP but gelu and swiglu beside rotary positions (model.mlp)": rotary
            and own["mlp"] not in ("gelu", "swiglu"),
            "attention pooling or distillation token beside rotary positions": rotary
            and (distilled or pooled is AttentionPooling),
            "RMSNorm beside rotary positions (model.norm)": rotary and own["norm"] != "layer_norm",
            "norm before the blocks without positions (model.pre_norm)": own["pre_norm"]
            and not model.position.shape[1],
            "gated MLP in attention pooling (model.mlp, model.pool)": gated and pooled is AttentionPooling,
            "gated MLP with a distillation token (model.mlp)": gated and distilled,
            "distillation token with registers (model.num_registers)": distilled and "reg_token" in model.state_dict(),
            "norm after pooling with a distillation token (model.fc_norm)": distilled and has(model.fc_norm),
        },
    )
    state = tensors(model)
    config = (rotary_arguments if rotary else arguments)(model, own) | of_position
    if model.position.shape[1]:
        state["pos_embed"] = positions(model)
        if own["pre_norm"]:  # timm's patches have no bias then
            state = move_patch_bias(state, model.num_prefix_tokens)
        if config["no_embed_class"]:
            state["pos_embed"] = state["pos_embed"][:, model.num_prefix_tokens :].contiguous()
    if rotary:
        state = {re.sub(r"\.ls([12])\.gamma$", r".gamma_\1", name): value for name, value in state.items()}
    height, width = model.patch_embed.image_size
    return Export(
        state,
        {
            "config.json": {
                "architecture": bases[own["norm_eps"]],
                "num_classes": model.head.out_features,
                "num_features": model.head.in_features,
                "global_pool": model.attn_pool.timm_name,
                "label_names": class_names,
                "model_args": config,
                "pretrained_cfg": {
                    "custom_load": False,
                    "input_size": [config["in_chans"], height, width],
                    "fixed_input_size": True,
                    "interpolation": preprocessing.interpolation.name.lower(),
                    "crop_pct": round(height / preprocessing.resize, 4) if preprocessing.resize else 1.0,
                    "crop_mode": "center" if preprocessing.resize else "squash",
                    "mean": list(preprocessing.mean),
                    "std": list(preprocessing.std),
                    "num_classes": model.head.out_features,
                    "pool_size": None,
                    "first_conv": "patch_embed.proj",
                    "classifier": ["head", "head_dist"] if distilled else "head",
                },
            }
        },
        {"position": "learned_1d"} if model.position.shape[1] and not rotary else {},
    )


def open_timm(folder: Path) -> Callable[[Tensor], Tensor]:
    """Open an exported folder in timm: images (B, C, H, W) -> logits (B, K). Raises ImportError without timm."""
    import timm

    model: torch.nn.Module = timm.create_model(f"local-dir:{folder}", pretrained=True)
    return model.eval()


def arguments(model: Any, own: dict[str, Any]) -> dict[str, Any]:
    """Give the keywords of timm's VisionTransformer."""
    block, embed_dim = model.blocks[0], model.cls_token.shape[-1]
    hidden = block.mlp.fc1.out_features
    ratio = hidden / embed_dim
    scale = block.ls1.scale if isinstance(block.ls1, LayerScale) else None
    counts = {name: getattr(model, name).shape[1] for name in ("cls_token", "reg_token")}
    found = {
        "img_size": list(model.patch_embed.image_size),
        "patch_size": model.patch_embed.patch_size,
        "in_chans": model.patch_embed.proj.in_channels,
        "embed_dim": embed_dim,
        "depth": model.depth,
        "num_heads": own["num_heads"],
        "mlp_ratio": ratio if int(embed_dim * ratio) == hidden else (hidden + 0.5) / embed_dim,  # timm truncates
        "qkv_bias": attention(model).qkv.bias is not None,
        "qk_norm": has(attention(model).q_norm),
        "init_values": scale,
        "no_embed_class": model.position.num_prefix_rows == 0,
        "global_pool": model.attn_pool.timm_name,
    }
    if own["norm_eps"] == EPS:
        found["norm_layer"] = next(name.lower() for name, norm in NORMS.items() if norm == own["norm"])
    if own["mlp"] in ACTIVATIONS:
        found["act_layer"] = ACTIVATIONS[own["mlp"]].timm
    if not isinstance(model, DistilledVisionTransformer):
        found |= {
            "pre_norm": own["pre_norm"],
            "class_token": bool(counts["cls_token"]),
            "reg_tokens": counts["reg_token"],
            "fc_norm": has(model.fc_norm),
        }
    return found


def rotary_arguments(model: Any, own: dict[str, Any]) -> dict[str, Any]:
    """Give the keywords of timm's Eva, which has rotary positions."""
    kept = (
        "img_size",
        "patch_size",
        "in_chans",
        "embed_dim",
        "depth",
        "num_heads",
        "qkv_bias",
        "qk_norm",
        "global_pool",
    )
    plain = arguments(model, own)
    found = {key: plain[key] for key in (*kept, "init_values", "class_token", "no_embed_class")}
    return found | {
        "mlp_ratio": model.blocks[0].mlp.fc2.in_features / found["embed_dim"],
        "swiglu_mlp": own["mlp"] == "swiglu",
        "num_reg_tokens": plain["reg_tokens"],
        "attn_type": "rope",
        "use_rot_pos_emb": True,
        "rope_rotate_half": False,
        "use_fc_norm": has(model.fc_norm),
        "use_post_transformer_norm": has(model.norm),
    }
