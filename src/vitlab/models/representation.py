"""Where a model's backbone ends and its head begins, whatever library it is of.

B batch, C channels, H W image height and width, N patches, P patch_size, D features
"""

from typing import Any

from torch import Tensor, nn

from vitlab.models.captioner import Captioner
from vitlab.models.encoder_decoder import EncoderDecoder
from vitlab.models.image_text_model import ImageTextModel
from vitlab.models.masked_autoencoder import MaskedAutoencoder
from vitlab.models.self_distilled import SelfDistilled
from vitlab.models.single_stream import SingleStream
from vitlab.models.vit import VisionTransformer

OF_AN_ENCODER = (MaskedAutoencoder, SelfDistilled, Captioner, ImageTextModel)
OURS = (VisionTransformer, SingleStream, *OF_AN_ENCODER)


def find_heads(model: nn.Module) -> list[nn.Linear]:
    """The linear layers that give the logits, in the order in which a distilled model has them: those of our models,
    those that a model of timm names, else the last one. None where there is no such layer."""
    if isinstance(model, (*OURS, EncoderDecoder)):
        return model.heads()
    of_timm: Any = model
    named = of_timm.get_classifier() if hasattr(model, "get_classifier") else None
    layers = named if isinstance(named, tuple) else (named or model,)
    linear = [module for layer in layers for module in layer.modules() if isinstance(module, nn.Linear)]
    return linear if named is not None else linear[-1:]


def head_names(model: nn.Module) -> set[str]:
    """Names of the head's parameters, by which the model itself knows them."""
    own = {id(parameter) for head in find_heads(model) for parameter in head.parameters()}
    return {name for name, parameter in model.named_parameters() if id(parameter) in own}


def represent(model: nn.Module, *inputs: Any) -> Tensor:
    """Compute the features that the (first) head reads of images (B, C, H, W), or of patches (B, N, C·P·P) and their
    grid. -> (B, D)

    Raises ValueError for a model without a linear head.
    """
    if isinstance(model, OURS):
        return model.represent(*inputs)
    return classify_and_represent(model, *inputs)[1]


def classify_and_represent(model: nn.Module, *inputs: Any) -> tuple[Tensor, Tensor]:
    """Compute logits (B, K), and the features (B, D) that the (first) head reads. Raises ValueError for a model without
    a linear head."""
    heads = find_heads(model)
    if not heads:
        raise ValueError(f"{type(model).__name__} has no linear layer that could be its head; choose another model")
    seen: list[Tensor] = []
    hook = heads[0].register_forward_pre_hook(lambda head, given: seen.append(given[0]))
    try:
        logits: Tensor = model.forward(*inputs)  # not model(...), which may be compiled, and pass the hook by
    finally:
        hook.remove()
    return logits, seen[-1].flatten(1)


def find_encoder(model: nn.Module) -> VisionTransformer | None:
    """The Vision Transformer that a model is, or that it trains as its encoder; None for other models, and for one
    whose blocks read texts as well."""
    inner = model.encoder if isinstance(model, OF_AN_ENCODER) else model
    return inner if isinstance(inner, VisionTransformer) else None
