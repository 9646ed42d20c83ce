"""Models small enough for a test, and the options that a family of them may have."""

import torch
from conftest import vit_options

from vitlab.models import VisionTransformer

POSITIONS = ("none", "learned_1d", "learned_2d", "sincos_1d", "sincos_2d", "relative", "rotary", "rotary_centered")
POSITIONS += ("learned_rotary",)
# one model or more for each option that changes what a model is made of
VARIANTS = {
    "plain": {},
    **{position: {"position": position} for position in POSITIONS if position != "learned_1d"},
    "learned_rotary_registers": {"position": "learned_rotary_registers", "num_registers": 4},
    "every_layer": {"position_place": "every_layer"},
    "every_layer_shared": {"position_place": "every_layer_shared"},
    "learned_2d_every_layer": {"position": "learned_2d", "position_place": "every_layer"},
    "patches_only_positions": {"embed_prefix": False},
    "registers": {"num_registers": 3},
    "mean": {"pool": "mean", "class_token": False},
    "map": {"pool": "map", "class_token": False},
    "map_swiglu": {"pool": "map", "mlp": "swiglu"},
    "swiglu": {"mlp": "swiglu"},
    "rms_norm": {"norm": "rms_norm", "qk_norm": True},
    "qk_norm": {"qk_norm": True},
    "pre_norm": {"pre_norm": True, "mlp": "quick_gelu"},
    "silu": {"mlp": "silu"},
    "gelu_10": {"mlp": "gelu_10"},
    "layer_scale": {"layer_scale": 0.1},
    "representation": {"representation_dim": 24},
    "convolutional_stem": {"patch_size": None, "stem_channels": [8, 12]},
    "written": {"attention": "written"},
    "normal": {"initialization": "normal"},
    "unbiased": {"qkv_bias": False},
}


def vit(kind=VisionTransformer, **changes):
    """A model of vit_mu4's size, the same weights each time."""
    torch.manual_seed(0)
    return kind(**vit_options(**changes))


def randomized(model, std=0.2):
    """Every parameter random, since biases that start at 0 and norms at 1 prove nothing; for evaluation."""
    torch.manual_seed(1)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=std)
    return model.eval()
