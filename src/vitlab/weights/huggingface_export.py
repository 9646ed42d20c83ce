"""Our models as a folder of Hugging Face's: transformers.ViTForImageClassification.from_pretrained(FOLDER)."""

from typing import Any

from vitlab.models import DistilledVisionTransformer
from vitlab.weights.exporting import (
    NOWHERE,
    ROTARY,
    Export,
    Preprocessing,
    attention,
    common,
    has,
    positions,
    refuse,
    require_vit,
    tensors,
    without_layer_scale,
)
from vitlab.weights.facts import facts
from vitlab.weights.huggingface import ACTIVATIONS, BACK_ACTIVATIONS, back
from vitlab.weights.huggingface_towers import CLASSES, tower, tower_of

HEADLESS = "the head is left out: Hugging Face's model of this kind gives features"


def to_huggingface(
    model: Any, class_names: list[str], preprocessing: Preprocessing, several_labels: bool = False
) -> Export:
    """Write a model in Hugging Face's form. LayerScale goes into the linear layers before it, and positions that are
    added, of any kind, into one learned table: both are the same function.

    A model with a layer before its head is written as a ViTModel, whose pooler that is. Raises ConfigError for an
    option that Hugging Face's model does not have.
    """
    library = "Hugging Face's ViTForImageClassification"
    model = require_vit(model)
    if kind := tower_of(facts(model)):
        state, config = tower(model, common(CLASSES[kind], model, {*NOWHERE, "rotary", "learned_rotary"}), kind)
        files = {"config.json": config, "preprocessor_config.json": processor(model, preprocessing)}
        return Export(state, files, HEADLESS)
    own = common(library, model, {*NOWHERE, *ROTARY})
    refuse(
        library,
        {
            "pooling but by class token (model.pool)": not model.attn_pool.needs_class_token,
            "registers (model.num_registers)": "reg_token" in model.state_dict(),
            "distillation token": isinstance(model, DistilledVisionTransformer),
            f"MLP of kind {own['mlp']} (model.mlp)": own["mlp"] not in ACTIVATIONS.values(),
            f"norm of kind {own['norm']} (model.norm)": own["norm"] != "layer_norm",
            "norm of queries and keys (model.qk_norm)": has(attention(model).q_norm),
        },
    )
    state = without_layer_scale(tensors(model))
    state = {name.replace("fc_norm.", "norm."): value for name, value in state.items()} | {
        "pos_embed": positions(model)
    }
    height, width = model.patch_embed.image_size
    classes = dict(enumerate(class_names))
    pooled = has(model.pre_logits)  # only ViTModel has the layer before the head
    config = {
        "architectures": ["ViTModel" if pooled else "ViTForImageClassification"],
        "model_type": "vit",
        "hidden_size": model.cls_token.shape[-1],
        "num_hidden_layers": model.depth,
        "num_attention_heads": own["num_heads"],
        "intermediate_size": model.blocks[0].mlp.fc1.out_features,
        "hidden_act": BACK_ACTIVATIONS.get(own["mlp"], own["mlp"]),
        "layer_norm_eps": own["norm_eps"],
        "qkv_bias": attention(model).qkv.bias is not None,
        "image_size": height if height == width else [height, width],
        "patch_size": model.patch_embed.patch_size,
        "num_channels": model.patch_embed.proj.in_channels,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "id2label": {str(number): name for number, name in classes.items()},
        "label2id": {name: number for number, name in classes.items()},
        "problem_type": f"{'multi' if several_labels else 'single'}_label_classification",
    }
    files = {"config.json": config, "preprocessor_config.json": processor(model, preprocessing)}
    if not pooled:
        return Export(back(state), files)
    config |= {"pooler_output_size": model.pre_logits.fc.out_features, "pooler_act": "tanh"}
    features = {name.removeprefix("vit."): value for name, value in back(state).items() if "classifier" not in name}
    return Export(features, files, HEADLESS)


def processor(model: Any, preprocessing: Preprocessing) -> dict[str, Any]:
    """Describe the preprocessing to Hugging Face's image processor."""
    height, width = model.patch_embed.image_size
    size = {"height": height, "width": width}
    found: dict[str, Any] = {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": {"shortest_edge": preprocessing.resize} if preprocessing.resize else size,
        "resample": int(preprocessing.interpolation),
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(preprocessing.mean),
        "image_std": list(preprocessing.std),
    }
    if preprocessing.resize:
        found |= {"do_center_crop": True, "crop_size": size}
    return found
