import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import one_hot

from vitlab.losses import softmax_cross_entropy


def written_out(logits, q):
    """-Σₖ qₖ log softmax(logits)ₖ in float64."""
    p = logits.double().exp()
    return -(q.double() * (p / p.sum(dim=1, keepdim=True)).log()).sum(dim=1)


@given(
    seed=st.integers(0, 2**32),
    B=st.integers(1, 5),
    K=st.integers(1, 6),
    smoothing=st.floats(0, 0.9),
    soft=st.booleans(),
)
@settings(deadline=None)
def test_it_is_the_formula_for_each_sample(seed, B, K, smoothing, soft):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(B, K, generator=generator) * 3
    classes = torch.randint(K, (B,), generator=generator)
    probabilities = torch.rand(B, K, generator=generator).softmax(dim=1) if soft else one_hot(classes, K)
    loss = softmax_cross_entropy(logits, probabilities if soft else classes, smoothing)
    q = (1 - smoothing) * probabilities + smoothing / K
    torch.testing.assert_close(loss, written_out(logits, q).float(), atol=1e-5, rtol=1e-5)


def test_a_class_and_its_one_hot_vector_are_the_same_target():
    logits, classes = torch.randn(4, 3), torch.tensor([0, 2, 1, 1])
    hard, soft = (softmax_cross_entropy(logits, q, 0.1) for q in (classes, one_hot(classes, 3).float()))
    torch.testing.assert_close(hard, soft)


def test_equal_logits_cost_the_logarithm_of_the_number_of_classes():
    loss = softmax_cross_entropy(torch.zeros(2, 10), torch.tensor([3, 7]))
    torch.testing.assert_close(loss, torch.full((2,), 10.0).log())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_logits_of_half_precision_are_summed_in_single(dtype):
    logits, classes = (torch.randn(4, 1000) * 3).to(dtype), torch.tensor([0, 10, 100, 999])
    loss = softmax_cross_entropy(logits, classes)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, written_out(logits, one_hot(classes, 1000)).float(), atol=1e-4, rtol=1e-5)
