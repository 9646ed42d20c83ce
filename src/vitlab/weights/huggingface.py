"""The names of Hugging Face's ViT, DeiT, DINOv2 and 3, CLIP and SigLIP, in files (old) and in memory (new), and the way
back."""

import re
from typing import Any

from vitlab.errors import CheckpointError
from vitlab.layers import Grid
from vitlab.weights.form import Form, StatedFacts
from vitlab.weights.renaming import (
    Rules,
    Tensors,
    add_batch_dimension,
    add_key_biases,
    rename,
    stack,
    stack_gates,
    unstack,
)
from vitlab.weights.resize import Interpolation, square

RULES: Rules = (
    (r"^(vit|deit|dinov2|dinov2_with_registers|vision_model|model)\.", ""),
    (r"^embeddings\.(cls_token|mask_token)$", r"\1"),
    (r"^embeddings\.class_embedding$", "cls_token"),
    (r"^embeddings\.distillation_token$", "dist_token"),
    (r"^embeddings\.register_tokens$", "reg_token"),
    (r"^embeddings\.(position_embeddings|position_embedding\.weight)$", "pos_embed"),
    (r"^embeddings\.patch_embedding(s\.projection|s)?\.", "patch_embed.proj."),
    (r"^(encoder\.)?layers?\.(\d+)\.", r"blocks.\2."),
    (r"\.(self_attn|attention\.attention)\.", ".attention."),
    (r"\.attention\.([qkv])(uery|ey|alue|_proj)\.", r".attn.\1."),
    (r"\.attention\.(output\.dense|o_proj|out_proj)\.", ".attn.proj."),
    (r"\.intermediate\.dense\.", ".mlp.fc1."),
    (r"^(blocks\.\d+)\.output\.dense\.", r"\1.mlp.fc2."),
    (r"\.(layernorm_before|layer_norm1)\.", ".norm1."),
    (r"\.(layernorm_after|layer_norm2)\.", ".norm2."),
    (r"\.layer_scale([12])\.lambda1$", r".ls\1.gamma"),
    (r"\.mlp\.weights_in\.", ".mlp.fc1."),
    (r"\.mlp\.gate_proj\.", ".mlp.g."),
    (r"\.mlp\.up_proj\.", ".mlp.x."),
    (r"\.mlp\.(weights_out|down_proj)\.", ".mlp.fc2."),
    (r"^pre_layrnorm\.", "norm_pre."),
    (r"^(layernorm|post_layernorm)\.", "norm."),
    (r"^head\.probe$", "attn_pool.latent"),
    (r"^head\.attention\.in_proj_", "attn_pool.qkv."),
    (r"^head\.attn\.proj\.", "attn_pool.proj."),
    (r"^head\.layernorm\.", "attn_pool.norm."),
    (r"^head\.mlp\.", "attn_pool.mlp."),
    (r"^pooler\.dense\.", "pre_logits.fc."),
    (r"^((cls_)?classifier|visual_projection)\.", "head."),
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
    (r"^pre_logits\.fc\.", "pooler.dense."),
    (r"^head\.", "classifier."),
)
ACTIVATIONS = {
    **dict.fromkeys(("gelu", "gelu_python"), "gelu"),
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_accurate", "gelu_pytorch_tanh", "gelu_python_tanh"), "gelu_tanh"),
    **dict.fromkeys(("silu", "swish"), "silu"),
    **{name: name for name in ("quick_gelu", "gelu_10", "relu")},
}
VIT = {"num_attention_heads": 12, "hidden_act": "gelu", "layer_norm_eps": 1e-12}
SIGLIP = {"num_attention_heads": 12, "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6}
DEFAULTS: dict[str, dict[str, Any]] = {  # for models that we compute in the same way: what a config.json may leave out
    **dict.fromkeys(("vit", "deit", "vit_mae"), VIT),
    "vit_msn": VIT | {"layer_norm_eps": 1e-6},
    **dict.fromkeys(("dinov2", "dinov2_with_registers"), VIT | {"layer_norm_eps": 1e-6}),
    "dinov3_vit": {"num_attention_heads": 6, "hidden_act": "gelu", "layer_norm_eps": 1e-5, "rope_theta": 100.0},
    "clip_vision_model": {"num_attention_heads": 12, "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5},
    **dict.fromkeys(("siglip_vision_model", "siglip2_vision_model"), SIGLIP),
}
BILINEAR = Interpolation(mode="bilinear", align_corners=False)  # as SigLIP 2 does
UNNORMED = "the mean of the patches without the last norm"
BESIDE = "the class token beside the mean of the patches"
READS: dict[str, str | None] = {  # what the head or pooler of a class reads; None: it has none
    **dict.fromkeys(("ViTModel", "ViTForImageClassification", "ViTMSNForImageClassification"), "cls"),
    **dict.fromkeys(("DeiTModel", "DeiTForImageClassification", "DeiTForImageClassificationWithTeacher"), "cls"),
    **dict.fromkeys(("CLIPModel", "CLIPVisionModel", "CLIPVisionModelWithProjection", "DINOv3ViTModel"), "cls"),
    **dict.fromkeys(("SiglipModel", "SiglipVisionModel", "Siglip2Model", "Siglip2VisionModel"), "map"),
    **dict.fromkeys(("SiglipForImageClassification", "Siglip2ForImageClassification"), "mean"),
    **dict.fromkeys(("Dinov2ForImageClassification", "Dinov2WithRegistersForImageClassification"), BESIDE),
    **dict.fromkeys(("ViTForMaskedImageModeling", "DeiTForMaskedImageModeling", "ViTMAEForPreTraining")),
    **dict.fromkeys(("ViTMAEModel", "ViTMSNModel", "Dinov2Model", "Dinov2WithRegistersModel")),
    **dict.fromkeys(("Dinov2Backbone", "Dinov2WithRegistersBackbone", "DINOv3ViTBackbone")),
    "CLIPForImageClassification": UNNORMED,
}
WHOLE = {"clip": "clip_vision_model", "siglip": "siglip_vision_model", "siglip2": "siglip2_vision_model"}
PATCHES = re.compile(r"embeddings\.patch_embedding(s\.projection|s)?\.weight$")


def rename_tensors(tensors: Tensors) -> Tensors:
    found = stack_gates(stack(add_key_biases(add_batch_dimension(rename(tensors, RULES))), "attn", "qkv"))
    for kind in ("weight", "bias"):
        if f"attn_pool.qkv.{kind}" in found:
            stacked = found.pop(f"attn_pool.qkv.{kind}")
            q, kv = stacked.tensor_split([len(stacked) // 3])
            found |= {f"attn_pool.q.{kind}": q, f"attn_pool.kv.{kind}": kv}
    if "head.weight" in found:  # no head of theirs reads the pooler
        found = rename(found, [(r"^pre_logits\.fc\.", "pooler.")])
    if "reg_token" in found and not found["reg_token"].numel():
        del found["reg_token"]
    kernel = found.get("patch_embed.proj.weight")
    if kernel is not None and kernel.ndim == 2 and (grid := square(kernel.shape[1] // 3)):  # SigLIP 2: (D, P·P·C)
        found["patch_embed.proj.weight"] = kernel.unflatten(1, (*grid, 3)).permute(0, 3, 1, 2)
    return found


def read_facts(tensors: Tensors) -> dict[str, Any]:
    """Tell by the names of tensors what a head reads, for files that do not say their class."""
    parts = {part for name in tensors for part in name.split(".")}
    if not parts & {"classifier", "cls_classifier", "visual_projection"}:
        return {"pool": "map"} if "probe" in parts else {}
    if "classifier" in parts and "vision_model" in parts:
        return {"pool": UNNORMED if "pre_layrnorm" in parts else "mean"}
    return {"pool": BESIDE if any(part.startswith("dinov2") for part in parts) else "cls"}


def rename_back(tensors: Tensors) -> Tensors:
    """Rename our tensors to those in the files of ViTForImageClassification."""
    return rename(unstack(tensors, "attn", "qkv"), BACK)


FORM = Form(
    name="Hugging Face",
    recognises=lambda names: any(PATCHES.search(name) for name in names),
    rename=rename_tensors,
    interpolation=Interpolation(antialias=False, align_corners=False),
    extras=r"mask_token$|pooler\.|decoder\.|text_model\.|text_projection\.|logit_(scale|bias)$",
    read_facts=read_facts,
)


def read_config(config: dict[str, Any], origin: str) -> StatedFacts:
    """Read a config.json, with the defaults of its kind of model. Raises CheckpointError for a kind that computes
    something other than our ViT, or is not known to compute the same."""
    kind, name = str(config["model_type"]), next(iter(config.get("architectures") or ()), "")
    if kind in WHOLE:  # a model of images and texts
        config = {**(config.get("vision_config") or {}), "model_type": WHOLE[kind]}
        kind = WHOLE[kind]
    if kind not in DEFAULTS:
        raise CheckpointError(
            f"{origin} is a model of kind '{kind}', which is not known to compute the same as our Vision Transformer; "
            f"the supported kinds are {', '.join(sorted({*DEFAULTS, *WHOLE}))}"
        )
    config = DEFAULTS[kind] | config
    activation = config["hidden_act"]
    rotary = "rotary_centered" if config.get("rope_theta") == 100 else f"rotary of theta {config.get('rope_theta')}"
    facts = {
        "num_heads": config["num_attention_heads"],
        "norm": "layer_norm",
        "norm_eps": config["layer_norm_eps"],
        "mlp": ACTIVATIONS.get(activation, activation),
        "position": rotary if kind == "dinov3_vit" else "learned_1d",
        "pre_norm": kind == "clip_vision_model",
    }
    if config.get("use_gated_mlp"):
        facts["mlp"] = "swiglu" if facts["mlp"] == "silu" else f"gated {activation}"
    elif config.get("use_swiglu_ffn"):
        facts["mlp"] = "swiglu"
    if name:
        facts["pool"] = READS.get(name, f"what {name} makes of the tokens")
    if config.get("pooler_act", "tanh") != "tanh" and not name.endswith("ForImageClassification"):
        facts["pool"] = f"the class token through {config['pooler_act']}"
    size, patch = (pair(config.get(key)) for key in ("image_size", "patch_size"))
    grid = (size[0] // patch[0], size[1] // patch[1]) if size and patch else square(config.get("num_patches", 0))
    return StatedFacts(facts, grid, kind == "dinov3_vit", BILINEAR if kind == "siglip2_vision_model" else None)


def pair(value: Any) -> Grid | None:
    if value is None:
        return None
    return (value, value) if isinstance(value, int) else (value[0], value[1])
