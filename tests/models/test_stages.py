"""Each stage of the forward pass by its name, the last the same as the model's own logits."""

import pytest
import torch
from tiny import VARIANTS, vit

from vitlab.models import DistilledVisionTransformer, stages


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_stages_lead_to_the_logits(variant):
    model, images = vit(**VARIANTS[variant]).eval(), torch.randn(2, 1, 32, 32)
    with torch.inference_mode():
        found = dict(stages(model, images))
        assert list(found) == ["stem", *[f"block_{i}" for i in range(model.depth)], "encoded", "pooled", "logits"]
        assert torch.equal(found["encoded"], model.forward_features(images))
        assert torch.equal(found["pooled"], model.represent(images))
        assert torch.equal(found["logits"], model(images))


def test_a_distilled_model_has_the_logits_of_both_heads():
    model, images = vit(DistilledVisionTransformer).eval(), torch.randn(2, 1, 32, 32)
    with torch.inference_mode():
        found = dict(stages(model, images))
        assert torch.equal(found["logits"], model(images))
        assert torch.equal(found["logits"], model.compute_both_logits(images).mean(dim=1))
