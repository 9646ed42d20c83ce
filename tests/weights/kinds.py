"""The kinds of models in transformers that see patches, and what becomes of a tiny one with random weights."""

import json

import torch
import transformers
from foreign import images, loaded, randomized
from safetensors.torch import save_file

from vitlab.errors import CheckpointError
from vitlab.models import DistilledVisionTransformer, VisionTransformer
from vitlab.weights.huggingface import DEFAULTS, WHOLE

SHAPE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
SQUARE = {**SHAPE, "patch_size": 4, "image_size": 32}
DINOV2 = {**SQUARE, "mlp_ratio": 2}
TEXT = SHAPE | {"vocab_size": 10, "eos_token_id": 1, "projection_dim": 7}
OURS = {"mlp_ratio": None, "mlp_dim": 64}
CLIP = OURS | {"mlp": "quick_gelu", "norm_eps": 1e-5, "pre_norm": True}
SIGLIP = OURS | {"mlp": "gelu_tanh", "class_token": False, "pool": "map"}
VIT = OURS | {"norm_eps": 1e-12}
KNOWN = {  # the kind: fields of its config, what is taken of the model, and the options of ours
    "vit": (SQUARE, None, VIT),
    "deit": (SQUARE, None, VIT | {"kind": DistilledVisionTransformer}),
    "vit_mae": (SQUARE | {"mask_ratio": 0.0}, None, VIT),
    "vit_msn": (SQUARE, None, OURS),
    "dinov2": (DINOV2, None, OURS | {"layer_scale": 1.0}),
    "dinov2_with_registers": (
        DINOV2 | {"num_register_tokens": 2},
        None,
        OURS | {"layer_scale": 1.0, "num_registers": 2, "embed_prefix": True},
    ),
    "dinov3_vit": (
        SQUARE | {"num_register_tokens": 2},
        None,
        OURS | {"norm_eps": 1e-5, "layer_scale": 1e-5, "position": "rotary_centered", "num_registers": 2},
    ),
    "clip_vision_model": (SQUARE, None, CLIP),
    "siglip_vision_model": (SQUARE, None, SIGLIP),
    "siglip2_vision_model": (SHAPE | {"num_patches": 64, "patch_size": 4}, None, SIGLIP),
    "clip": ({"text_config": TEXT, "vision_config": SQUARE, "projection_dim": 7}, "vision_model", CLIP),
    "siglip": ({"text_config": TEXT, "vision_config": SQUARE}, "vision_model", SIGLIP),
    "siglip2": (
        {"text_config": TEXT, "vision_config": SHAPE | {"num_patches": 64, "patch_size": 4}},
        "vision_model",
        SIGLIP,
    ),
}
assert KNOWN.keys() == {*DEFAULTS, *WHOLE}


def patched():
    """Kinds of models whose config, or that of their image tower, speaks of patches."""
    for kind in sorted(transformers.CONFIG_MAPPING):
        config = transformers.CONFIG_MAPPING[kind]
        fields = set(getattr(config, "__annotations__", {})) | set(dir(config))
        if "patch_size" in fields or "vision_config" in fields or "vision" in kind or "vit" in kind:
            yield kind


def fate(kind, folder):
    """ "equal" or "different" with the largest difference of the features, or "refused" with the reason."""
    if kind not in KNOWN:
        save_file({"embeddings.patch_embeddings.projection.weight": torch.ones(1)}, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps({"model_type": kind}))
        try:
            loaded(folder)
        except CheckpointError as error:
            return "refused", str(error).replace(str(folder), "it").partition("; the supported kinds")[0]
        return "different", "taken without a word"
    fields, part, options = KNOWN[kind]
    model = randomized(transformers.AutoModel.from_config(transformers.CONFIG_MAPPING[kind](**fields)))
    model.save_pretrained(folder)
    tower = getattr(model, part) if part else model
    ours, _ = loaded(folder, **({"kind": VisionTransformer} | options))
    with torch.inference_mode():
        theirs = tower(**inputs(kind))
        if kind.startswith(("clip", "siglip", "dinov3")):
            expected, found = theirs.pooler_output, ours.eval().represent(images())
        else:
            expected, found = theirs.last_hidden_state, ours.eval().forward_features(images())
    assert found.shape == expected.shape
    worst = ((found - expected).abs().max() / expected.abs().max()).item()
    return ("equal" if worst < 1e-5 else "different"), f"{worst:.1e}"


def inputs(kind):
    if kind == "vit_mae":  # which else would shuffle the patches
        return {"pixel_values": images(), "noise": torch.arange(64.0).expand(2, -1)}
    if not kind.startswith("siglip2"):
        return {"pixel_values": images()}
    patches = images().unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 4, 5, 1).flatten(1, 2).flatten(2)
    mask = torch.ones(patches.shape[:2])
    return {"pixel_values": patches, "pixel_attention_mask": mask, "spatial_shapes": torch.tensor([[8, 8]] * 2)}
