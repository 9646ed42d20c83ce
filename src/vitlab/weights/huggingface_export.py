"""Our models as a folder of Hugging Face's: transformers.ViTForImageClassification.from_pretrained(FOLDER)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from vitlab.layers import ACTIVATIONS, ClassTokenPooling
from vitlab.models import DistilledVisionTransformer
from vitlab.weights.exporting import (
    Export,
    ExportedPreprocessing,
    attention,
    collect_common,
    has,
    merge_layer_scale,
    positions,
    refuse,
    require_vit,
    tensors,
)
from vitlab.weights.huggingface import rename_back
from vitlab.weights.huggingface_towers import choose_tower, tower


def export_huggingface(
    model: Any, class_names: list[str], preprocessing: ExportedPreprocessing, several_labels: bool = False
) -> Export:
    """Write a model in Hugging Face's form. LayerScale goes into the linear layers before it, and positions that are
    added, of any kind, into one learned table: both are the same function.

    A model with a layer before its head is written as a ViTModel, whose pooler that is. Raises ConfigError for an
    option that Hugging Face's model does not have.
    """
    library = "Hugging Face's ViTForImageClassification"
    model = require_vit(model)
    if kind := choose_tower(model):
        state, config, options = tower(model, kind)
        files = {"config.json": config, "preprocessor_config.json": processor(model, preprocessing)}
        return Export(state, files, options, has_head=False)
    own, _ = collect_common(library, model, "vit")
    activation = ACTIVATIONS.get(own["mlp"])
    refuse(
        library,
        {
            "pooling but by class token (model.pool)": type(model.attn_pool) is not ClassTokenPooling,
            "registers (model.num_registers)": "reg_token" in model.state_dict(),
            "distillation token": isinstance(model, DistilledVisionTransformer),
            f"MLP of kind {own['mlp']} (model.mlp)": activation is None or activation.hugging_face is None,
            f"norm of kind {own['norm']} (model.norm)": own["norm"] != "layer_norm",
            "norm of queries and keys (model.qk_norm)": has(attention(model).q_norm),
        },
    )
    state = merge_layer_scale(tensors(model))
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
        "hidden_act": activation and activation.hugging_face,
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
    options = {"position": "learned_1d", "embed_prefix": True, "layer_scale": None}
    if not pooled:
        return Export(rename_back(state), files, options)
    config |= {"pooler_output_size": model.pre_logits.fc.out_features, "pooler_act": "tanh"}
    features = {
        name.removeprefix("vit."): value for name, value in rename_back(state).items() if "classifier" not in name
    }
    return Export(features, files, options, has_head=False)


def open_huggingface(folder: Path) -> Callable[[Tensor], Tensor]:
    """Open an exported folder in transformers: images (B, C, H, W) -> logits (B, K), or features (B, D) of a model
    without a head. Raises ImportError without transformers."""
    import transformers

    transformers.utils.logging.disable_progress_bar()
    config = transformers.AutoConfig.from_pretrained(folder)
    model = getattr(transformers, config.architectures[0]).from_pretrained(folder).eval()

    def compute(images: Tensor) -> Tensor:
        outputs = model(images)
        found: Tensor = outputs.logits if "logits" in outputs else outputs.pooler_output
        return found

    return compute


def processor(model: Any, preprocessing: ExportedPreprocessing) -> dict[str, Any]:
    """Describe the preprocessing to Hugging Face's image processor. It rounds the corner of a crop down, and
    torchvision rounds it to even: the crop may lie one pixel further up or left, and no setting changes that."""
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
