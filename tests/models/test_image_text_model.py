"""Two towers: what a text is known by, what is refused, how parameters are told apart, and that they learn."""

import math

import pytest
import torch
import torch.nn.functional as F
from conftest import groups_of, vit_options
from texts import OPTIONS, randomized
from torch import nn

from vitlab.losses import Pairs, sigmoid_contrastive, softmax_contrastive
from vitlab.models import (
    DistilledVisionTransformer,
    ImageTextModel,
    TextEncoder,
    VisionTransformer,
    find_encoder,
    head_names,
    parameter_kinds,
    represent,
)

CLIP = {"feature_dim": 12, "text_pool": "end", "project_images": True, "text_bias": False, "scale": 10.0, "bias": None}
SIGLIP = {"feature_dim": 32, "text_pool": "last", "project_images": False, "text_bias": True, "scale": 10.0}
SIGLIP |= {"bias": -10.0}


def model_of(causal=True, kind=VisionTransformer, **changes):
    torch.manual_seed(0)
    text = TextEncoder(causal=causal, **OPTIONS | {"norm_first": True, "position": "learned_1d"})
    return ImageTextModel(encoder=kind(**vit_options()), text=text, patch_size=4, **CLIP | changes)


def words(*lengths):
    """Texts of such lengths, filled up to 9 places."""
    lengths = torch.tensor(lengths)
    tokens = torch.randint(3, 11, (len(lengths), 9), generator=torch.Generator().manual_seed(1))
    return tokens.where(torch.arange(9) < lengths[:, None], 0), lengths


def test_features_have_length_one_and_cosines_a_learned_scale():
    model, images = randomized(model_of()), torch.randn(3, 1, 32, 32)
    found = model(*words(4, 9, 1), images)
    for features in (found.image, found.text):
        assert features.shape == (3, 12)
        torch.testing.assert_close(features.norm(dim=1), torch.ones(3))
    assert torch.equal(found.scale, model.logit_scale.exp())
    assert torch.equal(found.bias, torch.zeros(1))
    assert "logit_bias" not in model.state_dict()
    torch.testing.assert_close(model_of().logit_scale.exp(), torch.tensor([10.0]))


def test_clips_text_is_known_by_its_end_whatever_fills_it_up():
    model = randomized(model_of())
    tokens, lengths = words(4, 7)
    expected = model.encode_texts(tokens, lengths)
    other = tokens.where(torch.arange(9) < lengths[:, None], 5)
    torch.testing.assert_close(model.encode_texts(other, lengths), expected)
    torch.testing.assert_close(model.encode_texts(tokens[:1, :4], lengths[:1]), expected[:1])
    for place in range(4):  # each of its tokens counts
        other = tokens[:1].clone()
        other[0, place] = 3 + (other[0, place] - 2) % 8
        assert (model.encode_texts(other, lengths[:1]) - expected[:1]).abs().max() > 1e-3


def test_siglips_text_is_known_by_its_last_place_and_sees_what_fills_it_up():
    model = randomized(model_of(causal=False, **SIGLIP))
    tokens, lengths = words(4, 7)
    expected = model.encode_texts(tokens, lengths)
    torch.testing.assert_close(expected, F.normalize(model.text_projection(model.text(tokens)[:, -1]), dim=1))
    other = tokens.where(torch.arange(9) < lengths[:, None], 5)
    assert (model.encode_texts(other, lengths) - expected).abs().max() > 1e-3
    torch.testing.assert_close(
        model.encode_images(torch.ones(1, 1, 32, 32)),
        F.normalize(model.encoder.represent(torch.ones(1, 1, 32, 32)), dim=1),
    )


def test_the_image_tower_is_a_plain_encoder_of_other_commands():
    model, images = model_of(), torch.randn(2, 1, 32, 32)
    assert find_encoder(model) is model.encoder
    assert torch.equal(represent(model, images), model.encoder.represent(images))
    assert not head_names(model)


def test_parameters_are_in_one_group_each_and_layers_of_both_towers_end_together():
    model = model_of(bias=-10.0)
    kinds = parameter_kinds(model)
    names = {name for name, _ in model.named_parameters()}
    assert kinds.undecayed >= {"logit_scale", "logit_bias", "encoder.pos_embed", "text.embed.position.pos_embed"}
    assert kinds.undecayed <= names
    assert "text.embed.tokens.weight" not in kinds.undecayed
    assert kinds.outputs == {"image_projection.weight", "text_projection.weight", "logit_scale", "logit_bias"}
    layers = kinds.layers
    assert layers["encoder.patch_embed.proj.weight"] == layers["text.embed.tokens.weight"] == 0
    last = (f"encoder.blocks.{model.encoder.depth - 1}.attn.qkv.weight", "text.blocks.1.attn.qkv.weight")
    assert {layers[name] for name in last} == {model.depth}
    assert layers["text.norm.weight"] == layers["image_projection.weight"] == model.depth + 1
    options = {"layer_decay": 0.8, "head_multiplier": 1.0, "backbone_multiplier": 1.0, "trained": "all"}
    groups = groups_of(model, lr=1.0, weight_decay=0.1, unfreeze_step=None, hidden_only=False, **options)
    assert sorted(name for group in groups for name in group["names"]) == sorted(names)


@pytest.mark.parametrize(("loss", "bias"), [(softmax_contrastive, None), (sigmoid_contrastive, -5)])
def test_pairs_are_learned(loss, bias):
    model = model_of(bias=bias)
    images, (tokens, lengths) = torch.randn(6, 1, 32, 32), words(3, 4, 5, 6, 7, 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(60):
        found = model(tokens, lengths, images)
        value = loss(Pairs(found.image, found.text), found.scale, found.bias).mean()
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    assert value < 0.1
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert model.logit_scale.item() != pytest.approx(math.log(10.0))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"text_pool": "mean"}, "text_pool 'mean' is not one of: end, last"),
        ({"project_images": False}, "feature_dim is 12, but the images' features have 32 numbers"),
        ({"kind": DistilledVisionTransformer}, "encoder is a DistilledVisionTransformer; choose a plain ViT"),
    ],
)
def test_what_does_not_fit_is_refused(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        model_of(**changes)


def test_other_parts_are_refused():
    text = model_of().text
    with pytest.raises(ValueError, match="encoder is a Linear; choose a plain ViT"):
        ImageTextModel(encoder=nn.Linear(2, 2), text=text, patch_size=4, **CLIP)
    with pytest.raises(ValueError, match="text is a Linear; it must be a TextEncoder"):
        ImageTextModel(encoder=VisionTransformer(**vit_options()), text=nn.Linear(2, 2), patch_size=4, **CLIP)
    with pytest.raises(ValueError, match="patch_size is 8, but the encoder's is 4"):
        ImageTextModel(encoder=VisionTransformer(**vit_options()), text=text, patch_size=8, **CLIP)
