"""Our model and timm's on the same weights, whole state dicts both ways: the same logits."""

from functools import partial

import pytest
import torch
from timm.layers import RmsNorm, SwiGLUPacked
from timm.models.deit import VisionTransformerDistilled
from timm.models.vision_transformer import VisionTransformer
from tiny import randomized, vit

from vitlab.models import DistilledVisionTransformer

TIMM = {"img_size": 32, "patch_size": 4, "in_chans": 1, "num_classes": 10, "embed_dim": 32, "depth": 2, "num_heads": 2}
MEAN, PATCHES = {"global_pool": "avg"}, {"class_token": False}
RMS = {"norm_layer": partial(RmsNorm, eps=1e-6)}
SWIGLU = {"mlp_layer": SwiGLUPacked, "act_layer": torch.nn.SiLU}  # its width counts both halves
# what it is: our options, timm's
CASES = {
    "class token": ({}, {}),
    "mean": ({"pool": "mean"}, MEAN),
    "mean without class token": ({"pool": "mean", "class_token": False}, MEAN | PATCHES),
    "mean after the norm": ({"pool": "mean", "fc_norm": False}, MEAN | {"fc_norm": False}),
    "class token before the norm": ({"fc_norm": True}, {"fc_norm": True}),
    "map": ({"pool": "map", "class_token": False}, {"global_pool": "map"} | PATCHES),
    "map with class token and registers": (
        {"pool": "map", "num_registers": 2},
        {"global_pool": "map", "reg_tokens": 2},
    ),
    "registers": ({"num_registers": 3}, {"reg_tokens": 3}),
    "registers without positions": (
        {"num_registers": 3, "embed_prefix": False},
        {"reg_tokens": 3, "no_embed_class": True},
    ),
    "registers, mean": ({"num_registers": 2, "pool": "mean"}, {"reg_tokens": 2} | MEAN),
    "registers alone": (
        {"num_registers": 2, "pool": "mean", "class_token": False},
        {"reg_tokens": 2} | MEAN | PATCHES,
    ),
    "layer scale": ({"layer_scale": 1e-5}, {"init_values": 1e-5}),
    "DeiT III": ({"layer_scale": 1e-6, "embed_prefix": False}, {"init_values": 1e-6, "no_embed_class": True}),
    "query-key norm": ({"qk_norm": True}, {"qk_norm": True}),
    "no position": ({"position": "none"}, {"pos_embed": "none"}),
    "rms norm": ({"norm": "rms_norm"}, RMS),
    "rms norm on queries too": ({"norm": "rms_norm", "qk_norm": True, "pool": "mean"}, RMS | MEAN | {"qk_norm": True}),
    "swiglu": ({"mlp": "swiglu", "mlp_ratio": 2.0}, SWIGLU | {"mlp_ratio": 4.0}),
    "gelu tanh": ({"mlp": "gelu_tanh"}, {"act_layer": "gelu_tanh"}),
    "not square": ({"image_size": [16, 24]}, {"img_size": (16, 24)}),
    "colour, slim, unbiased": (
        {"in_chans": 3, "mlp_ratio": 3.0, "qkv_bias": False, "num_heads": 4},
        {"in_chans": 3, "mlp_ratio": 3.0, "qkv_bias": False, "num_heads": 4},
    ),
}


def of_timm(kind=VisionTransformer, **changes):
    return randomized(kind(**TIMM | changes))


def images_for(model, batch=4):
    return torch.randn(batch, model.patch_embed.proj.in_channels, *model.patch_embed.image_size)


def assert_equal_both_ways(ours, theirs):
    images = images_for(ours)
    fresh = {name: tensor.clone() for name, tensor in ours.state_dict().items()}
    ours.load_state_dict(theirs.state_dict(), strict=True)
    expected = theirs(images)
    assert expected.std() > 0.1  # there is something to compare
    torch.testing.assert_close(ours(images), expected, atol=1e-5, rtol=0)
    for model in (ours, theirs):
        model.load_state_dict(fresh, strict=True)
    torch.testing.assert_close(ours(images), theirs(images), atol=1e-5, rtol=0)


@pytest.mark.parametrize("case", CASES)
def test_weights_from_timm_and_back_give_the_same_logits(case):
    ours, theirs = CASES[case]
    assert_equal_both_ways(vit(**ours).eval(), of_timm(**theirs))


def test_a_distilled_model_has_the_logits_of_timms():
    ours, theirs = vit(DistilledVisionTransformer).eval(), of_timm(VisionTransformerDistilled)
    assert_equal_both_ways(ours, theirs)
    images = images_for(ours)
    theirs.train().set_distilled_training(True)  # neither has dropout
    torch.testing.assert_close(ours.compute_both_logits(images), torch.stack(theirs(images), dim=1), atol=1e-5, rtol=0)


@pytest.mark.parametrize("prefix", [{}, {"embed_prefix": False}])
@pytest.mark.parametrize("grid", [(8, 8), (5, 9), (12, 3)])
def test_another_size_gives_the_logits_of_timm(grid, prefix):
    theirs = of_timm(dynamic_img_size=True, reg_tokens=2, no_embed_class=not prefix.get("embed_prefix", True))
    ours = vit(num_registers=2, **prefix).eval()
    ours.load_state_dict(theirs.state_dict(), strict=True)
    images = torch.randn(2, 1, 4 * grid[0], 4 * grid[1])
    torch.testing.assert_close(ours(images, grid), theirs(images), atol=1e-5, rtol=0)


@pytest.mark.parametrize("depth", [1, 2, 7])
def test_drop_path_rates_are_those_of_timm(depth):
    ours, theirs = vit(depth=depth, drop_path_rate=0.3), of_timm(depth=depth, drop_path_rate=0.3)
    for block, reference in zip(ours.blocks, theirs.blocks, strict=True):
        rate = getattr(reference.drop_path1, "drop_prob", 0.0)  # timm's first block has an Identity
        assert (block.drop_path1.rate, block.drop_path2.rate) == pytest.approx((rate, rate))


def test_drop_path_rates_of_deit3_are_the_same_in_every_block():
    blocks = vit(depth=3, drop_path_rate=0.3, drop_path_shape="constant").blocks
    assert [(block.drop_path1.rate, block.drop_path2.rate) for block in blocks] == [(0.3, 0.3)] * 3


@pytest.mark.parametrize("case", ["registers", "DeiT III", "map", "query-key norm", "layer scale"])
def test_weight_decay_spares_what_timm_spares_and_more(case):
    """timm's optimizers spare what has one dimension, and what the model names."""
    ours, theirs = CASES[case]
    theirs = of_timm(**theirs)
    spared = {name for name, parameter in theirs.named_parameters() if parameter.ndim <= 1} | theirs.no_weight_decay()
    exempt = vit(**ours).no_weight_decay()
    assert spared & {name for name, _ in theirs.named_parameters()} <= exempt
    assert exempt - spared <= {"reg_token", "attn_pool.latent"}
