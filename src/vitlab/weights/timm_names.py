"""timm's names are ours: what remains is to read what a model of timm computes with."""

from typing import Any

from vitlab.errors import CheckpointError
from vitlab.weights.form import Form

FORM = Form(
    name="timm",
    recognises=lambda names: (
        any(name.startswith("patch_embed.proj") for name in names) and "blocks.0.norm1.weight" in names
    ),
    renamed=dict,
)
SEQUENCES = ("VisionTransformer", "VisionTransformerDistilled")
ACTIVATIONS = {"gelu": "gelu", "gelutanh": "gelu_tanh", "relu": "relu", "silu": "swiglu"}
POOLS = {"token": "cls", "avg": "mean", "map": "map"}


def stated(config: dict[str, Any], origin: str) -> tuple[dict[str, Any], tuple[int, int] | None, str | None]:
    """Facts, grid and pooling of the architecture that a config.json of timm's names. Without timm only what it states
    itself.

    Raises CheckpointError for an architecture that is not a plain ViT, or that this timm does not have.
    """
    arguments = dict(config.get("model_args") or {})
    try:
        import timm
        import torch
    except ImportError:
        return {key: arguments[key] for key in ("num_heads",) if key in arguments}, None, None
    if config.get("num_classes") is not None:
        arguments["num_classes"] = config["num_classes"]
    try:
        with torch.device("meta"):
            model = timm.create_model(config["architecture"], pretrained=False, **arguments)
    except Exception as error:  # whatever an unknown name or argument leads to
        raise CheckpointError(f"timm cannot build what config.json of {origin} describes: {error}") from error
    return facts_of(model), grid_of(model), pool_of(model)


def facts_of(model: Any) -> dict[str, Any]:
    """Of a VisionTransformer of timm, in the keys of our config; nothing for other models."""
    if type(model).__name__ not in SEQUENCES:
        return {}
    block = model.blocks[0]
    activation = type(block.mlp.act).__name__.lower()
    if activation == "gelu" and getattr(block.mlp.act, "approximate", "none") == "tanh":
        activation = "gelutanh"
    return {
        "num_heads": block.attn.num_heads,
        "norm": "rms_norm" if "rms" in type(block.norm1).__name__.lower() else "layer_norm",
        "norm_eps": block.norm1.eps,
        "mlp": ACTIVATIONS.get(activation, activation),
    }


def pool_of(model: Any) -> str | None:
    return POOLS.get(model.global_pool) if type(model).__name__ in SEQUENCES else None


def grid_of(model: Any) -> tuple[int, int] | None:
    return tuple(model.patch_embed.grid_size) if type(model).__name__ in SEQUENCES else None
