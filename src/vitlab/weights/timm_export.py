"""Our models as a folder of timm: timm.create_model("local-dir:FOLDER", pretrained=True)."""

from typing import Any

from vitlab.layers import AttentionPooling, ClassTokenPooling, LayerScale, MeanPooling
from vitlab.models import DistilledVisionTransformer
from vitlab.weights.exporting import Export, Preprocessing, attention, common, positions, refuse, require_vit, tensors

EPS = 1e-6  # of timm's norms, when they are named by a string, as in JSON
POOLS: dict[type, str] = {ClassTokenPooling: "token", MeanPooling: "avg", AttentionPooling: "map"}
BASE = "vit_base_patch16_224"
GATED = "vit_giant_patch14_dinov2"  # the architecture of timm that brings a gated MLP
DISTILLED = "deit_base_distilled_patch16_224"


def to_timm(model: Any, class_names: list[str], preprocessing: Preprocessing, several_labels: bool = False) -> Export:
    """timm's files do not say whether an image may have several labels. Raises ConfigError for an option that timm's
    VisionTransformer does not have, or that JSON cannot give it."""
    model = require_vit(model)
    own = common("timm's ViT", model)
    distilled = isinstance(model, DistilledVisionTransformer)
    gated, pooled = own["mlp"] == "swiglu", type(model.attn_pool)
    refuse(
        "timm's ViT",
        {
            "layer before the head (model.representation_dim)": len(list(model.pre_logits.parameters())) > 0,
            f"norm_eps {own['norm_eps']:g} in a config.json, only {EPS:g} (model.norm_eps)": own["norm_eps"] != EPS,
            "gated MLP in attention pooling (model.mlp, model.pool)": gated and pooled is AttentionPooling,
            "gated MLP with a distillation token (model.mlp)": gated and distilled,
            "distillation token with registers (model.num_registers)": distilled and "reg_token" in model.state_dict(),
            "norm after pooling with a distillation token (model.fc_norm)": distilled and has(model.fc_norm),
        },
    )
    state, config = tensors(model), arguments(model, own)
    if model.position.shape[1]:
        table = positions(model)
        state["pos_embed"] = table[:, model.num_prefix_tokens :].contiguous() if config["no_embed_class"] else table
    height, width = model.patch_embed.image_size
    return Export(
        state,
        {
            "config.json": {
                "architecture": DISTILLED if distilled else GATED if gated else BASE,
                "num_classes": model.head.out_features,
                "num_features": model.head.in_features,
                "global_pool": POOLS[pooled],
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
    )


def arguments(model: Any, own: dict[str, Any]) -> dict[str, Any]:
    """Keywords of timm's VisionTransformer."""
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
        "pos_embed": "learn" if model.position.shape[1] else "none",
        "no_embed_class": model.position.num_prefix_rows == 0,
        "global_pool": POOLS[type(model.attn_pool)],
        "norm_layer": own["norm"].replace("_", ""),
    }
    if own["mlp"] != "swiglu":
        found["act_layer"] = own["mlp"]
    if not isinstance(model, DistilledVisionTransformer):
        found |= {
            "class_token": bool(counts["cls_token"]),
            "reg_tokens": counts["reg_token"],
            "fc_norm": has(model.fc_norm),
        }
    return found


def has(layer: Any) -> bool:
    return next(layer.parameters(), None) is not None
