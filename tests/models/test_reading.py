"""A captioner learns to read short lines by any position; without a mask it learns to copy, and writes nothing."""

import pytest
import torch
from texts import captioner

from vitlab.decoding import BeamSearch, Greedy
from vitlab.losses import next_token_cross_entropy, teacher_forced
from vitlab.vocabulary import CharacterVocabulary

VOCABULARY = CharacterVocabulary("01234567")
SHADES = torch.linspace(-2, 2, 8)


def lines(count, seed, longest=5):
    """Images (B, 1, 4, 4·longest) in which each figure is a patch of its shade, and noise after the last; and their
    texts, (B, longest + 1)."""
    random = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest + 1, (count, 1), generator=random)
    figures = torch.randint(0, 8, (count, longest), generator=random)
    there = torch.arange(longest) < lengths
    shades = torch.where(there, SHADES[figures], 4.0)[:, None, None].repeat_interleave(4, -1).expand(-1, -1, 4, -1)
    images = shades + 0.1 * torch.randn(shades.shape, generator=random)
    _, end, padding = VOCABULARY.special
    target = torch.full((count, longest + 1), padding)
    target[:, :longest][there] = figures[there] + 3
    return images, target.scatter(1, lengths, end)


def taught(steps=400, **changes):
    """Its loss on lines that it has not seen, and the shares of them that it writes rightly, greedily and by beam."""
    sizes = {"vocab_size": len(VOCABULARY), "max_length": 6, "norm_first": True, "position": "learned_1d"}
    sizes |= {"scale_embedding": False}
    model = captioner(encoder={"image_size": [4, 20]}, **sizes | {"embed_dim": 32, "mlp_dim": 64} | changes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    special = VOCABULARY.special

    def losses(images, target):
        read, present = teacher_forced(target, special.begin), target != special.padding
        logits = model(read, images, None, present)
        return next_token_cross_entropy(logits, target, padding=special.padding)

    for step in range(steps):
        optimizer.zero_grad()
        losses(*lines(64, step)).mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # else rounding decides whether it learns in time
        optimizer.step()
    images, target = lines(200, 10**6)
    model.eval()
    found = []
    for way in (Greedy(max_length=6), BeamSearch(max_length=6, width=3, length_penalty=0.6)):
        texts = way(model.begin_text(images), special)
        written = [VOCABULARY.decode(row) for row in texts.tokens.tolist()]
        wanted = [VOCABULARY.decode(row) for row in target.tolist()]
        found.append(sum(a == b for a, b in zip(written, wanted, strict=True)) / len(wanted))
    with torch.no_grad():
        return losses(images, target).mean().item(), *found


@pytest.mark.slow
@pytest.mark.parametrize("position", ["learned_1d", "sincos_1d", "rotary_1d"])
def test_it_learns_to_read_lines_by_any_position(position):
    """Embeddings are as large as what is added to them: fixed sines are of size 1."""
    loss, greedy, beam = taught(position=position, scale_embedding=position == "sincos_1d")
    assert loss < 0.1
    assert min(greedy, beam) > 0.9


@pytest.mark.slow
def test_without_a_mask_it_predicts_what_it_is_shown_and_cannot_write():
    loss, greedy, beam = taught(causal=False)
    assert loss < 0.1
    assert max(greedy, beam) < 0.1
