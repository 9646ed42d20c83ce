"""The norms that an encoder may use, by their names in the config."""

from collections.abc import Callable

from torch import nn

NORMS: dict[str, Callable[..., nn.Module]] = {
    "layer_norm": nn.LayerNorm,  # Ba et al., 2016, arXiv:1607.06450
    "rms_norm": nn.RMSNorm,  # Zhang & Sennrich, 2019, arXiv:1910.07467
}
