"""Half precision, copies and wrappers: what is done to models after they are built."""

import copy
import io

import pytest
import torch
from tiny import VARIANTS, randomized, vit
from torch.optim.swa_utils import AveragedModel


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("whole", [False, True], ids=["autocast", "model_in_bf16"])
def test_bf16_is_near_float32(variant, whole):
    model, images = randomized(vit(**VARIANTS[variant]), std=0.1), torch.randn(4, 1, 32, 32)
    expected = model(images)
    model = model.bfloat16() if whole else model
    with torch.autocast("cpu", torch.bfloat16, enabled=not whole):
        logits = model(images.bfloat16() if whole else images)
        other_size = model((images.bfloat16() if whole else images)[..., :20], grid=(8, 5))
    assert logits.dtype == torch.bfloat16
    assert other_size.isfinite().all()
    torch.testing.assert_close(logits.float(), expected, atol=0.03 * expected.abs().max().item(), rtol=0)


@pytest.mark.parametrize("variant", VARIANTS)
def test_copies_and_files_give_the_same_logits(variant):
    model, images = randomized(vit(**VARIANTS[variant])), torch.randn(2, 1, 32, 32)
    expected = model(images)
    assert torch.equal(copy.deepcopy(model)(images), expected)
    assert torch.equal(AveragedModel(model).eval()(images), expected)
    stored = io.BytesIO()
    torch.save(model.state_dict(), stored)
    stored.seek(0)
    other = vit(**VARIANTS[variant]).eval()
    other.load_state_dict(torch.load(stored, weights_only=True), strict=True)
    assert torch.equal(other(images), expected)
    assert torch.equal(torch.func.functional_call(model, dict(model.named_parameters()), images), expected)
