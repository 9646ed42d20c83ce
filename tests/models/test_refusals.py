import re

import pytest
import torch
from tiny import vit

from vitlab.layers import patchify


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mlp": "tanh"}, "mlp 'tanh' is not one of: gelu, gelu_tanh, quick_gelu, gelu_10, silu, relu, swiglu"),
        ({"norm": "batch"}, "norm 'batch' is not one of: layer_norm, rms_norm"),
        ({"attention": "flash"}, "attention 'flash' is not one of: auto, fused, written"),
        ({"position": "alibi"}, "position 'alibi' is not one of: none, learned_1d, learned_2d, sincos_1d, sincos_2d"),
        ({"position_place": "head"}, "position_place 'head' is not one of: stem, every_layer, every_layer_shared"),
        ({"pool": "none"}, "pool 'none' is not one of: cls, mean, map"),
        ({"initialization": "he"}, "initialization 'he' is not one of: normal, xavier"),
        ({"class_token": False}, "pool 'cls' needs class_token=true; without a class token use pool 'mean' or 'map'"),
        ({"num_heads": 3}, "embed_dim 32 is not a multiple of num_heads 3"),
        ({"num_heads": 0}, "embed_dim 32 is not a multiple of num_heads 0"),
        ({"mlp_dim": 64}, "exactly one of mlp_ratio and mlp_dim must be given"),
        ({"mlp_ratio": None}, "exactly one of mlp_ratio and mlp_dim must be given"),
        ({"mlp_ratio": 0.01}, "mlp_ratio 0.01, mlp_dim None: a hidden layer of width 0 is not at least 1"),
        ({"patch_size": 5}, "image_size 32 is not a multiple of patch_size 5"),
        ({"image_size": [32, 30]}, "image_size [32, 30] is not a multiple of patch_size 4"),
        ({"image_size": 0}, "image_size 0 is not a multiple of patch_size 4"),
        ({"image_size": [1, 32, 32]}, "image_size [1, 32, 32] is neither one number of pixels nor height and width"),
        ({"patch_size": None}, "exactly one of patch_size and stem_channels must be given"),
        ({"stem_channels": [8, 8]}, "exactly one of patch_size and stem_channels must be given"),
        ({"patch_size": None, "stem_channels": []}, "stem_channels [] is not a list of one or more widths"),
        *(
            ({"position": kind, "position_place": place}, f"needs learned positions, but position is '{kind}'")
            for kind in ("none", "sincos_1d", "sincos_2d", "relative", "rotary")
            for place in ("every_layer", "every_layer_shared")
        ),
        ({"position": "learned_2d", "embed_dim": 31, "num_heads": 1}, "'learned_2d' needs an even embed_dim, not 31"),
        ({"position": "sincos_1d", "embed_dim": 31, "num_heads": 1}, "a multiple of 2, and 31 is not"),
        ({"position": "sincos_2d", "embed_dim": 30}, "a multiple of 4, and 30 is not"),
        ({"position": "rotary", "embed_dim": 36}, "position 'rotary' needs a head width that is a multiple of 4"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_an_option_that_is_wrong_is_named(changes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        vit(**changes)


def test_a_convolutional_stem_takes_no_patches():
    model = vit(patch_size=None, stem_channels=[8, 12])
    with pytest.raises(ValueError, match=r"takes images of \(channels, height, width\) \(1, 32, 32\), not \(64, 16\)"):
        model(patchify(torch.randn(2, 1, 32, 32), 4))
