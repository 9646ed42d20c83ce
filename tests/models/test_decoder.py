"""The decoder: what it may see, where it looks, what it says about its parameters; the same with a cache."""

import math

import pytest
import torch
from conftest import groups_of
from hypothesis import given, settings
from hypothesis import strategies as st
from texts import VARIANTS, captioner, decoder, randomized, transformer

from vitlab.layers import Memory, NoCache, RotaryPosition, padding_mask
from vitlab.layers.sequence_position import RotarySequencePosition
from vitlab.models.text_state import CachedDecoderState, DecoderState

CAUSAL = [name for name, changes in VARIANTS.items() if changes.get("causal", True)]


def text(rows=3, length=7, seed=0):
    return torch.randint(0, 11, (rows, length), generator=torch.Generator().manual_seed(seed))


def memory_of(model, rows=3, length=5, seed=0):
    """And a mask that hides the end of all but the first."""
    generator = torch.Generator().manual_seed(seed)
    present = torch.arange(length) < torch.tensor([[length], *[[length - 2]] * (rows - 1)])
    return torch.randn(rows, length, model.memory_dim, generator=generator), padding_mask(present)


# -- what it sees


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_is_still_to_be_written_is_hidden_unless_it_is_asked_for(variant):
    model = randomized(decoder(**VARIANTS[variant]))
    tokens, memory = text(), memory_of(model)
    changed = tokens.clone()
    changed[:, 4:] = (changed[:, 4:] + 1) % 11
    before, after = model(tokens, *memory), model(changed, *memory)
    assert not torch.allclose(before[:, 4:], after[:, 4:])
    assert torch.allclose(before[:, :4], after[:, :4], atol=1e-5) == (variant in CAUSAL)


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_fills_up_text_and_memory_changes_nothing(variant):
    model = randomized(decoder(**VARIANTS[variant]))
    tokens, (memory, mask) = text(), memory_of(model)
    present = torch.arange(7) < torch.tensor([[7], [4], [4]])
    other = torch.where(present, tokens, (tokens + 3) % 11)
    changed = memory.masked_fill(~mask[:, 0, 0, :, None], 1e3)
    before, after = model(tokens, memory, mask, present), model(other, changed, mask, present)
    torch.testing.assert_close(before[present], after[present], atol=1e-5, rtol=0)
    alone = model(tokens[1:, :4], memory[1:, :3])
    torch.testing.assert_close(before[1:, :4], alone, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("variant", "knows"), [("first_paper", True), ("rotary", True), ("no_position", False)])
def test_positions_tell_the_order_of_earlier_tokens(variant, knows):
    """Without them one block sees a bag: of two earlier tokens that change places nothing is to be noticed."""
    model = randomized(decoder(**VARIANTS[variant] | {"depth": 1}))
    tokens, memory = text(), memory_of(model)
    swapped = tokens[:, [1, 0, 2, 3, 4, 5, 6]]
    assert (tokens[:, 0] != tokens[:, 1]).any()
    before, after = model(tokens, *memory)[:, 2:], model(swapped, *memory)[:, 2:]
    assert torch.allclose(before, after, atol=1e-5) != knows


def test_rotary_positions_of_texts_see_distances_alone():
    """As the pairs of a row of patches do, which turn with their column; theirs are a quarter as many."""
    turn = RotarySequencePosition(head_dim=8)
    q, k = torch.randn(2, 1, 1, 8), torch.randn(2, 1, 1, 8)
    q, k = q.expand(-1, -1, 6, -1), k.expand(-1, -1, 6, -1)
    near, far = (a @ b.transpose(2, 3) for a, b in (turn(q, k, 0), turn(q, k, 40)))
    torch.testing.assert_close(near, far, atol=1e-4, rtol=0)
    torch.testing.assert_close(near[..., 0, 1:-1], near[..., 1, 2:], atol=1e-5, rtol=0)
    assert not torch.allclose(near[..., 0, 1], near[..., 0, 2])
    grid = RotaryPosition(embed_dim=16, num_heads=1, grid=(1, 7), num_prefix_tokens=0)
    grid.temperature = 10_000.0
    columns = torch.cat([q, torch.zeros_like(q)], dim=-1)
    turned, _ = grid.rotate(columns, columns, (1, 6))
    torch.testing.assert_close(turned[..., :8], turn(q, k, 0)[0], atol=1e-6, rtol=0)


def test_scores_that_are_not_scaled_are_so_much_larger():
    """Of the first block, by both its kinds of attention, on what is put into them."""
    scaled, unscaled = (randomized(decoder(scaled_attention=s)).blocks[0] for s in (True, False))
    x = torch.randn(3, 7, 16)
    for name, beside in (("attn", NoCache()), ("cross_attn", Memory(torch.randn(3, 5, 16)))):
        scores = [getattr(block, name).weights(x, beside)[:, :, -1].log() for block in (scaled, unscaled)]
        ours, theirs = (s - s[..., :1] for s in scores)  # differences of scores
        torch.testing.assert_close(ours * math.sqrt(4), theirs, atol=1e-3, rtol=1e-3)
        assert not torch.allclose(getattr(scaled, name)(x, beside), getattr(unscaled, name)(x, beside))


# -- where it looks


@pytest.mark.parametrize("variant", VARIANTS)
def test_each_token_shares_out_its_attention(variant):
    model = randomized(decoder(**VARIANTS[variant]))
    tokens, (memory, mask) = text(), memory_of(model)
    looks = model.attention_maps(tokens, memory, mask)
    assert looks.written.shape == (3, 2, 4, 7, 7)
    assert looks.memory.shape == (3, 2, 4, 7, 5)
    for A in looks:
        torch.testing.assert_close(A.sum(dim=-1), torch.ones(A.shape[:-1]), atol=1e-5, rtol=0)
    assert not looks.memory[1:, ..., 3:].any()
    assert looks.written.triu(1).any() == (variant not in CAUSAL)


# -- token by token


@given(st.sampled_from(CAUSAL), st.integers(1, 3), st.integers(1, 9), st.integers(1, 6), st.integers(0, 2**31))
@settings(deadline=None, max_examples=20)
def test_a_cache_changes_no_logit(variant, rows, length, memories, seed):
    model = randomized(decoder(**VARIANTS[variant]))
    tokens, memory = text(rows, length, seed), memory_of(model, rows, memories + 2, seed)
    expected = model(tokens, *memory)
    for kind in (DecoderState, CachedDecoderState):
        state = kind(model, *memory)
        state.reserve(length)
        found = torch.stack([state.next_logits(tokens[:, i]) for i in range(length)], dim=1)
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", [DecoderState, CachedDecoderState])
@pytest.mark.parametrize("variant", ["first_paper", "rotary"])
def test_several_texts_of_one_memory_go_on_in_any_order(variant, kind):
    """Two texts of each of two memories; those of the first change places, those of the second become one."""
    model, tokens = randomized(decoder(**VARIANTS[variant])), text(4, 6)
    memory, mask = memory_of(model, 2)
    tokens[:, 0] = tokens[[0, 0, 2, 2], 0]
    state = kind(model, memory, mask)
    state.reserve(6)
    state.next_logits(tokens[[0, 2], 0])
    state.select(torch.tensor([0, 0, 1, 1]))
    for i in (1, 2, 3):
        state.next_logits(tokens[:, i])
    rows = torch.tensor([1, 0, 3, 3])
    state.select(rows)
    tokens = torch.cat([tokens[rows, :4], tokens[:, 4:]], dim=1)
    found = torch.stack([state.next_logits(tokens[:, i]) for i in (4, 5)], dim=1)
    expected = model(tokens, memory.repeat_interleave(2, 0), mask.repeat_interleave(2, 0))[:, 4:]
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_a_longer_text_than_there_are_places_for_is_refused():
    model = decoder()
    memory = memory_of(model)
    with pytest.raises(ValueError, match="a text of 10 tokens is longer than max_length 9"):
        model(text(3, 10), *memory)
    with pytest.raises(ValueError, match="max_length 10 is more than the 9 tokens that the model can write"):
        CachedDecoderState(model, *memory).reserve(10)


# -- its parameters


@pytest.mark.parametrize("variant", VARIANTS)
def test_it_overwrites_every_parameter(variant):
    model = decoder(**VARIANTS[variant])
    fixed = {name: buffer.clone() for name, buffer in model.named_buffers()}
    for parameter in model.parameters():
        torch.nn.init.constant_(parameter, torch.nan)
    model.initialize()
    assert [name for name, parameter in model.named_parameters() if not parameter.isfinite().all()] == []
    assert all(torch.equal(buffer, fixed[name]) for name, buffer in model.named_buffers())


def test_first_weights_are_those_of_the_papers():
    model = decoder(embed_dim=64, num_heads=4, memory_dim=48)
    for weight in (*model.blocks[0].attn.qkv.weight.chunk(3), *model.blocks[1].cross_attn.kv.weight.chunk(2)):
        bound = math.sqrt(6 / sum(weight.shape))
        assert 0.95 * bound < weight.abs().max() <= bound * (1 + 1e-6)
    assert model.embed.tokens.weight.std().item() == pytest.approx(64**-0.5, rel=0.1)
    logits = model(text(), *memory_of(model))
    assert 0.5 < logits.std() < 2  # of words that are equally likely


@pytest.mark.parametrize("layer_decay", [1.0, 0.5])
@pytest.mark.parametrize("variant", VARIANTS)
def test_each_parameter_is_in_exactly_one_group(variant, layer_decay):
    for make in (transformer, captioner):
        changes = {key: value for key, value in VARIANTS[variant].items() if key != "memory_dim"}
        model = make(**changes)
        groups = groups_of(model, lr=1.0, weight_decay=0.1, layer_decay=layer_decay)
        grouped = [id(parameter) for group in groups for parameter in group["params"]]
        assert sorted(grouped) == sorted(id(parameter) for parameter in model.parameters())
        norms = {name for name, module in model.named_modules() if "Norm" in type(module).__name__}
        for group in groups:
            for name in group["names"]:
                parent, _, last = name.rpartition(".")
                exempt = last in ("bias", "pos_embed", "cls_token", "reg_token") or parent in norms
                assert group["weight_decay"] == (0.0 if exempt else 0.1), name
                assert group["lr"] == layer_decay ** (5 - model.get_layer_id(name)), name


def test_layers_count_through_the_encoder_and_then_the_decoder():
    model = captioner(tied=False, norm_first=True)
    layers = {name: model.get_layer_id(name) for name, _ in model.named_parameters()}
    expected = {
        "encoder.patch_embed.proj.weight": 0,
        "encoder.pos_embed": 0,
        "encoder.blocks.0.attn.qkv.weight": 1,
        "encoder.blocks.1.mlp.fc2.bias": 2,
        "encoder.norm.weight": 2,
        "decoder.embed.tokens.weight": 2,
        "decoder.blocks.0.cross_attn.kv.weight": 3,
        "decoder.blocks.1.attn.qkv.weight": 4,
        "decoder.norm.weight": 5,
        "decoder.head.weight": 5,
    }
    assert {name: layers[name] for name in expected} == expected
    assert model.depth == 4


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"position": "sincos"}, "position 'sincos' is not one of: none, learned_1d, sincos_1d, rotary_1d"),
        ({"mlp": "tanh"}, "mlp 'tanh' is not one of: gelu"),
        ({"num_heads": 3}, "embed_dim 16 is not a multiple of num_heads 3"),
        ({"embed_dim": 15, "num_heads": 3}, "embed_dim 15 is odd"),
        ({"num_heads": 16, "position": "rotary_1d"}, "needs an even head width, but embed_dim/num_heads is 1"),
        ({"mlp_ratio": 4.0}, "exactly one of mlp_ratio and mlp_dim must be given"),
    ],
)
def test_sizes_and_options_that_do_not_fit_are_refused(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        decoder(**changes)


@pytest.mark.parametrize("part", ["embed", "attn", "cross_attn", "mlp"])
def test_dropout_acts_where_the_paper_has_it_and_only_in_training(part):
    """Section 5.4: on the output of each sub-layer and on the sums of embeddings and positions."""
    model = decoder(drop_rate=0.5)
    layer = model.embed if part == "embed" else getattr(model.blocks[0], part)
    seen = []
    layer.register_forward_hook(lambda module, args, output: seen.append(output))
    memory = memory_of(model)
    model.train()(text(), *memory)
    model.eval()(text(), *memory)
    assert 0.3 < (seen[0] == 0).float().mean() < 0.7
    assert (seen[1] == 0).float().mean() < 0.01


def test_dropout_of_attention_acts_in_training():
    model = decoder(attn_drop_rate=0.5).train()
    memory = memory_of(model)
    assert not torch.allclose(model(text(), *memory), model(text(), *memory))
    model.eval()
    assert torch.equal(model(text(), *memory), model(text(), *memory))
