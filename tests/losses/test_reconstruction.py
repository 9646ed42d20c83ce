import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vitlab.losses import denormalize_patches, masked_reconstruction, normalize_patches


@given(
    seed=st.integers(0, 2**32),
    B=st.integers(1, 4),
    N=st.integers(1, 6),
    E=st.integers(2, 12),
    normalize=st.booleans(),
)
@settings(deadline=None)
def test_it_is_the_mean_over_hidden_patches_written_out(seed, B, N, E, normalize):
    generator = torch.Generator().manual_seed(seed)
    prediction, patches = (torch.randn(B, N, E, generator=generator) * 2 for _ in range(2))
    mask = torch.rand(B, N, generator=generator) < 0.6
    loss = masked_reconstruction(prediction, patches, mask, normalize=normalize)
    assert loss.shape == (B,)
    for b in range(B):
        errors = []
        for n in range(N):
            patch = patches[b, n].double()
            if normalize:
                patch = (patch - patch.mean()) / (patch.var(correction=1) + 1e-6) ** 0.5
            if mask[b, n]:
                errors.append(((prediction[b, n] - patch) ** 2).mean())
        expected = sum(errors) / len(errors) if errors else torch.tensor(0.0)
        torch.testing.assert_close(loss[b], expected.float(), atol=1e-5, rtol=1e-4)


def test_what_is_seen_teaches_nothing():
    prediction = torch.randn(2, 4, 6, requires_grad=True)
    mask = torch.tensor([[True, False, True, False], [False, False, False, True]])
    masked_reconstruction(prediction, torch.randn(2, 4, 6), mask, normalize=True).sum().backward()
    assert torch.equal(prediction.grad.abs().sum(dim=2) > 0, mask)


def test_normalized_patches_have_mean_0_and_deviation_1_and_come_back():
    patches = torch.rand(3, 5, 48) * torch.tensor([0.1, 1, 10]).view(3, 1, 1)
    normalized = normalize_patches(patches)
    torch.testing.assert_close(normalized.mean(dim=2), torch.zeros(3, 5), atol=1e-5, rtol=0)
    torch.testing.assert_close(normalized.std(dim=2), torch.ones(3, 5), atol=2e-3, rtol=0)
    torch.testing.assert_close(denormalize_patches(normalized, patches), patches)


def test_a_patch_of_one_color_is_zero():
    normalized = normalize_patches(torch.full((1, 2, 12), 0.7))
    torch.testing.assert_close(normalized, torch.zeros(1, 2, 12), atol=1e-3, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_averaged_in_single(dtype):
    prediction, patches = torch.randn(2, 9, 768).to(dtype), torch.randn(2, 9, 768).to(dtype)
    mask = torch.ones(2, 9, dtype=torch.bool)
    loss = masked_reconstruction(prediction, patches, mask, normalize=True)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(
        loss, masked_reconstruction(prediction.float(), patches.float(), mask, normalize=True), atol=0, rtol=0
    )
