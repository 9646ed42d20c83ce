"""Greedy and beam search: the same texts with a cache and without, alone and among others, and as the plain definition
has them."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from texts import VARIANTS, captioner, decoder, randomized, transformer

from vitlab.decoding import BeamSearch, Greedy
from vitlab.models.text_state import CachedDecoderState, DecoderState
from vitlab.vocabulary import SpecialTokens

SPECIAL = SpecialTokens(begin=1, end=2, padding=0)
WAYS = {
    "greedy": Greedy(max_length=8),
    "beam 1": BeamSearch(max_length=8, width=1, length_penalty=0.0),
    "beam 3": BeamSearch(max_length=8, width=3, length_penalty=0.0),
    "beam 4, longer": BeamSearch(max_length=8, width=4, length_penalty=1.5),
    "beam 20": BeamSearch(max_length=5, width=20, length_penalty=0.6),
}


def model_and_memory(seed=0, rows=3, vocab_size=11, **changes):
    """Weights large enough that texts differ, and end."""
    model = randomized(decoder(vocab_size=vocab_size, **changes), std=0.5)
    generator = torch.Generator().manual_seed(seed)
    torch.nn.init.normal_(model.embed.tokens.weight, std=0.5, generator=generator)
    with torch.no_grad():
        model.head.weight[SPECIAL.end] *= 2
    return model, torch.randn(rows, 5, model.memory_dim, generator=generator)


def following(model, memory, text):
    """Log probabilities of what follows a text of one input, computed from its first token on. -> (V,)"""
    with torch.no_grad():
        return model(torch.tensor([[SPECIAL.begin, *text]]), memory)[0, -1].log_softmax(dim=0)


def plain_greedy(model, memory, max_length):
    text = []
    while len(text) < max_length and SPECIAL.end not in text:
        text.append(int(following(model, memory, text).argmax()))
    return text


def plain_beam(model, memory, way):
    """Texts as lists, all that go on each time anew, until none is left."""
    alive, ended = [(0.0, [])], []
    for length in range(1, way.max_length + 1):
        nexts = []
        for score, text in alive:
            log_p = following(model, memory, text)
            nexts += [(score + p, [*text, token]) for token, p in enumerate(log_p.tolist())]
        nexts.sort(key=lambda pair: -pair[0])
        stops = [text[-1] == SPECIAL.end or length == way.max_length for _, text in nexts]
        ranked = list(zip(nexts, stops, strict=True))
        ended += [(score / way.penalty(length), text) for (score, text), stop in ranked[: way.width] if stop]
        alive = [pair for pair, stop in ranked if not stop][: way.width]
    return max(ended)[1]


def lists(texts):
    return [row[there].tolist() for row, there in zip(texts.tokens, texts.present, strict=True)]


# -- as the definition has it


@given(st.sampled_from(list(VARIANTS)), st.integers(1, 8), st.integers(0, 2**31))
@settings(deadline=None, max_examples=15)
def test_greedy_takes_the_most_probable_token_each_time(variant, max_length, seed):
    model, memory = model_and_memory(seed, **VARIANTS[variant])
    expected = [plain_greedy(model, row[None], max_length) for row in memory]
    for kind in (DecoderState, CachedDecoderState) if model.causal else (DecoderState,):
        assert lists(Greedy(max_length=max_length)(kind(model, memory), SPECIAL)) == expected


@given(
    st.sampled_from(["first_paper", "rotary", "learned"]),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.6, 2.0]),
    st.integers(1, 6),
    st.integers(0, 2**31),
)
@settings(deadline=None, max_examples=15)
def test_beam_search_is_the_plain_one(variant, width, length_penalty, max_length, seed):
    model, memory = model_and_memory(seed, rows=2, **VARIANTS[variant])
    way = BeamSearch(max_length=max_length, width=width, length_penalty=length_penalty)
    expected = [plain_beam(model, row[None], way) for row in memory]
    for kind in (DecoderState, CachedDecoderState):
        assert lists(way(kind(model, memory), SPECIAL)) == expected


@given(st.sampled_from([0.0, 0.6, 2.0]), st.integers(0, 2**31))
@settings(deadline=None, max_examples=4)
def test_a_beam_that_holds_every_text_finds_the_best(length_penalty, seed):
    model, memory = model_and_memory(seed, rows=1, vocab_size=4)
    way = BeamSearch(max_length=4, width=27, length_penalty=length_penalty)
    goes_on = [0, 1, 3]
    texts = [[*text, 2] for n in range(4) for text in itertools.product(goes_on, repeat=n)]
    texts += [list(text) for text in itertools.product(goes_on, repeat=4)]
    with torch.no_grad():
        scores = []
        for text in texts:
            log_p = model(torch.tensor([[1, *text[:-1]]]), memory)[0].log_softmax(dim=1)
            scores.append(float(log_p[range(len(text)), text].sum()) / ((5 + len(text)) / 6) ** length_penalty)
    assert lists(way(CachedDecoderState(model, memory), SPECIAL)) == [texts[scores.index(max(scores))]]


def test_a_wider_beam_finds_more_probable_texts():
    found = []
    for seed in range(8):
        model, memory = model_and_memory(seed)
        ways = [BeamSearch(max_length=8, width=width, length_penalty=0.0) for width in (1, 8)]
        found.append([way(CachedDecoderState(model, memory), SPECIAL).log_probs.sum(dim=1) for way in ways])
    narrow, wide = (torch.cat(each) for each in zip(*found, strict=True))
    assert (wide > narrow + 1e-3).float().mean() > 0.2
    assert wide.mean() > narrow.mean()


def test_a_larger_penalty_gives_longer_texts():
    lengths = []
    for length_penalty in (0.0, 3.0):
        way = BeamSearch(max_length=8, width=4, length_penalty=length_penalty)
        texts = [way(CachedDecoderState(*model_and_memory(seed)), SPECIAL) for seed in range(8)]
        lengths.append(torch.cat([text.present.sum(dim=1) for text in texts]).float().mean())
    assert lengths[1] > lengths[0] + 0.5


# -- whatever the way


@pytest.mark.parametrize("way", WAYS)
def test_log_probs_are_those_of_the_model(way):
    model, memory = model_and_memory(rows=24)
    texts = WAYS[way](CachedDecoderState(model, memory), SPECIAL)
    read = torch.cat([torch.ones(24, 1, dtype=torch.long), texts.tokens[:, :-1]], dim=1)
    expected = model(read, memory).log_softmax(dim=2).gather(2, texts.tokens[..., None])[..., 0]
    torch.testing.assert_close(texts.log_probs, expected.masked_fill(~texts.present, 0), atol=1e-4, rtol=1e-4)
    assert texts.log_probs.dtype == torch.float32
    lengths = texts.present.sum(dim=1)
    assert texts.present.equal(torch.arange(texts.tokens.shape[1]) < lengths[:, None])
    assert int(lengths.max()) == texts.tokens.shape[1]
    assert not texts.tokens[~texts.present].any()
    ends = (texts.tokens == SPECIAL.end) & texts.present
    assert (ends.sum(dim=1) <= 1).all()
    assert (ends.any(dim=1) | (lengths == WAYS[way].max_length)).all()
    assert ends.any()


@pytest.mark.parametrize("way", WAYS)
def test_a_text_among_others_is_what_it_is_alone(way):
    for seed in range(2):
        model, memory = model_and_memory(seed, rows=6)
        together = lists(WAYS[way](CachedDecoderState(model, memory), SPECIAL))
        alone = [lists(WAYS[way](CachedDecoderState(model, row[None]), SPECIAL))[0] for row in memory]
        assert together == alone


@pytest.mark.parametrize("way", WAYS)
def test_it_stops_when_all_texts_have_ended(way):
    model, memory = model_and_memory()
    with torch.no_grad():  # the end is what all scores favour
        model.head.weight[SPECIAL.end] = 30 * model.blocks[-1].norm3.bias
    asked = []
    state = CachedDecoderState(model, memory)
    follow = state.next_logits
    state.next_logits = lambda tokens: asked.append(len(tokens)) or follow(tokens)
    texts = WAYS[way](state, SPECIAL)
    assert lists(texts) == [[SPECIAL.end]] * 3
    assert asked == [3]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("cached", [True, False])
def test_it_says_where_it_looked(way, cached):
    """Each row, as the model looked when it knew the text up to there."""
    model, memory = model_and_memory(rows=2)
    mask = (torch.arange(5) < torch.tensor([[5], [3]]))[:, None, None]
    kind = CachedDecoderState if cached else DecoderState
    texts = WAYS[way](kind(model, memory, mask), SPECIAL, with_attention=True)
    M = texts.tokens.shape[1]
    assert texts.attention.memory.shape == (2, 2, 4, M, 5)
    assert not texts.attention.memory[1, ..., 3:].any()
    read = torch.cat([torch.ones(2, 1, dtype=torch.long), texts.tokens[:, :-1]], dim=1)
    for m in range(M):
        expected = model.attention_maps(read[:, : m + 1], memory, mask)
        torch.testing.assert_close(texts.attention.memory[..., m, :], expected.memory[..., -1, :], atol=1e-5, rtol=0)
        torch.testing.assert_close(
            texts.attention.written[..., m, : m + 1], expected.written[..., -1, :], atol=1e-5, rtol=0
        )
    assert WAYS[way](kind(model, memory, mask), SPECIAL).attention is None


@pytest.mark.parametrize("way", WAYS)
def test_under_inference_mode_and_in_bf16(way):
    model, memory = model_and_memory()
    expected = WAYS[way](CachedDecoderState(model, memory), SPECIAL)
    with torch.inference_mode():
        texts = WAYS[way](CachedDecoderState(model, memory), SPECIAL)
    assert lists(texts) == lists(expected)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        texts = WAYS[way](CachedDecoderState(model, memory), SPECIAL)
    assert texts.log_probs.dtype == torch.float32
    assert texts.log_probs.isfinite().all()
    agreed = [a == b for a, b in zip(lists(texts), lists(expected), strict=True)]
    assert any(agreed)


def test_models_of_images_and_of_words_begin_texts():
    images, words = torch.randn(2, 1, 32, 32), torch.randint(0, 11, (2, 6))
    present = torch.arange(6) < torch.tensor([[6], [2]])
    for model, inputs in ((captioner(), (images,)), (transformer(), (words, present))):
        cached, anew = (Greedy(max_length=5)(model.begin_text(*inputs, cached=c), SPECIAL) for c in (True, False))
        assert lists(cached) == lists(anew)
        assert type(model.begin_text(*inputs)) is CachedDecoderState
    assert type(transformer(causal=False).begin_text(words)) is DecoderState


def test_what_cannot_be_decoded_is_refused():
    for call, sentence in (
        (lambda: Greedy(max_length=0), "max_length 0 is not at least 1; an empty text has one token"),
        (lambda: BeamSearch(max_length=0, width=2, length_penalty=0.0), "max_length 0 is not at least 1"),
    ):
        with pytest.raises(ValueError, match=sentence):
            call()
    model, memory = model_and_memory()
    with pytest.raises(ValueError, match="max_length 10 is more than the 9 tokens that the model can write"):
        Greedy(max_length=10)(CachedDecoderState(model, memory), SPECIAL)
    with pytest.raises(ValueError, match="the vocabulary's token 11 is not one of the decoder's 11 tokens"):
        Greedy(max_length=3)(CachedDecoderState(model, memory), SpecialTokens(1, 11, 0))
