"""Image to text: any Vision Transformer reads, at any size, and what it gives is what the decoder sees."""

import pytest
import torch
from conftest import vit_options
from texts import captioner, decoder, randomized
from tiny import VARIANTS

from vitlab.layers import make_mixed_grids
from vitlab.models import (
    Captioner,
    DistilledVisionTransformer,
    VisionTransformer,
    find_encoder,
    head_names,
    parameter_kinds,
    represent,
)
from vitlab.models.activation_checkpointing import checkpoint_activations

READERS = {name: changes for name, changes in VARIANTS.items() if "map" not in name and name != "representation"}
TOKENS = torch.randint(0, 11, (2, 5), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("variant", READERS)
def test_it_sees_the_tokens_of_any_vision_transformer(variant):
    model = randomized(captioner(encoder=READERS[variant]))
    images = torch.randn(2, 1, 32, 32)
    tokens = model.encoder.forward_features(images)
    if READERS[variant].get("pool") == "mean":  # whose last norm stands behind the pooling
        tokens = model.encoder.fc_norm(tokens)
    assert torch.equal(model.read(images).tokens, tokens)
    assert torch.equal(model(TOKENS, images), model.decoder(TOKENS, tokens))
    assert model(TOKENS, images).shape == (2, 5, 11)


@pytest.mark.parametrize("variant", ["plain", "mean", "registers", "rotary"])
def test_an_image_among_others_of_other_sizes_is_read_as_alone(variant):
    model = randomized(captioner(encoder=READERS[variant]))
    grids = ((3, 5), (2, 2))
    images = [torch.randn(1, h * w, 16) for h, w in grids]
    batch = torch.cat([torch.nn.functional.pad(x, (0, 0, 0, 15 - x.shape[1]), value=7.0) for x in images])
    logits = model(TOKENS, batch, make_mixed_grids(grids))
    for i, (x, grid) in enumerate(zip(images, grids, strict=True)):
        torch.testing.assert_close(logits[i : i + 1], model(TOKENS[i : i + 1], x, grid), atol=1e-5, rtol=0)
    looks = model.attention_maps(TOKENS, batch, make_mixed_grids(grids))
    assert not looks.memory[1, ..., model.encoder.num_prefix_tokens + 4 :].any()


def test_a_distilled_encoder_reads_with_both_its_tokens():
    model = captioner(kind=DistilledVisionTransformer)
    assert model.read(torch.randn(2, 1, 32, 32)).tokens.shape == (2, 2 + 64, 32)
    assert [name for name, _ in model.named_parameters() if ".head" in name] == []


@pytest.mark.parametrize("tied", [True, False])
def test_every_parameter_learns(tied):
    model = captioner(tied=tied, norm_first=True, position="learned_1d", max_length=5)
    model(TOKENS, torch.randn(2, 1, 32, 32)).square().sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


@pytest.mark.parametrize("tied", [True, False])
def test_it_says_what_its_parameters_are(tied):
    model = captioner(tied=tied)
    kinds = parameter_kinds(model)
    head = {"decoder.embed.tokens.weight" if tied else "decoder.head.weight"}
    assert head_names(model) == kinds.head == kinds.outputs == head
    assert "decoder.blocks.1.cross_attn.kv.weight" in kinds.attention
    assert "decoder.blocks.1.attn.qkv.weight" in kinds.attention
    assert "encoder.cls_token" in kinds.undecayed
    assert kinds.depth == 4
    assert find_encoder(model) is model.encoder
    images = torch.randn(2, 1, 32, 32)
    assert torch.equal(represent(model, images), model.encoder.represent(images))


def test_activations_of_both_parts_may_be_computed_again():
    model, images = captioner(), torch.randn(2, 1, 32, 32)
    gradients = []
    for _ in range(2):
        model.zero_grad()
        model(TOKENS, images).square().mean().backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
        assert checkpoint_activations(model) == 4
    for before, after in zip(*gradients, strict=True):
        torch.testing.assert_close(before, after)


def test_what_cannot_read_or_write_together_is_refused():
    vit = VisionTransformer(**vit_options())
    for encoder, writer, sentence in (
        (torch.nn.Linear(2, 2), decoder(memory_dim=32), "encoder is a Linear; it must be a Vision Transformer"),
        (vit, torch.nn.Linear(2, 2), "decoder is a Linear; a captioner needs a Decoder"),
        (vit, decoder(memory_dim=16), "decoder.memory_dim is 16, but the encoder's embed_dim is 32; make them equal"),
        (VisionTransformer(**vit_options(pool="map")), decoder(memory_dim=32), "encoder.pool 'map' has weights that"),
        (VisionTransformer(**vit_options(representation_dim=9)), decoder(memory_dim=32), "encoder.representation_dim"),
    ):
        with pytest.raises(ValueError, match=sentence):
            Captioner(encoder=encoder, decoder=writer, patch_size=None)
    with pytest.raises(ValueError, match=r"patch_size is 8, but the encoder's is 4; set only encoder.patch_size"):
        Captioner(encoder=vit, decoder=decoder(memory_dim=32), patch_size=8)


def test_bf16_is_near_float32():
    model, images = randomized(captioner(), std=0.1), torch.randn(2, 1, 32, 32)
    expected = model(TOKENS, images)
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(TOKENS, images)
    torch.testing.assert_close(logits.float(), expected, atol=0.05 * expected.abs().max().item(), rtol=0)
    assert model.bfloat16()(TOKENS, images.bfloat16()).isfinite().all()
