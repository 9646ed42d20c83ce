"""Gradient-weighted attention is that of its equations, pair by pair, and speaks for the class that is asked for."""

import pytest
import torch
from conftest import vit_options

from vitlab.layers import Attention
from vitlab.models import DistilledVisionTransformer, VisionTransformer
from vitlab.models.activation_checkpointing import checkpoint_activations
from vitlab.views.relevance import capture_layers, combine_relevance, relevance, why_no_relevance

OPTIONS = {"image_size": 8, "embed_dim": 8, "num_heads": 2, "depth": 2, "num_classes": 3}


def model_of(**changes):
    torch.manual_seed(0)
    model = VisionTransformer(**vit_options(**OPTIONS | changes)).double()
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return model.eval()


def test_the_equations_written_out_pair_by_pair():
    torch.manual_seed(0)
    L, h, T = 3, 2, 4
    weights, slopes = torch.rand(L, h, T, T), torch.randn(L, h, T, T)
    joint = [[float(i == j) for j in range(T)] for i in range(T)]
    for layer in range(L):
        bar = [[0.0] * T for _ in range(T)]
        for i in range(T):
            for j in range(T):
                positive = [max(0.0, float(slopes[layer, m, i, j] * weights[layer, m, i, j])) for m in range(h)]
                bar[i][j] = float(i == j) + sum(positive) / h  # equation 13
        joint = [[sum(bar[i][m] * joint[m][j] for m in range(T)) for j in range(T)] for i in range(T)]  # equation 14
    torch.testing.assert_close(combine_relevance(list(weights), list(slopes)), torch.tensor(joint))


@pytest.mark.parametrize("changes", [{}, {"position": "rotary"}, {"class_token": False, "pool": "mean"}], ids=str)
def test_the_logits_are_the_models_and_the_slopes_those_of_finite_differences(changes):
    model, image = model_of(**changes), torch.randn(1, 1, 8, 8).double()
    weights, logits = capture_layers(model, image)
    torch.testing.assert_close(logits, model(image))
    slope = torch.autograd.grad(logits[0, 1], weights)[0]
    layer = next(module for module in model.blocks.modules() if isinstance(module, Attention))
    own, place, step = layer.product, (0, 1, 2, 3), 1e-3
    found = []
    for sign in (1, -1):
        moved = weights[0].detach().clone()
        moved[place] += sign * step
        layer.product = lambda q, k, v, *others, moved=moved: moved @ v
        found.append(model(image)[0, 1].item())
    layer.product = own
    assert (found[0] - found[1]) / (2 * step) == pytest.approx(
        float(slope[place]), rel=1e-3
    )  # rotary tables are float32


@pytest.mark.parametrize("changes", [{}, {"class_token": False, "pool": "mean"}, {"num_registers": 2}], ids=str)
def test_each_patch_has_its_relevance_and_each_class_its_own(changes):
    model, image = model_of(**changes), torch.randn(1, 1, 8, 8).double()
    with torch.inference_mode():
        found = [relevance(model, image.clone(), k) for k in range(3)]
    for one in found:
        assert one.shape == (4,)
        assert one.min() >= 0
        assert one.max() > 0
    assert not torch.allclose(found[0], found[1])
    assert all(parameter.grad is None for parameter in model.parameters())


def test_what_has_no_relevance_is_told_in_words():
    assert why_no_relevance(model_of()) is None
    assert "pools by attention" in why_no_relevance(model_of(class_token=False, pool="map"))
    assert "reads two" in why_no_relevance(DistilledVisionTransformer(**vit_options(**OPTIONS)))


def test_a_model_that_computes_its_activations_again_has_the_same():
    model, image = model_of(), torch.randn(1, 1, 8, 8).double()
    expected = relevance(model, image, 0)
    checkpoint_activations(model)
    blocks = [block.forward for block in model.blocks]
    torch.testing.assert_close(relevance(model, image, 0), expected)
    assert [block.forward for block in model.blocks] == blocks
