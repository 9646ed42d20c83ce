"""The Vision Transformer within a model that reads all its tokens, and not its head."""

from torch import nn

from vitlab.models.vit import VisionTransformer


def require_encoder(encoder: nn.Module, patch_size: int | None) -> VisionTransformer:
    """Take an encoder whose tokens are all read. Raises ValueError for one that is no Vision Transformer, or has other
    weights than its head's that no text trains."""
    if not isinstance(encoder, VisionTransformer):
        raise ValueError(f"encoder is a {type(encoder).__name__}; it must be a Vision Transformer")
    own = encoder.patch_embed.patch_size
    if patch_size not in (None, own):  # null: it is given pixels
        raise ValueError(f"patch_size is {patch_size}, but the encoder's is {own}; set only encoder.patch_size")
    if any(True for _ in encoder.attn_pool.parameters()):
        raise ValueError("encoder.pool 'map' has weights that this task does not train; use cls or mean")
    if not isinstance(encoder.pre_logits, nn.Identity):
        raise ValueError("encoder.representation_dim adds a layer that this task does not train; set it to null")
    return encoder


def take_heads_off(encoder: VisionTransformer) -> None:
    """Take them off, since they would get no gradient; a distilled encoder has two."""
    for name in ("head", "head_dist"):
        if hasattr(encoder, name):
            setattr(encoder, name, nn.Identity())
