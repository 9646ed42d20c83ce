import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import Categorical, kl_divergence

from vitlab.losses import hard_distillation, soft_distillation, softmax_cross_entropy


@given(seed=st.integers(0, 2**32), B=st.integers(1, 5), K=st.integers(1, 6), temperature=st.floats(0.5, 20))
@settings(deadline=None)
def test_soft_distillation_is_the_divergence_of_softened_distributions(seed, B, K, temperature):
    generator = torch.Generator().manual_seed(seed)
    student, teacher = (torch.randn(B, K, generator=generator) * 3 for _ in range(2))
    p, q = (Categorical(logits=logits.double() / temperature) for logits in (teacher, student))
    loss = soft_distillation(student, teacher, temperature)
    expected = temperature**2 * kl_divergence(p, q)
    torch.testing.assert_close(loss, expected.float(), atol=1e-4, rtol=1e-4)


def test_nothing_is_to_be_learnt_from_oneself():
    logits = torch.randn(4, 5, requires_grad=True)
    loss = soft_distillation(logits, logits.detach() + 7, 3.0)  # a shift of all logits means nothing
    torch.testing.assert_close(loss, torch.zeros(4), atol=1e-5, rtol=0)
    (slope,) = torch.autograd.grad(loss.sum(), logits)
    torch.testing.assert_close(slope, torch.zeros(4, 5), atol=1e-5, rtol=0)


def test_at_a_high_temperature_the_slope_is_that_of_matched_logits():
    """Hinton et al., equation 4, times T²: (v - z) / K for logits whose mean is 0."""
    student, teacher = (logits - logits.mean(dim=1, keepdim=True) for logits in (torch.randn(4, 5), torch.randn(4, 5)))
    student.requires_grad_()
    (slope,) = torch.autograd.grad(soft_distillation(student, teacher, 1e3).sum(), student)
    torch.testing.assert_close(slope, (student - teacher).detach() / 5, atol=1e-3, rtol=1e-2)


def test_hard_distillation_learns_the_teachers_choice():
    student, teacher = torch.randn(8, 5), torch.randn(8, 5)
    expected = softmax_cross_entropy(student, teacher.argmax(dim=1))
    torch.testing.assert_close(hard_distillation(student, teacher), expected)
    torch.testing.assert_close(hard_distillation(student, 10 * teacher), expected)


@pytest.mark.parametrize("loss", [hard_distillation, lambda s, t: soft_distillation(s, t, 2.0)])
def test_half_precision_is_summed_in_single(loss):
    student, teacher = torch.randn(4, 1000).bfloat16(), torch.randn(4, 1000).bfloat16()
    assert loss(student, teacher).dtype == torch.float32
    torch.testing.assert_close(loss(student, teacher), loss(student.float(), teacher.float()))


@pytest.mark.parametrize("temperature", [0.0, -1.0])
def test_a_temperature_that_is_not_above_zero_is_refused(temperature):
    with pytest.raises(ValueError, match=f"temperature {temperature} is not above 0"):
        soft_distillation(torch.zeros(1, 2), torch.zeros(1, 2), temperature)
