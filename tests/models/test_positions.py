"""Positions of every kind and place in the whole model."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import POSITIONS, randomized, vit

LEARNED = ["learned_1d", "learned_2d"]
PLACES = ["every_layer", "every_layer_shared"]


def permuted(patches, seed):
    order = torch.randperm(patches.shape[1], generator=torch.Generator().manual_seed(seed))
    return patches[:, order], order


# -- what positions are for


@given(st.integers(0, 2**31), st.integers(0, 2), st.booleans())
@settings(deadline=None, max_examples=15)
def test_without_positions_the_encoder_is_permutation_equivariant(seed, registers, class_token):
    model = randomized(
        vit(position="none", num_registers=registers, class_token=class_token, pool="mean", image_size=16)
    )
    patches = torch.randn(2, 16, 16)
    shuffled, order = permuted(patches, seed)
    prefix = model.num_prefix_tokens
    tokens, tokens_shuffled = model.forward_features(patches), model.forward_features(shuffled)
    torch.testing.assert_close(tokens_shuffled[:, prefix:], tokens[:, prefix:][:, order], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(tokens_shuffled[:, :prefix], tokens[:, :prefix], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(model(shuffled), model(patches), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("pool", ["cls", "mean", "map"])
@pytest.mark.parametrize("position", POSITIONS)
def test_only_a_model_without_positions_is_deaf_to_the_order(position, pool):
    model = randomized(vit(position=position, pool=pool, image_size=16), std=0.4)
    patches = torch.randn(2, 16, 16)
    difference = (model(permuted(patches, 0)[0]) - model(patches)).abs().max().item()
    assert difference < 2e-5 if position == "none" else difference > 1e-2


# -- other grids


@pytest.mark.parametrize("place", ["stem", *PLACES])
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("own", [16, [8, 20]])
def test_every_kind_runs_at_every_size(position, place, own):
    if place != "stem" and position not in LEARNED:
        position, place = "learned_1d", place
    model = randomized(vit(position=position, position_place=place, image_size=own, num_registers=1))
    for h, w in [(4, 4), (2, 5), (6, 3), (1, 1)]:
        images = torch.randn(2, 1, 4 * h, 4 * w)
        assert model(images, grid=(h, w)).isfinite().all()
        if (h, w) != model.patch_embed.grid:
            with pytest.raises(ValueError, match="the model takes images of"):
                model(images)
        with pytest.raises(ValueError, match="the model takes"):
            model(images, grid=(h, w + 1))
    images = torch.randn(2, 1, *model.patch_embed.image_size)
    assert torch.equal(model(images, grid=model.patch_embed.grid), model(images))
    assert torch.equal(model(images, grid=list(model.patch_embed.grid)), model(images))


@pytest.mark.parametrize("position", POSITIONS)
def test_another_size_is_as_a_model_made_for_it_from_resized_tables(position):
    """For the fixed kinds too: what was resampled at run time is what a state dict resized at load would hold."""
    model = randomized(vit(position=position, image_size=[16, 24]))
    larger = vit(position=position, image_size=[24, 20]).eval()
    weights = model.state_dict()
    if "pos_embed" in weights:
        weights["pos_embed"] = model.position.resize(model.pos_embed, (6, 5)).detach()
    for i, block in enumerate(model.blocks):
        if position == "relative":
            weights[f"blocks.{i}.attn.rel_pos.relative_position_bias_table"] = block.attn.rel_pos.resize((6, 5))
    larger.load_state_dict(weights, strict=True)
    images = torch.randn(2, 1, 24, 20)
    torch.testing.assert_close(larger(images), model(images, grid=(6, 5)), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("position", ["learned_1d", "learned_2d", "sincos_1d", "sincos_2d", "relative"])
def test_a_state_dict_of_another_size_is_refused(position):
    """Also of a fixed table: it is never silently taken for that of another grid."""
    weights = vit(position=position, image_size=16).state_dict()
    with pytest.raises(RuntimeError, match="size mismatch"):
        vit(position=position, image_size=24).load_state_dict(weights)


@pytest.mark.parametrize("position", ["sincos_1d", "sincos_2d"])
def test_a_fixed_table_is_saved_and_is_no_parameter(position):
    model = vit(position=position)
    assert "pos_embed" in model.state_dict()
    assert "pos_embed" not in dict(model.named_parameters())
    before = model.pos_embed.clone()
    model(torch.randn(2, 1, 32, 32)).sum().backward()
    torch.optim.SGD(model.parameters(), lr=1.0).step()
    assert torch.equal(model.pos_embed, before)


@pytest.mark.parametrize("position", ["none", "relative", "rotary"])
def test_kinds_without_a_table_save_none(position):
    assert not [name for name in vit(position=position).state_dict() if name.endswith(("pos_embed", "index", "turns"))]


# -- at every layer: table 8


@pytest.mark.parametrize("position", LEARNED)
def test_each_layer_of_its_own_costs_a_table_and_sharing_costs_none(position):
    counts = {}
    for place in ("stem", *PLACES):
        model = vit(position=position, position_place=place, depth=4)
        counts[place] = sum(parameter.numel() for parameter in model.parameters())
    table = vit(position=position).pos_embed.numel()
    assert table == {"learned_1d": 65 * 32, "learned_2d": 16 * 16}[position]
    assert counts == {"stem": counts["stem"], "every_layer": counts["stem"] + 3 * table} | {
        "every_layer_shared": counts["stem"]
    }


@pytest.mark.parametrize("position", LEARNED)
def test_a_table_is_added_before_each_block(position):
    model = randomized(vit(position=position, position_place="every_layer", depth=3), std=0.3)
    images = torch.randn(2, 1, 32, 32)
    expected = model(images)
    tables = ["pos_embed", "blocks.1.pos_embed", "blocks.2.pos_embed"]
    assert [name for name, _ in model.named_parameters() if name.endswith("pos_embed")] == tables
    for name in tables:
        other = copy.deepcopy(model)
        torch.nn.init.zeros_(other.get_parameter(name))
        assert (other(images) - expected).abs().max() > 1e-2, name
    x = torch.cat([model.cls_token.expand(2, -1, -1), model.patch_embed(images)[0]], dim=1)
    for block, name in zip(model.blocks, tables, strict=True):
        x = x + model.position(model.get_parameter(name), None)
        x = x + block.attn(block.norm1(x))
        x = x + block.mlp(block.norm2(x))
    torch.testing.assert_close(model.head(model.norm(x)[:, 0]), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("position", LEARNED)
def test_one_table_for_all_layers_is_as_equal_tables(position):
    images = torch.randn(2, 1, 32, 32)
    shared = randomized(vit(position=position, position_place="every_layer_shared", depth=3))
    assert all(block.pos_embed is shared.pos_embed for block in shared.blocks[1:])
    own = vit(position=position, position_place="every_layer", depth=3).eval()
    own.load_state_dict(shared.state_dict(), strict=True)
    torch.testing.assert_close(own(images), shared(images))
    shared.pos_embed.data.zero_()
    assert not torch.allclose(own(images), shared(images), atol=1e-2)


@pytest.mark.parametrize("place", PLACES)
def test_a_copy_and_a_state_dict_keep_what_is_shared(place):
    model, images = randomized(vit(position_place=place, depth=3)), torch.randn(2, 1, 32, 32)
    other = vit(position_place=place, depth=3).eval()
    other.load_state_dict(model.state_dict(), strict=True)
    for copied in (copy.deepcopy(model), other, copy.deepcopy(model).double().float()):
        assert torch.equal(copied(images), model(images))
        assert len(list(copied.parameters())) == len(list(model.parameters()))
        assert (copied.blocks[1].pos_embed is copied.pos_embed) == (place == "every_layer_shared")
    copied = copy.deepcopy(model)
    copied.pos_embed.data.zero_()
    assert model.pos_embed.any()
