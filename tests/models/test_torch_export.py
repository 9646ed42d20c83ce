"""torch.export: a model exported with a batch of two takes any other number of images, and gives what it gave."""

import itertools

import pytest
import torch
from conftest import mostly_slow, vit_options
from texts import captioner, transformer
from tiny import POSITIONS, VARIANTS, randomized

from vitlab.models import DistilledVisionTransformer, MaskedAutoencoder, Transformer, VisionTransformer, small_resnet

SIZES = (1, 3, 7)
BATCH = torch.export.Dim("batch")
SMALL = {"image_size": 16, "depth": 2}
FEW = ("plain", "rotary")
OF_ONE_HEAD = {"pool", "representation_dim"}
DISTILLED = {name: changes for name, changes in VARIANTS.items() if not OF_ONE_HEAD & changes.keys()}
del DISTILLED["learned_rotary_registers"]  # which wants a square of registers: two tokens stand before the patches here
ENCODERS = {name: changes for name, changes in DISTILLED.items() if "stem_channels" not in changes}
ENCODERS |= {name: VARIANTS[name] for name in ("mean", "learned_rotary_registers")}


def each(names, few=FEW, strict="plain"):
    """Every name by both ways to export; by the default way `few` of them are quick to test, by the strict one one."""
    quick = {*itertools.product(few, [False]), (strict, True)}
    pairs = itertools.product(names, [False, True])
    return [pytest.param(*pair, marks=() if pair in quick else pytest.mark.slow) for pair in pairs]


def check_export(model, inputs, strict):
    """`inputs(B)` are what the model takes for a batch, by name; tensors have the batch as their first dimension."""
    model = model if isinstance(model, Transformer) else randomized(model)
    shapes = {name: {0: BATCH} if torch.is_tensor(value) else (None, None) for name, value in inputs(2).items()}
    exported = torch.export.export(model.eval(), (), inputs(2), dynamic_shapes=shapes, strict=strict).module()
    for B in SIZES:
        torch.testing.assert_close(exported(**inputs(B)), model(**inputs(B)), atol=1e-5, rtol=1e-5)


def random(B, *shape):
    return torch.randn(B, *shape, generator=torch.Generator().manual_seed(B))


def images(B):
    return {"x": random(B, 1, 16, 16)}


def patches(B, grid=(4, 4)):
    return {"x": random(B, grid[0] * grid[1], 16), "grid": grid}


def patches_of_another_size(B):
    return patches(B, (3, 5))


def some_patches(B):
    """Five of the sixteen patches are seen, others of each image, in any order."""
    return {**images(B), "keep": random(B, 16).argsort(dim=1)[:, :5]}


def pairs_of_sentences(B):
    draw = torch.Generator().manual_seed(B)
    read, written = (torch.randint(9, (B, length), generator=draw) for length in (6, 4))
    return {"written": written, "words": read, "present": torch.arange(6).expand(B, -1) < 5}


@pytest.mark.parametrize(("variant", "strict"), each(VARIANTS))
def test_a_vision_transformer(variant, strict):
    check_export(VisionTransformer(**vit_options(**SMALL | VARIANTS[variant])), images, strict)


@pytest.mark.parametrize("inputs", [patches, patches_of_another_size])
@pytest.mark.parametrize(("position", "strict"), each(POSITIONS, ["learned_1d"], strict=""))
def test_a_vision_transformer_of_patches(position, inputs, strict):
    check_export(VisionTransformer(**vit_options(**SMALL, position=position)), inputs, strict)


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["cls", "mean", "map"])
@pytest.mark.parametrize("attention", ["auto", "fused", "written"])
@pytest.mark.parametrize("position", POSITIONS)
def test_a_vision_transformer_of_options_that_meet(position, attention, pool):
    options = {"position": position, "attention": attention, "pool": pool, "depth": 1, "image_size": 16}
    for others in ({"num_registers": 2, "norm": "rms_norm"}, {"mlp": "swiglu", "representation_dim": 24}):
        check_export(VisionTransformer(**vit_options(**options, **others)), images, strict=False)


@pytest.mark.parametrize(("variant", "strict"), each(DISTILLED, ["plain"], strict=""))
def test_a_distilled_vision_transformer(variant, strict):
    check_export(DistilledVisionTransformer(**vit_options(**SMALL | DISTILLED[variant])), images, strict)


@pytest.mark.parametrize("inputs", [images, some_patches])
@pytest.mark.parametrize(("variant", "strict"), each(ENCODERS, ["every_layer"], strict=""))
def test_a_masked_autoencoder(variant, inputs, strict):
    encoder = VisionTransformer(**vit_options(**SMALL | ENCODERS[variant]))
    sizes = {"patch_size": 4, "decoder_dim": 24, "decoder_depth": 1, "decoder_heads": 2}
    check_export(MaskedAutoencoder(encoder=encoder, **sizes), inputs, strict)


@pytest.mark.parametrize("strict", mostly_slow([False, True]))
def test_a_small_resnet(strict):
    model = small_resnet(depth=8, width=4, patch_size=None, in_chans=1, num_classes=10)
    check_export(model, lambda B: {"input": images(B)["x"]}, strict)


@pytest.mark.parametrize("strict", mostly_slow([False, True]))
def test_a_transformer(strict):
    check_export(transformer(depth=1), pairs_of_sentences, strict)


@pytest.mark.slow
@pytest.mark.parametrize("strict", [False, True])
def test_a_captioner(strict):
    model = captioner(encoder=SMALL, norm_first=True, position="rotary_1d")
    check_export(model, lambda B: {"written": pairs_of_sentences(B)["written"], **images(B)}, strict)
