"""The original Transformer: its layers are torch's, with norms after or before, and it learns."""

import pytest
import torch
import torch.nn.functional as F
from texts import SIZES, randomized, transformer
from torch import nn

from vitlab.layers import (
    MLPS,
    CausalAttention,
    DecoderBlock,
    EncoderBlock,
    Memory,
    MemoryAttention,
    NoCache,
    NoRotary,
    PreNormDecoderBlock,
    PreNormEncoderBlock,
    SequenceAttention,
    padding_mask,
)
from vitlab.models import Transformer

HEADS = {"embed_dim": 16, "num_heads": 4}
D = HEADS["embed_dim"]


def parts(attention):
    turn = NoRotary(head_dim=4)
    made = {"attention": attention(**HEADS, turn=turn), "mlp": MLPS["relu"](embed_dim=D, mlp_dim=32, drop_rate=0.0)}
    return made | {"norm": lambda: nn.LayerNorm(D)}


def copy(ours, theirs):
    """Our weights under torch's names."""
    theirs.self_attn.in_proj_weight.data, theirs.self_attn.in_proj_bias.data = ours.attn.qkv.weight, ours.attn.qkv.bias
    theirs.self_attn.out_proj.load_state_dict(ours.attn.proj.state_dict())
    theirs.linear1.load_state_dict(ours.mlp.fc1.state_dict())
    theirs.linear2.load_state_dict(ours.mlp.fc2.state_dict())
    for name in ("norm1", "norm2", "norm3"):
        if hasattr(ours, name):
            getattr(theirs, name).load_state_dict(getattr(ours, name).state_dict())
    if hasattr(ours, "cross_attn"):
        cross = ours.cross_attn
        theirs.multihead_attn.in_proj_weight.data = torch.cat([cross.q.weight, cross.kv.weight])
        theirs.multihead_attn.in_proj_bias.data = torch.cat([cross.q.bias, cross.kv.bias])
        theirs.multihead_attn.out_proj.load_state_dict(cross.proj.state_dict())
    return theirs.eval()


@pytest.fixture
def present():
    """Of sequences of 7, 7 and 4 tokens."""
    return torch.arange(7) < torch.tensor([[7], [7], [4]])


@pytest.mark.parametrize(("block", "norm_first"), [(EncoderBlock, False), (PreNormEncoderBlock, True)])
def test_an_encoder_block_is_torchs(block, norm_first, present):
    ours, x = randomized(block(**parts(SequenceAttention))), torch.randn(3, 7, D)
    theirs = copy(ours, nn.TransformerEncoderLayer(D, 4, 32, dropout=0.0, batch_first=True, norm_first=norm_first))
    torch.testing.assert_close(ours(x, NoCache()), theirs(x), atol=1e-5, rtol=0)
    filled, expected = ours(x, NoCache(present)), theirs(x, src_key_padding_mask=~present)
    torch.testing.assert_close(filled[present], expected[present], atol=1e-5, rtol=0)


@pytest.mark.parametrize(("block", "norm_first"), [(DecoderBlock, False), (PreNormDecoderBlock, True)])
def test_a_decoder_block_is_torchs(block, norm_first, present):
    ours = randomized(block(**parts(CausalAttention), cross_attention=MemoryAttention(**HEADS)))
    theirs = copy(ours, nn.TransformerDecoderLayer(D, 4, 32, dropout=0.0, batch_first=True, norm_first=norm_first))
    x, memory = torch.randn(3, 5, D), torch.randn(3, 7, D)
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    torch.testing.assert_close(ours(x, NoCache(), Memory(memory)), theirs(x, memory, tgt_mask=mask), atol=1e-5, rtol=0)
    expected = theirs(x, memory, tgt_mask=mask, memory_key_padding_mask=~present)
    torch.testing.assert_close(ours(x, NoCache(), Memory(memory, padding_mask(present))), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("norm_first", [False, True])
def test_the_stack_is_torchs(norm_first):
    """nn.Transformer between our embeddings and scores; its last norms stand where ours do, or do nothing."""
    ours = randomized(transformer(norm_first=norm_first, max_length=8))
    theirs = nn.Transformer(D, 4, 2, 2, 32, dropout=0.0, batch_first=True, norm_first=norm_first)
    for stack, own in ((theirs.encoder, ours.encoder), (theirs.decoder, ours.decoder)):
        for layer, block in zip(stack.layers, own.blocks, strict=True):
            copy(block, layer)
        stack.norm = own.norm
    read, written = torch.randint(0, 11, (3, 8)), torch.randint(0, 11, (3, 6))
    mask = nn.Transformer.generate_square_subsequent_mask(6)
    x = theirs.eval()(ours.encoder.embed(read), ours.decoder.embed(written), tgt_mask=mask, tgt_is_causal=True)
    expected = x @ ours.decoder.embed.tokens.weight.T
    torch.testing.assert_close(ours(written, read), expected, atol=1e-5, rtol=0)


def test_words_that_only_fill_up_change_nothing():
    model = randomized(transformer(max_length=10))
    read, written = torch.randint(0, 11, (2, 6)), torch.randint(0, 11, (2, 3))
    filled = torch.cat([read, torch.randint(0, 11, (2, 4))], dim=1)
    present = torch.arange(10).expand(2, -1) < 6
    torch.testing.assert_close(model(written, filled, present), model(written, read), atol=1e-5, rtol=0)


def test_the_encoder_tells_where_each_word_looks():
    model, words = randomized(transformer()), torch.randint(0, 11, (2, 6))
    present = torch.arange(6) < torch.tensor([[6], [4]])
    A = model.encoder.attention_maps(words, present)
    assert A.shape == (2, 2, 4, 6, 6)
    torch.testing.assert_close(A.sum(dim=-1), torch.ones(2, 2, 4, 6), atol=1e-5, rtol=0)
    assert not A[1, ..., 4:].any()
    block = model.encoder.blocks[0]
    x = model.encoder.embed(words)
    _, _, v = block.attn.project_heads(x, NoCache(present))
    expected = block.attn.proj((A[:, 0] @ v).transpose(1, 2).flatten(2))
    torch.testing.assert_close(block.attn(x, NoCache(present)), expected, atol=1e-5, rtol=0)
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_one_table_embeds_on_both_sides_and_scores():
    shared, apart = transformer(), transformer(shared_embedding=False, tied=False)
    tables = [name for name, p in shared.named_parameters() if 11 in p.shape]
    assert tables == ["encoder.embed.tokens.weight"]
    assert sum(11 in p.shape for p in apart.parameters()) == 3
    other = transformer(vocab_size=12).encoder
    with pytest.raises(ValueError, match=r"embedding has the shape \[12, 16\], but the decoder's \[11, 16\]"):
        Transformer(encoder=other, decoder=shared.decoder, shared_embedding=True)


def test_the_base_model_of_the_paper_has_its_parameters():
    """Table 3, base: N 6, d 512, d_ff 2048, h 8, which it gives as 65 million with 37,000 words."""
    sizes = {"vocab_size": 37_000, "max_length": 64, "embed_dim": 512, "depth": 6, "num_heads": 8, "mlp_dim": 2048}
    with torch.device("meta"):
        model = transformer(**sizes, memory_dim=512)
        theirs = nn.Transformer(512, 8, 6, 6, 2048)
    last_norms = 2 * 2 * 512  # which torch adds behind each stack, and the paper has not
    expected = sum(p.numel() for p in theirs.parameters()) - last_norms + 37_000 * 512
    assert sum(p.numel() for p in model.parameters()) == expected == 63_082_496


def test_more_words_than_there_are_places_for_are_refused():
    model = transformer()
    with pytest.raises(ValueError, match="10 words are more than the encoder's max_length 9"):
        model(torch.zeros(1, 2, dtype=torch.long), torch.zeros(1, 10, dtype=torch.long))
    with pytest.raises(ValueError, match=r"decoder\.memory_dim is 24, but the encoder's embed_dim is 16"):
        transformer(memory_dim=24)


@pytest.mark.slow
def test_it_learns_to_read_a_sequence_and_write_it_backwards():
    """Words 2 to 9; 0 begins what is written. Only attention to the right place can tell the next word."""
    sizes = SIZES | {"vocab_size": 10, "embed_dim": 32, "memory_dim": 32, "depth": 1, "mlp_dim": 64}
    model = transformer(**sizes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(400):
        words = torch.randint(2, 10, (64, 6))
        backwards = words.flip(1)
        written = torch.cat([torch.zeros(64, 1, dtype=torch.long), backwards[:, :-1]], dim=1)
        loss = F.cross_entropy(model(written, words).flatten(0, 1), backwards.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    words, said = torch.randint(2, 10, (100, 6)), torch.zeros(100, 1, dtype=torch.long)
    for _ in range(6):  # word by word, from what it has said itself
        said = torch.cat([said, model(said, words)[:, -1:].argmax(dim=-1)], dim=1)
    right = (said[:, 1:] == words.flip(1)).float().mean()
    assert right > 0.95  # by chance 0.125
