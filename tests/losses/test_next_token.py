"""Next-token cross-entropy: the negative log probability of each text, whatever stands beside and behind it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vitlab.losses import next_token_cross_entropy, teacher_forced

PADDING = 0


def texts(B=3, M=6, V=7, seed=0):
    """Logits, targets filled up from their lengths on, and the lengths."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, M + 1, (B,), generator=generator)
    target = torch.randint(1, V, (B, M), generator=generator)
    logits = 3 * torch.randn(B, M, V, generator=generator)
    return logits, target.masked_fill(torch.arange(M) >= lengths[:, None], PADDING), lengths


@given(st.integers(1, 4), st.integers(1, 6), st.integers(2, 9), st.floats(0, 0.9), st.integers(0, 2**31))
@settings(deadline=None, max_examples=30)
def test_it_is_the_log_probability_of_each_text(B, M, V, label_smoothing, seed):
    logits, target, lengths = texts(B, M, V, seed)
    log_p = logits.log_softmax(dim=-1)
    options = {"padding": PADDING, "label_smoothing": label_smoothing}
    whole = next_token_cross_entropy(logits, target, over_tokens="sum", **options)
    each = next_token_cross_entropy(logits, target, **options)
    for i, n in enumerate(lengths.tolist()):
        right = -log_p[i, range(n), target[i, :n]].sum()
        expected = (1 - label_smoothing) * right - label_smoothing * log_p[i, :n].mean(dim=-1).sum()
        torch.testing.assert_close(whole[i], expected, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(each[i], expected / n, atol=1e-4, rtol=1e-4)


def test_what_stands_behind_a_text_changes_neither_loss_nor_gradient():
    logits, target, lengths = texts(M=6)
    assert (lengths < 6).any()
    loss = next_token_cross_entropy(logits.requires_grad_(), target, padding=PADDING, label_smoothing=0.1)
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    assert not gradient[target == PADDING].any()
    assert gradient[target != PADDING].abs().sum(dim=-1).min() > 0
    for i, n in enumerate(lengths.tolist()):
        alone = next_token_cross_entropy(
            logits[i : i + 1, :n], target[i : i + 1, :n], padding=PADDING, label_smoothing=0.1
        )
        torch.testing.assert_close(alone, loss[i : i + 1])


def test_it_is_float32_whatever_the_logits_are():
    logits, target, _ = texts()
    loss = next_token_cross_entropy(logits.bfloat16(), target, padding=PADDING)
    assert loss.dtype == torch.float32
    assert torch.equal(loss, next_token_cross_entropy(logits.bfloat16().float(), target, padding=PADDING))


def test_wrong_options_are_refused():
    logits, target, _ = texts()
    with pytest.raises(ValueError, match="over_tokens 'max' is not one of: sum, mean"):
        next_token_cross_entropy(logits, target, padding=PADDING, over_tokens="max")
    with pytest.raises(ValueError, match=r"label_smoothing 1.0 is not in \[0, 1\)"):
        next_token_cross_entropy(logits, target, padding=PADDING, label_smoothing=1.0)


def test_the_decoder_is_told_the_right_tokens_before_each():
    target = torch.tensor([[5, 6, 2], [7, 2, 0]])
    assert teacher_forced(target, begin=1).tolist() == [[1, 5, 6], [1, 7, 2]]
