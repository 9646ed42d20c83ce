"""Images of different size and aspect ratio in one batch: each is what it is alone."""

import ast
import inspect
import math
import textwrap

import pytest
import torch
import torch.nn.functional as F
from timm.models.naflexvit import NaFlexVit, NaFlexVitCfg
from tiny import VARIANTS, randomized, vit

from vitlab.layers import MixedGrids, make_mixed_grids
from vitlab.models import DistilledVisionTransformer, VisionTransformer

OWN = (5, 4)  # the grid that the models are made for
SIZES = ((2, 3), OWN, (7, 1), (2, 3), (4, 6), (1, 1))
PATCHED = {
    **{name: (VisionTransformer, changes) for name, changes in VARIANTS.items() if name != "convolutional_stem"},
    "distilled": (DistilledVisionTransformer, {"num_registers": 1}),
    "every_layer_registers": (VisionTransformer, {"position_place": "every_layer", "num_registers": 2}),
    "relative_mean_registers": (VisionTransformer, {"position": "relative", "pool": "mean", "num_registers": 2}),
    "relative_written": (VisionTransformer, {"position": "relative", "attention": "written"}),
    "rotary_map": (VisionTransformer, {"position": "rotary", "pool": "map"}),
    "patches_only_mean": (VisionTransformer, {"embed_prefix": False, "pool": "mean", "num_registers": 1}),
}


def model_of(variant):
    kind, changes = PATCHED[variant]
    return randomized(vit(kind, **changes | {"image_size": [4 * OWN[0], 4 * OWN[1]]}))


def images_of(grids=SIZES):
    """The patches of each image, (1, h·w, 16)."""
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(1, h * w, 16, generator=generator) for h, w in grids]


def batch_of(images, fill=0.0):
    """As one batch, with `fill` where there are no patches. -> (B, N, 16)"""
    longest = max(image.shape[1] for image in images)
    return torch.cat([F.pad(image, (0, 0, 0, longest - image.shape[1]), value=fill) for image in images])


# -- as alone


@pytest.mark.parametrize("variant", PATCHED)
def test_each_image_gives_the_logits_it_gives_alone(variant):
    model, images = model_of(variant), images_of()
    logits = model(batch_of(images), make_mixed_grids(SIZES))
    alone = torch.cat([model(image, grid) for image, grid in zip(images, SIZES, strict=True)])
    assert alone.std(dim=0).min() > 1e-3  # the images differ
    torch.testing.assert_close(logits, alone, atol=1e-5, rtol=0)


@pytest.mark.parametrize("variant", PATCHED)
@pytest.mark.parametrize("fill", [-3.0, 1e30, math.inf, math.nan])
def test_what_stands_where_no_patches_are_changes_nothing(variant, fill):
    model, images = model_of(variant), images_of()
    assert torch.equal(
        model(batch_of(images, fill), make_mixed_grids(SIZES)), model(batch_of(images), make_mixed_grids(SIZES))
    )


@pytest.mark.parametrize("variant", ["plain", "relative", "rotary", "learned_2d_every_layer", "map", "mean"])
@pytest.mark.parametrize("fill", [0.0, math.nan])
def test_the_gradients_are_those_of_the_images_alone(variant, fill):
    model, images, gradients = model_of(variant), images_of(), []
    for logits in (
        model(batch_of(images, fill), make_mixed_grids(SIZES)),
        torch.cat([model(image, grid) for image, grid in zip(images, SIZES, strict=True)]),
    ):
        model.zero_grad()
        logits.square().mean().backward()
        gradients.append({name: parameter.grad.clone() for name, parameter in model.named_parameters()})
    for name, gradient in gradients[1].items():
        scale = max(1.0, gradient.abs().max().item())
        torch.testing.assert_close(gradients[0][name] / scale, gradient / scale, atol=1e-5, rtol=0, msg=name)


@pytest.mark.parametrize("variant", ["plain", "relative", "rotary"])
def test_images_of_one_size_are_the_plain_batch(variant):
    model, images = model_of(variant), torch.randn(3, 20, 16)
    torch.testing.assert_close(model(images, make_mixed_grids([OWN] * 3)), model(images), atol=1e-5, rtol=1e-5)


def test_two_images_that_change_places_change_logits():
    model, images = model_of("plain"), images_of()
    order = [0, 4, 2, 3, 1, 5]
    logits = model(batch_of(images), make_mixed_grids(SIZES))
    swapped = model(batch_of([images[i] for i in order]), make_mixed_grids([SIZES[i] for i in order]))
    torch.testing.assert_close(swapped, logits[order], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("variant", ["plain", "relative", "rotary", "mean"])
def test_bf16_is_near_float32_in_mixed_batches_too(variant):
    model, images = model_of(variant), batch_of(images_of(), math.nan)
    expected = model(images, make_mixed_grids(SIZES))
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(images, make_mixed_grids(SIZES))
    torch.testing.assert_close(logits.float(), expected, atol=0.05 * expected.abs().max().item(), rtol=0)
    assert model.bfloat16()(images.bfloat16(), make_mixed_grids(SIZES)).isfinite().all()


def test_grids_may_be_lists():
    """As torch's DataLoader gives a tuple back after it has pinned it."""
    model, images, mixed = model_of("plain"), batch_of(images_of()), make_mixed_grids(SIZES)
    assert torch.equal(model(images, mixed._replace(grids=[list(grid) for grid in SIZES])), model(images, mixed))


@pytest.mark.parametrize("numbers", [False, True])
@pytest.mark.parametrize("variant", ["plain", "relative"])
def test_a_mask_of_the_callers_joins_that_of_the_fill(variant, numbers):
    model, images, mixed = model_of(variant), images_of(), make_mixed_grids(SIZES)
    causal = torch.ones(25, 25, dtype=torch.bool).tril()
    attn_mask = torch.zeros(25, 25).masked_fill(~causal, -math.inf) if numbers else causal
    tokens = model.forward_features(batch_of(images, 1e30), mixed, attn_mask)
    for i, (h, w) in enumerate(SIZES):
        T = 1 + h * w
        alone = model.forward_features(images[i], (h, w), attn_mask[:T, :T])
        torch.testing.assert_close(tokens[i : i + 1, :T], alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("pool", "theirs"), [("cls", "token"), ("mean", "avg"), ("map", "map")])
def test_logits_are_those_of_naflexvit(pool, theirs):
    """timm's model for mixed sizes, on the same weights."""
    ours = randomized(vit(pool=pool, embed_prefix=False, image_size=[20, 16]))
    options = {"embed_dim": 32, "depth": 2, "num_heads": 2, "class_token": True, "global_pool": theirs}
    options |= {"pos_embed_grid_size": OWN, "patchify_channels_last": False}
    naflex = NaFlexVit(NaFlexVitCfg(patch_size=4, **options), in_chans=1, num_classes=10).eval()
    weights = {name: tensor for name, tensor in ours.state_dict().items() if "." in name}
    embeds = {"proj.weight": weights.pop("patch_embed.proj.weight").flatten(1), "cls_token": ours.cls_token}
    embeds |= {"proj.bias": weights.pop("patch_embed.proj.bias"), "pos_embed": ours.pos_embed.unflatten(1, OWN)}
    naflex.load_state_dict(weights | {f"embeds.{name}": tensor for name, tensor in embeds.items()}, strict=True)
    batch, mixed = batch_of(images_of()), make_mixed_grids(SIZES)
    expected = naflex(batch, mixed.coordinates, mixed.mask)
    torch.testing.assert_close(ours(batch, mixed), expected, atol=1e-5, rtol=0)


# -- some of the patches


def some(images, grids, keep, seed=0):
    """`keep` patches of each image, in any order, and where they lie."""
    generator = torch.Generator().manual_seed(seed)
    mixed = make_mixed_grids(grids)
    chosen = [torch.randperm(image.shape[1], generator=generator)[:keep] for image in images]
    present = torch.arange(keep) < torch.tensor([[len(c)] for c in chosen])
    coordinates = torch.zeros(len(images), keep, 2, dtype=torch.int64)
    for i, c in enumerate(chosen):
        coordinates[i, : len(c)] = mixed.coordinates[i, c]
    batch = torch.cat([F.pad(im[:, c], (0, 0, 0, keep - len(c))) for im, c in zip(images, chosen, strict=True)])
    return batch, MixedGrids(coordinates, present, mixed.grids), chosen


@pytest.mark.parametrize("position", ["none", "learned_1d", "learned_2d", "sincos_2d"])
@pytest.mark.parametrize("pool", ["cls", "mean", "map"])
def test_dropped_patches_are_as_the_equations_without_them(position, pool):
    """Embed all patches of an image, add its positions, take the chosen ones through the blocks."""
    model = randomized(vit(position=position, pool=pool, image_size=[20, 16]))
    images = images_of()
    batch, mixed, chosen = some(images, SIZES, keep=5)
    logits = model(batch, mixed)
    for i, (h, w) in enumerate(SIZES):
        x = torch.cat([model.cls_token, model.patch_embed(images[i], (h, w))[0]], dim=1)
        x = x + model.position(model.pos_embed, (h, w))
        x = x[:, [0, *(1 + chosen[i]).tolist()]]
        for block in model.blocks:
            x = block(x)
        expected = model.head(model.fc_norm(model.attn_pool(model.norm(x))))
        torch.testing.assert_close(logits[i : i + 1], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("variant", PATCHED)
def test_patches_are_known_by_their_coordinates(variant):
    """All of an image's patches in another order, with gaps between them, are the image."""
    model, images = model_of(variant), images_of()
    generator, mixed = torch.Generator().manual_seed(5), make_mixed_grids(SIZES)
    batch = torch.full((len(SIZES), 30, 16), math.nan)
    coordinates, mask = torch.zeros(len(SIZES), 30, 2, dtype=torch.int64), torch.zeros(len(SIZES), 30).bool()
    for i, (h, w) in enumerate(SIZES):
        to = torch.randperm(30, generator=generator)[: h * w]
        batch[i, to], coordinates[i, to], mask[i, to] = images[i][0], mixed.coordinates[i, : h * w], True
    logits = model(batch, MixedGrids(coordinates, mask, SIZES))
    torch.testing.assert_close(logits, model(batch_of(images), mixed), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("variant", ["relative", "rotary"])
def test_dropped_patches_keep_the_offsets_of_the_others(variant):
    """As the whole image with the dropped patches hidden from attention."""
    model, images = model_of(variant), images_of()
    batch, mixed, chosen = some(images, SIZES, keep=5)
    logits = model(batch, mixed)
    for i, (h, w) in enumerate(SIZES):
        seen = torch.zeros(1 + h * w, dtype=torch.bool)
        seen[[0, *(1 + chosen[i]).tolist()]] = True
        tokens = model.forward_features(images[i], (h, w), seen[None, None, None])
        torch.testing.assert_close(logits[i : i + 1], model.head(tokens[:, 0]), atol=1e-5, rtol=1e-5)


# -- the code, and refusals


def test_forward_features_is_at_most_15_lines_without_a_branch():
    source = textwrap.dedent(inspect.getsource(VisionTransformer.forward_features))
    assert len(source.splitlines()) <= 15
    assert not [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.If | ast.IfExp | ast.Match)]


def test_images_and_convolutional_stems_are_refused():
    with pytest.raises(ValueError, match=r"the model takes .* not \(6, 1, 20, 16\)"):
        model_of("plain")(torch.randn(6, 1, 20, 16), make_mixed_grids(SIZES))
    with pytest.raises(ValueError, match=r"the model takes .* not \(6, 23, 16\)"):
        model_of("plain")(batch_of(images_of())[:, :-1], make_mixed_grids(SIZES))
    with pytest.raises(ValueError, match="a convolutional stem takes images of one size"):
        vit(**VARIANTS["convolutional_stem"])(batch_of(images_of()), make_mixed_grids(SIZES))
