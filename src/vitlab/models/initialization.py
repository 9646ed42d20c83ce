"""The weights a Vision Transformer starts from, for every layer in one place.

`xavier`: linear layers start uniform with variance 2/(fan in + fan out) (Glorot & Bengio, 2010, equation 16), Q, K and
V as the three matrices that they are, as in the original Transformer (Vaswani et al., 2017, arXiv:1706.03762) and the
ViT paper's own code: right at every width. Learned positions start with a standard deviation of 0.5, about as loud as
the patches that they are added to, as fixed sines are (0.71): experiments/study/initialization.yaml. `normal`: linear
layers and learned positions start normally distributed with standard deviation 0.02, as in DeiT (Touvron et al., 2021,
arXiv:2012.12877), which suits a width of 768 and long training. Either way biases start at zero, and the patch
embedding, a linear map on patches, starts as one: LeCun normal over its C·P·P inputs, as in the ViT paper's own code.
"""

from collections.abc import Callable

from torch import Tensor, nn

from vitlab.layers import (
    Attention,
    AttentionPooling,
    CausalAttention,
    CrossAttention,
    LayerScale,
    MemoryAttention,
    PositionedBlock,
    RelativePosition,
    SequenceAttention,
    SwiGLU,
)


def normal(weight: Tensor) -> None:
    nn.init.normal_(weight, std=0.02)


SCHEMES: dict[str, Callable[[Tensor], object]] = {"normal": normal, "xavier": nn.init.xavier_uniform_}
POSITION_STD = {"normal": 0.02, "xavier": 0.5}  # for learned positions that are added to tokens
STACKED: dict[type[nn.Module], tuple[str, int]] = {  # where one weight holds several matrices
    **dict.fromkeys((Attention, SequenceAttention, CausalAttention), ("qkv", 3)),
    **dict.fromkeys((CrossAttention, MemoryAttention, AttentionPooling), ("kv", 2)),
    SwiGLU: ("fc1", 2),
}


def initialize(module: nn.Module, scheme: str) -> None:
    """Give one module its first weights; for `nn.Module.apply`. Every parameter that it owns is overwritten."""
    if isinstance(module, nn.Linear | nn.Conv2d):
        if isinstance(module, nn.Linear):
            SCHEMES[scheme](module.weight)
        else:
            nn.init.normal_(module.weight, std=module.weight[0].numel() ** -0.5)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.LayerNorm | nn.RMSNorm | nn.BatchNorm2d):
        nn.init.ones_(module.weight)
        if not isinstance(module, nn.RMSNorm):
            nn.init.zeros_(module.bias)
    elif isinstance(module, LayerScale):
        nn.init.constant_(module.gamma, module.scale)
    elif isinstance(module, AttentionPooling):
        nn.init.normal_(module.latent, std=module.latent.shape[-1] ** -0.5)
    elif isinstance(module, RelativePosition):
        nn.init.normal_(module.relative_position_bias_table, std=0.02)
    elif isinstance(module, PositionedBlock):
        nn.init.normal_(module.pos_embed, std=POSITION_STD[scheme])
    if scheme == "xavier" and type(module) in STACKED:  # after its linear layers: apply goes from the leaves up
        layer, matrices = STACKED[type(module)]
        for weight in module.get_submodule(layer).get_parameter("weight").chunk(matrices):
            nn.init.xavier_uniform_(weight)
