"""The weights a Vision Transformer starts from.

The linear layers and position embeddings start normally distributed with standard deviation 0.02, as in DeiT (Touvron
et al., 2021, arXiv:2012.12877). The patch embedding is a linear map on patches, and starts as one: LeCun normal over
its C·P·P inputs, as in the ViT paper's own code.
"""

from torch import nn

from vitlab.layers import PatchEmbedding


def initialize(module: nn.Module) -> None:
    """Give one layer its first weights; for `nn.Module.apply`. Every parameter that a layer owns is overwritten."""
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.LayerNorm):
        nn.init.ones_(module.weight)
        nn.init.zeros_(module.bias)
    elif isinstance(module, PatchEmbedding):
        fan_in = module.proj.weight[0].numel()
        nn.init.normal_(module.proj.weight, std=fan_in**-0.5)
        if module.proj.bias is not None:
            nn.init.zeros_(module.proj.bias)
