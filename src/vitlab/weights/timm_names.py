"""timm's names are ours, but for those of its Eva; what a model of timm computes with is read off the model."""

from contextlib import suppress
from typing import Any

from vitlab.errors import CheckpointError
from vitlab.layers import POOLS
from vitlab.weights.form import Form, StatedFacts
from vitlab.weights.renaming import Rules, Tensors, add_key_biases, rename, stack, stack_gates

RULES: Rules = (
    (r"\.gamma_([12])$", r".ls\1.gamma"),
    (r"\.attn\.([qkv])_proj\.", r".attn.\1."),
    (r"\.attn\.([qv])_bias$", r".attn.\1.bias"),
    (r"\.mlp\.fc1_([gx])\.", r".mlp.\1."),
)


def rename_tensors(tensors: Tensors) -> Tensors:
    return stack_gates(stack(add_key_biases(rename(tensors, RULES)), "attn", "qkv"))


FORM = Form(
    name="timm",
    recognises=lambda names: (
        any(name.startswith("patch_embed.proj") for name in names) and "blocks.0.norm1.weight" in names
    ),
    rename=rename_tensors,
)
# Classes whose models we compute alike, and those of their parts: read line by line, and walked by the tests.
MODELS = ("VisionTransformer", "VisionTransformerDistilled", "Eva")
LAYERS = (
    *("PatchEmbed", "Block", "EvaBlock", "Attention", "EvaAttention", "AttentionRope", "AttentionPoolLatent"),
    *("RotaryEmbeddingCat", "RotaryEmbeddingDinoV3", "Mlp", "GluMlp", "SwiGLU", "LayerScale", "LayerNorm", "RmsNorm"),
    *("Linear", "Conv2d", "Sequential", "ModuleList"),
)
IDLE = ("Identity", "Dropout", "DropPath", "PatchDropout", "PatchDropoutWithIndices")  # when a model is evaluated
ACTIVATIONS = {"GELU": "gelu", "GELUTanh": "gelu_tanh", "QuickGELU": "quick_gelu", "ReLU": "relu", "SiLU": "silu"}
KNOWN = {*MODELS, *LAYERS, *IDLE, *ACTIVATIONS}
OWN_POOLS = {kind.timm_name: name for name, kind in POOLS.items()}
NORMS = {"LayerNorm": "layer_norm", "RmsNorm": "rms_norm"}


def read_config(config: dict[str, Any], origin: str) -> StatedFacts:
    """Look up what the architecture that timm's config.json names computes with; without timm, only what the file
    itself says. Raises CheckpointError for an architecture that is not a plain ViT, or that this timm does not have."""
    arguments = dict(config.get("model_args") or {})
    try:
        import timm
        import torch
    except ImportError:
        return StatedFacts({key: arguments[key] for key in ("num_heads",) if key in arguments})
    for key in ("num_classes", "global_pool"):
        if config.get(key) is not None:
            arguments.setdefault(key, config[key])
    try:
        with torch.device("meta"):
            model = timm.create_model(config["architecture"], pretrained=False, **arguments)
    except Exception as error:  # whatever an unknown name or argument leads to
        raise CheckpointError(f"timm cannot build what {origin} describes: {error}") from error
    return read_facts(model, origin)


def read_name(config: dict[str, Any]) -> dict[str, Any]:
    """Tell which model of timm a config.json is about, and what was asked of it besides the sizes of its data."""
    arguments = dict(config.get("model_args") or {})
    asked = {key: value for key, value in arguments.items() if key not in ("num_classes", "in_chans", "img_size")}
    if "global_pool" in asked and asked["global_pool"] == find_usual_pool(config["architecture"]):
        del asked["global_pool"]  # timm always writes it
    return {"name": config["architecture"], "model_args": asked}


def find_usual_pool(architecture: str) -> Any:
    """Tell how an architecture of timm pools unless it is told otherwise; None where that is not known."""
    with suppress(ImportError, RuntimeError):  # no timm, or none that has this architecture
        import timm
        import torch

        with torch.device("meta"):
            model: Any = timm.create_model(architecture)
        pools = [getattr(part, "global_pool", None) for part in (getattr(model, "head", None), model)]
        return next((pool for pool in (getattr(one, "pool_type", one) for one in pools) if pool is not None), None)
    return None


def read_facts(model: Any, origin: str) -> StatedFacts:
    """Read off a model of timm what it computes with. Raises CheckpointError for a part that ours do not have."""
    for name, part in model.named_modules():
        if type(part).__name__ not in KNOWN or (not name and type(part).__name__ not in MODELS):
            place = f"its {name} is a" if name else "it is a"
            raise refusal(origin, f"{place} {type(part).__name__} of timm")
    block = model.blocks[0]
    norms = {(type(part).__name__, part.eps) for part in model.modules() if type(part).__name__ in NORMS}
    if len(norms) > 1:
        described = ", ".join(f"{name} with eps {eps:g}" for name, eps in sorted(norms))
        raise refusal(origin, f"its norms differ ({described})")
    if hasattr(model, "head_dist") and type(model.fc_norm).__name__ != "Identity":
        raise refusal(origin, "its two heads read tokens that its last norm has not seen")
    pool = describe_pool(model, origin)
    facts = {
        "num_heads": block.attn.num_heads,
        "norm": NORMS[type(block.norm1).__name__],
        "norm_eps": block.norm1.eps,
        "mlp": describe_mlp(block.mlp, origin),
        "position": describe_position(model),
        "pre_norm": type(model.norm_pre).__name__ != "Identity",
        "pool": pool,
    }
    if pool == "map":
        latent = model.attn_pool
        found = {"num_heads": latent.num_heads, "mlp": describe_mlp(latent.mlp, origin)}
        if any(facts[key] != value for key, value in found.items()) or latent.pool != "token":
            raise refusal(origin, f"its attention pooling has {found}, and its blocks {facts}")
    halves = getattr(getattr(model, "rope", None), "rotate_half", False)
    return StatedFacts(facts, tuple(model.patch_embed.grid_size), halves)


def refusal(origin: str, reason: str) -> CheckpointError:
    return CheckpointError(f"{origin} is no Vision Transformer of ours: {reason}; model=timm takes it as it is")


def describe_mlp(mlp: Any, origin: str) -> str:
    kind = type(mlp).__name__
    if kind == "Mlp":
        return ACTIVATIONS[type(mlp.act).__name__ + tanh(mlp.act)]
    if type(mlp.act).__name__ != "SiLU" or getattr(mlp, "gate_last", False):
        raise refusal(origin, f"its {kind} does not gate by SiLU of the first half")
    return "swiglu"


def tanh(activation: Any) -> str:
    return "Tanh" if getattr(activation, "approximate", "none") == "tanh" else ""


def describe_position(model: Any) -> str:
    """Name the kind of positions, in our words; or describe one that we do not have."""
    rope, learned = getattr(model, "rope", None), model.pos_embed is not None
    if rope is None:
        return "learned_1d" if learned else "none"
    centered = type(rope).__name__ == "RotaryEmbeddingDinoV3"
    grid = (rope.grid_offset, rope.grid_indexing, rope.normalize_coords)
    if centered and rope.temperature == 100 and rope.min_period is None and grid == (0, "ij", "separate"):
        return "learned rows and rotary_centered" if learned else "rotary_centered"
    plain = not centered and (rope.temperature, rope.grid_type, rope.ref_feat_shape) == (100, "index", None)
    if plain and grid[:2] == (0, "xy") and not rope.rotate_half:
        return "learned_rotary" if learned else "rotary"
    found = ("temperature", "ref_feat_shape", "grid_offset", "grid_indexing", "rotate_half")
    return f"{type(rope).__name__}({', '.join(f'{key}={getattr(rope, key, None)}' for key in found)})"


def describe_pool(model: Any, origin: str) -> str:
    pool = OWN_POOLS.get(model.global_pool, f"the tokens by timm's pooling '{model.global_pool}'")
    whole = getattr(model, "pool_include_prefix", pool == "map")  # Eva's attention pooling looks at all tokens
    if pool == "cls" or not model.num_prefix_tokens or not whole:
        return pool
    if pool == "map":
        raise refusal(origin, "its attention pooling looks at prefix tokens, too")
    return f"{POOLS[pool].reads if pool in POOLS else pool}, prefix tokens among them"
