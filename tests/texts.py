"""Models that write, small enough for a test."""

import torch
from conftest import vit_options

from vitlab.models import Captioner, Decoder, TextEncoder, Transformer, VisionTransformer

SIZES = {"vocab_size": 11, "max_length": 9, "embed_dim": 16, "depth": 2, "num_heads": 4}
OPTIONS = SIZES | {
    "mlp": "relu",
    "mlp_ratio": None,
    "mlp_dim": 32,
    "norm": "layer_norm",
    "norm_eps": 1e-5,
    "norm_first": False,
    "position": "sincos_1d",
    "scale_embedding": True,
    "embed_norm": False,
    "scaled_attention": True,
    "initialization": "xavier",
    "drop_rate": 0.0,
    "attn_drop_rate": 0.0,
}
# one decoder or more for each option that changes what it is made of
VARIANTS = {
    "first_paper": {},
    "norm_first": {"norm_first": True},
    "learned": {"position": "learned_1d"},
    "rotary": {"position": "rotary_1d", "norm_first": True},
    "no_position": {"position": "none"},
    "untied": {"tied": False},
    "unscaled": {"scaled_attention": False},
    "not_causal": {"causal": False},
    "embed_norm": {"embed_norm": True, "scale_embedding": False, "mlp": "gelu"},
    "rms_norm": {"norm": "rms_norm", "mlp": "swiglu", "norm_first": True},
    "normal": {"initialization": "normal"},
    "memory_dim": {"memory_dim": 24},
    "dropout": {"drop_rate": 0.1, "attn_drop_rate": 0.2},
}


def decoder(**changes):
    torch.manual_seed(0)
    return Decoder(**OPTIONS | {"memory_dim": 16, "tied": True, "causal": True} | changes)


def transformer(shared_embedding=True, **changes):
    torch.manual_seed(0)
    own = {"causal", "tied", "memory_dim"}
    encoder = TextEncoder(causal=False, **OPTIONS | {key: value for key, value in changes.items() if key not in own})
    return Transformer(encoder=encoder, decoder=decoder(**changes), shared_embedding=shared_embedding)


def captioner(kind=VisionTransformer, encoder=None, **changes):
    """Of vit_mu4's size."""
    torch.manual_seed(0)
    reader = kind(**vit_options(**encoder or {}))
    return Captioner(
        encoder=reader, decoder=decoder(memory_dim=32, **changes), patch_size=reader.patch_embed.patch_size
    )


def randomized(model, std=0.3):
    """Every parameter random, since biases that start at 0 and norms at 1 prove nothing; for evaluation."""
    torch.manual_seed(1)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=std)
    return model.eval()
