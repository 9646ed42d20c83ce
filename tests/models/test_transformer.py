"""The original Transformer: its layers are torch's, its masks hold, and it learns."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vitlab.models.transformer import DecoderLayer, EncoderLayer, Transformer

SIZES = {"embed_dim": 16, "num_heads": 4, "mlp_dim": 32}


def randomized(module):
    torch.manual_seed(0)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)
    return module.eval()


def copy(ours, theirs):
    """Our weights under torch's names."""
    theirs.self_attn.in_proj_weight.data, theirs.self_attn.in_proj_bias.data = ours.attn.qkv.weight, ours.attn.qkv.bias
    theirs.self_attn.out_proj.load_state_dict(ours.attn.proj.state_dict())
    theirs.linear1.load_state_dict(ours.mlp.fc1.state_dict())
    theirs.linear2.load_state_dict(ours.mlp.fc2.state_dict())
    for name in ("norm1", "norm2", "norm3"):
        if hasattr(ours, name):
            getattr(theirs, name).load_state_dict(getattr(ours, name).state_dict())
    return theirs.eval()


def test_an_encoder_layer_is_that_of_torch():
    ours, x = randomized(EncoderLayer(**SIZES)), torch.randn(2, 5, 16)
    theirs = copy(ours, nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True))
    torch.testing.assert_close(ours(x), theirs(x), atol=1e-5, rtol=0)


def test_a_decoder_layer_is_that_of_torch():
    ours, x, memory = randomized(DecoderLayer(**SIZES)), torch.randn(2, 5, 16), torch.randn(2, 7, 16)
    theirs = copy(ours, nn.TransformerDecoderLayer(16, 4, 32, dropout=0.0, batch_first=True))
    cross = ours.cross_attn
    theirs.multihead_attn.in_proj_weight.data = torch.cat([cross.q.weight, cross.kv.weight])
    theirs.multihead_attn.in_proj_bias.data = torch.cat([cross.q.bias, cross.kv.bias])
    theirs.multihead_attn.out_proj.load_state_dict(cross.proj.state_dict())
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    torch.testing.assert_close(ours(x, memory), theirs(x, memory, tgt_mask=mask), atol=1e-5, rtol=0)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Transformer(vocabulary=10, depth=2, **SIZES)


def test_what_is_still_to_be_written_is_hidden(model):
    read, written = torch.randint(0, 10, (2, 6)), torch.randint(0, 10, (2, 6))
    changed = written.clone()
    changed[:, 4:] = (changed[:, 4:] + 1) % 10
    before, after = model(read, written), model(read, changed)
    torch.testing.assert_close(before[:, :4], after[:, :4])
    assert not torch.allclose(before[:, 4:], after[:, 4:])


def test_words_that_only_fill_up_change_nothing(model):
    read, written = torch.randint(0, 10, (2, 6)), torch.randint(0, 10, (2, 3))
    filled = torch.cat([read, torch.randint(0, 10, (2, 4))], dim=1)
    present = torch.arange(10).expand(2, -1) < 6
    torch.testing.assert_close(model(filled, written, present), model(read, written), atol=1e-5, rtol=0)


def test_every_parameter_has_its_first_weights(model):
    for parameter in model.parameters():
        assert parameter.isfinite().all()
    bound = (6 / (16 + 16)) ** 0.5
    assert 0.9 * bound < model.decoder[0].cross_attn.kv.weight.abs().max() <= bound
    assert 0.9 * bound < model.encoder[0].attn.qkv.weight.abs().max() <= bound


@pytest.mark.ci
@pytest.mark.slow
def test_it_learns_to_read_a_sequence_and_write_it_backwards():
    """Words 2 to 9; 0 begins what is written. Only attention to the right place can tell the next word."""
    torch.manual_seed(0)
    model = Transformer(vocabulary=10, embed_dim=32, depth=1, num_heads=4, mlp_dim=64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(400):
        words = torch.randint(2, 10, (64, 6))
        backwards = words.flip(1)
        written = torch.cat([torch.zeros(64, 1, dtype=torch.long), backwards[:, :-1]], dim=1)
        loss = F.cross_entropy(model(words, written).flatten(0, 1), backwards.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    words, said = torch.randint(2, 10, (100, 6)), torch.zeros(100, 1, dtype=torch.long)
    memory = model.read(words)
    for _ in range(6):  # word by word, from what it has said itself
        said = torch.cat([said, model.write(said, memory)[:, -1:].argmax(dim=-1)], dim=1)
    right = (said[:, 1:] == words.flip(1)).float().mean()
    assert right > 0.95  # by chance 0.125
