"""Models that are asked: what each token may see, and that writing gives what teaching saw."""

import pytest
import torch
from conftest import vit_options
from texts import decoder, randomized

from vitlab.decoding import search
from vitlab.layers import make_mixed_grids
from vitlab.models import (
    AskedCaptioner,
    SingleStream,
    VisionTransformer,
    find_encoder,
    head_names,
    parameter_kinds,
    represent,
)
from vitlab.models.single_stream import prefix_mask
from vitlab.vocabulary import SpecialTokens

Q, M = 4, 5
QUESTION = torch.randint(3, 11, (2, Q), generator=torch.Generator().manual_seed(1))
TOKENS = torch.randint(0, 11, (2, M), generator=torch.Generator().manual_seed(0))
IMAGES = torch.randn(2, 1, 32, 32, generator=torch.Generator().manual_seed(2))


def single_stream(**encoder):
    torch.manual_seed(0)
    vit = VisionTransformer(**vit_options(**encoder))
    return SingleStream(encoder=vit, vocab_size=11, question_length=Q, max_length=M, patch_size=4)


def asked_captioner(**changes):
    torch.manual_seed(0)
    vit = VisionTransformer(**vit_options())
    writer = decoder(memory_dim=32, max_length=Q + M, position="learned_1d", norm_first=True, **changes)
    return AskedCaptioner(encoder=vit, decoder=writer, patch_size=4, question_length=Q)


MODELS = {"single_stream": single_stream, "asked_captioner": asked_captioner}
KINDS = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)


def changed(tokens, place):
    other = tokens.clone()
    other[:, place] = (tokens[:, place] + 1) % 11
    return other


@KINDS
def test_a_token_sees_the_image_the_question_and_what_stands_before_it(make):
    model = randomized(make())
    logits = model(TOKENS, QUESTION, IMAGES)
    assert logits.shape == (2, M, 11)
    for place in range(M):
        other = model(changed(TOKENS, place), QUESTION, IMAGES)
        assert torch.equal(other[:, :place], logits[:, :place])
        assert not torch.isclose(other[:, place], logits[:, place]).all(dim=1).any()
    for place in range(Q):
        assert not torch.isclose(model(TOKENS, changed(QUESTION, place), IMAGES), logits).all(dim=2).any()
    assert not torch.isclose(model(TOKENS, QUESTION, IMAGES.flip(0)), logits).all(dim=2).any()


@KINDS
@pytest.mark.parametrize("width", [1, 3])
def test_what_is_written_step_by_step_is_as_probable_as_when_it_is_taught(make, width):
    model, special = randomized(make(), std=0.15), SpecialTokens(1, 2, 0)
    text = search(max_length=M, width=width, length_penalty=0.6)(
        model.begin_text(QUESTION, IMAGES), special, with_attention=True
    )
    written = text.tokens.shape[1]
    before = torch.cat([torch.ones(2, 1, dtype=torch.long), text.tokens[:, :-1]], dim=1)
    log_p = model(before, QUESTION, IMAGES).log_softmax(dim=2).gather(2, text.tokens[..., None])[..., 0]
    torch.testing.assert_close(text.log_probs, log_p.masked_fill(~text.present, 0), atol=1e-4, rtol=1e-4)
    assert text.attention.memory.shape[-2:] == (Q + written, 65)
    with pytest.raises(ValueError, match=f"max_length {M + 1} is more than the {M} tokens that the model can write"):
        search(max_length=M + 1, width=width, length_penalty=0.6)(model.begin_text(QUESTION, IMAGES), special)


def test_questions_are_the_same_to_a_cache():
    model = randomized(asked_captioner())
    for cached in (True, False):
        state = model.begin_text(QUESTION, IMAGES, cached=cached)
        state.reserve(M)
        steps = torch.stack([state.next_logits(TOKENS[:, m]) for m in range(M)], dim=1)
        torch.testing.assert_close(steps, model(TOKENS, QUESTION, IMAGES), atol=1e-4, rtol=1e-4)
    seen = [model.begin_text(QUESTION, IMAGES, cached=cached).attention_maps(TOKENS) for cached in (True, False)]
    for one, other in zip(*seen, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_given_things_look_at_each_other_and_never_at_an_answer():
    mask = prefix_mask(3, 2)
    assert mask.tolist() == [[True] * 3 + [False] * 2] * 3 + [[True] * 4 + [False], [True] * 5]
    model = randomized(single_stream())
    whole = model.attention_maps(TOKENS, model.read(QUESTION, IMAGES)).whole  # (B, L, h, S + M, S + M)
    assert (whole[..., : 65 + Q, : 65 + Q] > 0).all()
    assert not whole[..., : 65 + Q, 65 + Q :].any()
    torch.testing.assert_close(whole.sum(dim=-1), torch.ones(whole.shape[:-1]))


def test_an_image_among_others_of_other_sizes_is_asked_as_alone():
    model = randomized(single_stream(position="sincos_2d"))
    grids = ((3, 5), (2, 2))
    images = [torch.randn(1, h * w, 16) for h, w in grids]
    batch = torch.cat([torch.nn.functional.pad(x, (0, 0, 0, 15 - x.shape[1]), value=7.0) for x in images])
    logits = model(TOKENS, QUESTION, batch, make_mixed_grids(grids))
    for i, (x, grid) in enumerate(zip(images, grids, strict=True)):
        alone = model(TOKENS[i : i + 1], QUESTION[i : i + 1], x, grid)
        torch.testing.assert_close(logits[i : i + 1], alone, atol=1e-5, rtol=1e-4)
    beam, special = search(max_length=M, width=3, length_penalty=0.6), SpecialTokens(1, 2, 0)
    together = beam(model.begin_text(QUESTION, batch, make_mixed_grids(grids)), special)
    for i, (x, grid) in enumerate(zip(images, grids, strict=True)):
        text = beam(model.begin_text(QUESTION[i : i + 1], x, grid), special)
        assert torch.equal(together.tokens[i][together.present[i]], text.tokens[0])


@KINDS
def test_what_has_no_place_is_refused(make):
    model = make()
    for question in (QUESTION[:, 1:], QUESTION.repeat(1, 2)):
        with pytest.raises(ValueError, match=f"a question of {question.shape[1]} tokens is not filled up to {Q}"):
            model(TOKENS, question, IMAGES)
    with pytest.raises(ValueError, match="is longer than max_length"):
        model(torch.cat([TOKENS, TOKENS], dim=1), QUESTION, IMAGES)


@KINDS
def test_every_parameter_learns(make):
    model = make()
    model(TOKENS, torch.arange(2 * Q).reshape(2, Q) % 11, IMAGES).square().sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_it_says_what_its_parameters_are():
    model = single_stream()
    kinds = parameter_kinds(model)
    assert head_names(model) == kinds.head == kinds.outputs == {"embed.tokens.weight"}
    assert {"type_embed", "embed.position.pos_embed", "encoder.cls_token"} <= kinds.undecayed
    assert "embed.tokens.weight" not in kinds.undecayed
    assert kinds.layers["encoder.blocks.1.mlp.fc1.weight"] == 2
    assert kinds.layers["encoder.norm.weight"] == kinds.depth + 1
    assert {kinds.layers[name] for name in ("type_embed", "embed.tokens.weight", "encoder.pos_embed")} == {0}
    assert find_encoder(model) is None  # its blocks read texts as well
    model = randomized(model)
    tokens = model.encoder.embed(IMAGES)[0] + model.type_embed[0]
    torch.testing.assert_close(represent(model, IMAGES), model.encoder.pool_tokens(model.encoder.encode(tokens)))
    assert not torch.allclose(represent(model, IMAGES), model.encoder.represent(IMAGES))


@pytest.mark.parametrize(
    ("encoder", "sentence"),
    [
        ({"position": "rotary"}, "encoder.position and position_place may not act in each block"),
        ({"position_place": "every_layer"}, "encoder.position and position_place may not act in each block"),
        ({"pool": "map"}, "encoder.pool 'map' has weights that this task does not train"),
    ],
)
def test_what_cannot_be_one_sequence_is_refused(encoder, sentence):
    with pytest.raises(ValueError, match=sentence):
        single_stream(**encoder)


def test_a_decoder_has_a_place_for_an_answer():
    vit, writer = VisionTransformer(**vit_options()), decoder(memory_dim=32, max_length=Q)
    with pytest.raises(ValueError, match="leaves no place for an answer after questions of 4 tokens"):
        AskedCaptioner(encoder=vit, decoder=writer, patch_size=4, question_length=Q)
