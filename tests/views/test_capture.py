"""The attention that is shown is the attention that acts: captured, rolled out, measured in pixels."""

import pytest
import torch
from conftest import vit_options
from hypothesis import given
from hypothesis import strategies as st

from vitlab.layers import Attention
from vitlab.models import DistilledVisionTransformer, VisionTransformer
from vitlab.views import capture_attention, capture_pooling, mean_distance, patch_distances, rollout
from vitlab.views.look import look

VARIANTS = {
    "plain": {},
    "not square": {"image_size": [16, 32]},
    "registers": {"num_registers": 3},
    "no class token": {"class_token": False, "pool": "mean"},
    "attention pooling": {"class_token": False, "pool": "map", "num_registers": 2},
    "relative": {"position": "relative"},
    "rotary": {"position": "rotary"},
    "no position": {"position": "none"},
    "every layer": {"position_place": "every_layer", "qk_norm": True},
    "written": {"attention": "written", "drop_rate": 0.5, "attn_drop_rate": 0.5, "drop_path_rate": 0.5},
    "stem": {"patch_size": None, "stem_channels": [4, 8]},
    "five channels": {"in_chans": 5},
}


def built(variant, kind=VisionTransformer, **more):
    """A model of large random weights: attention far from even, so that what is left out of it shows."""
    torch.manual_seed(0)
    model = kind(**vit_options(**{"image_size": 16} | VARIANTS[variant] | more)).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def images_for(model, count=2):
    return torch.randn(count, next(model.patch_embed.parameters()).shape[1], *model.patch_embed.image_size)


def check_weights(model, images, grid=None):
    """Rows sum to 1, and weights times values are what each layer gave."""
    acted = []
    for attention in [module for module in model.modules() if isinstance(module, Attention)]:
        attention.register_forward_hook(lambda module, args, output: acted.append((module, args, output)))
    layers = capture_attention(model, images, grid)
    assert len(layers) == len(acted) == len(model.blocks)
    for weights, (attention, args, output) in zip(layers, acted, strict=True):
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(weights.shape[:-1]))
        values = attention.heads(*args[:2])[2]
        again = attention.proj((weights @ values).transpose(1, 2).flatten(2))
        torch.testing.assert_close(again, output, atol=1e-5, rtol=0)
    return layers


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_weights_shown_give_the_output_of_the_layer(variant):
    model = built(variant)
    check_weights(model, images_for(model))


@pytest.mark.parametrize("variant", ["plain", "relative", "rotary"])
def test_another_size_is_looked_at_with_its_grid(variant):
    layers = check_weights(built(variant), torch.randn(1, 1, 24, 8), grid=(6, 2))
    assert [tuple(weights.shape) for weights in layers] == [(1, 2, 13, 13)] * 2


def test_looking_leaves_no_trace():
    """Modes, hooks, gradients and the generator are as they were, also when the forward pass fails."""
    model = built("attention pooling").train()
    model.blocks[0].eval()
    modes = [module.training for module in model.modules()]
    state = torch.get_rng_state()
    look(model, torch.zeros(1, 1, 16, 16))
    with pytest.raises(ValueError, match="the model takes"):
        capture_attention(model, torch.zeros(1, 1, 12, 16))
    assert [module.training for module in model.modules()] == modes
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.is_grad_enabled()
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_class_token_is_what_is_shown_where_the_head_reads_it():
    for kind in (VisionTransformer, DistilledVisionTransformer):
        model = built("registers", kind)
        image = images_for(model, 1)
        seen, attention = look(model, image), capture_attention(model, image)
        T = attention[0].shape[-1]
        assert model.num_prefix_tokens + 16 == T
        for layer, weights in enumerate(attention):
            torch.testing.assert_close(seen.maps[layer], T * weights[0, :, 0, -16:])
        rolled = rollout(attention)[-1, 0, 0, -16:]
        torch.testing.assert_close(seen.rollout[-1], rolled / rolled.mean())


def test_without_a_class_token_the_patches_are_shown_on_average():
    model = built("no class token")
    image = images_for(model, 1)
    seen, attention = look(model, image), capture_attention(model, image)
    torch.testing.assert_close(seen.maps[1], 16 * attention[1][0].mean(dim=1))
    torch.testing.assert_close(seen.maps.mean(dim=-1), torch.ones(2, 2))  # nothing else is looked at
    assert seen.pooling is None


def test_attention_pooling_is_shown_itself():
    model = built("attention pooling")
    image = images_for(model, 1)
    weights = capture_pooling(model, image)
    values = model.attn_pool.heads(*model.attn_pool.query_and_patches(model.forward_features(image)))[2]
    pooled = model.attn_pool.proj((weights[:, :, None] @ values).transpose(1, 2).flatten(1))
    again = pooled + model.attn_pool.mlp(model.attn_pool.norm(pooled))
    torch.testing.assert_close(again, model.attn_pool(model.forward_features(image)), atol=1e-5, rtol=0)
    seen = look(model, image)
    torch.testing.assert_close(seen.pooling, 16 * weights[0])
    rolled = weights[0].mean(dim=0) @ rollout(capture_attention(model, image))[-1, 0, -16:, -16:]
    torch.testing.assert_close(seen.rollout[-1], rolled / rolled.mean())
    assert capture_pooling(built("plain"), image) is None


# -- rollout


@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 9), st.integers(0, 99))
def test_rollout_stays_a_distribution(depth, heads, tokens, seed):
    generator = torch.Generator().manual_seed(seed)
    layers = [(4 * torch.randn(2, heads, tokens, tokens, generator=generator)).softmax(dim=-1) for _ in range(depth)]
    rolled = rollout(layers)
    assert rolled.shape == (depth, 2, tokens, tokens)
    assert (rolled >= 0).all()
    torch.testing.assert_close(rolled.sum(dim=-1), torch.ones(depth, 2, tokens))


def test_rollout_of_tokens_that_look_at_themselves_is_the_identity():
    assert torch.equal(rollout([torch.eye(5).expand(3, 5, 5)] * 4), torch.eye(5).expand(4, 5, 5))


def test_rollout_goes_from_the_first_layer_to_the_last():
    """Token 0 looks at 1 in the second layer, after 1 has looked at 2 in the first: so 2 reaches 0, and in the other
    order it does not."""
    first, second = torch.eye(3), torch.eye(3)
    first[1], second[0] = torch.tensor([0.0, 0, 1]), torch.tensor([0.0, 1, 0])
    torch.testing.assert_close(rollout([first[None], second[None]])[-1, 0], torch.tensor([0.5, 0.25, 0.25]))
    torch.testing.assert_close(rollout([second[None], first[None]])[-1, 0], torch.tensor([0.5, 0.5, 0.0]))


# -- distances


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 16), st.integers(0, 3))
def test_even_attention_looks_as_far_as_patches_lie_apart(h, w, patch_size, prefix):
    places = [(patch_size * row, patch_size * column) for row in range(h) for column in range(w)]
    direct = [((a - c) ** 2 + (b - d) ** 2) ** 0.5 for a, b in places for c, d in places]
    T = prefix + h * w
    weights = torch.full((3, T, T), 1 / T)
    expected = torch.full((3,), sum(direct) / len(direct))
    torch.testing.assert_close(mean_distance(weights, (h, w), patch_size), expected)


@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 3))
def test_a_patch_that_looks_at_itself_or_at_no_patch_looks_nowhere(h, w, prefix):
    itself = torch.eye(prefix + h * w)
    assert mean_distance(itself, (h, w), 8) == 0
    if prefix:
        away = torch.zeros_like(itself)
        away[:, 0] = 1
        assert mean_distance(away, (h, w), 8) == 0


def test_distances_are_those_of_the_grid():
    assert patch_distances((2, 3), 16)[0].tolist() == pytest.approx([0, 16, 32, 16, 16 * 2**0.5, 16 * 5**0.5])
