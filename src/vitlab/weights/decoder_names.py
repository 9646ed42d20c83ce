"""A whole masked autoencoder, encoder and decoder, as Facebook Research's code names it (He et al., 2022,
arXiv:2111.06377).

C channels, P patch_size, E decoder_dim
"""

from dataclasses import replace

from torch import Tensor

from vitlab.models import MaskedAutoencoder
from vitlab.weights.form import LoadedWeights
from vitlab.weights.renaming import Tensors

DECODER = ("mask_token", "decoder_")


def prefix_encoder(model: MaskedAutoencoder, source: LoadedWeights) -> LoadedWeights:
    """Rename a source in the authors' names to the model's: ours put `encoder.` before what a ViT has."""
    if any(name.startswith("encoder.") for name in source.tensors) or "mask_token" not in source.tensors:
        return source
    tensors: Tensors = {}
    for name, tensor in source.tensors.items():
        if name.startswith("decoder_pred."):
            tensor = channels_first(tensor, model.in_chans)
        tensors[name if name.startswith(DECODER) else f"encoder.{name}"] = tensor
    return replace(source, tensors=tensors, facts={f"encoder.{key}": value for key, value in source.facts.items()})


def channels_first(tensor: Tensor, channels: int) -> Tensor:
    """Reorder the rows for the values of a patch from the authors' order (P, P, C) to ours. (C·P·P, ...) -> (C·P·P,
    ...)"""
    if len(tensor) % channels:
        return tensor  # belongs to another model, and the transfer refuses it
    rows: Tensor = tensor.unflatten(0, (-1, channels))
    return rows.transpose(0, 1).flatten(0, 1)
