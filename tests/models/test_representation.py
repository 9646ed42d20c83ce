import pytest
import torch
from conftest import vit_options
from torch import nn

from vitlab.models import (
    DistilledVisionTransformer,
    VisionTransformer,
    head_names,
    represent,
    timm_model,
    torchvision_model,
)


def build(kind):
    torch.manual_seed(0)
    options = {"patch_size": None, "in_chans": 1, "num_classes": 10}
    if kind == "timm":
        return timm_model(name="test_vit", image_size=32, drop_rate=0.0, drop_path_rate=None, **options)
    if kind == "torchvision":
        return torchvision_model(name="resnet18", small_images=True, **options)
    if kind == "distilled":
        return DistilledVisionTransformer(**vit_options())
    return VisionTransformer(**vit_options(representation_dim=24 if kind == "tanh" else None))


@pytest.mark.parametrize("kind", ["vit", "tanh", "timm", "torchvision"])
def test_the_head_makes_logits_of_the_representation(kind):
    model, images = build(kind).eval(), torch.randn(2, 1, 32, 32)
    head = model.fc if kind == "torchvision" else model.head
    features = represent(model, images)
    assert features.ndim == 2
    torch.testing.assert_close(head(features), model(images))
    assert represent(model, images).equal(features)  # no hook is left behind
    assert not any(module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("vit", {"head.weight", "head.bias"}),
        ("tanh", {"head.weight", "head.bias"}),
        ("distilled", {"head.weight", "head.bias", "head_dist.weight", "head_dist.bias"}),
        ("timm", {"head.weight", "head.bias"}),
        ("torchvision", {"fc.weight", "fc.bias"}),
    ],
)
def test_the_parameters_of_the_head_are_known(kind, names):
    assert head_names(build(kind)) == names


def test_a_model_without_a_linear_layer_has_no_head_to_look_before():
    model = nn.Sequential(nn.Conv2d(1, 2, 3))
    assert head_names(model) == set()
    with pytest.raises(ValueError, match="Sequential has no linear layer"):
        represent(model, torch.zeros(1, 1, 8, 8))


def test_both_heads_of_a_distilled_model_of_timm_are_known():
    import timm

    sizes = {"img_size": 32, "patch_size": 16, "embed_dim": 24, "depth": 1, "num_heads": 2, "num_classes": 5}
    model = timm.create_model("deit_tiny_distilled_patch16_224", **sizes).eval()
    assert head_names(model) == {"head.weight", "head.bias", "head_dist.weight", "head_dist.bias"}
    images = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(represent(model, images), model.forward_features(images)[:, 0])


@pytest.mark.ci
@pytest.mark.slow
def test_a_compiled_model_is_looked_into_as_well():
    """A compiled forward takes no notice of a hook that comes later."""
    model, images = build("torchvision").eval(), torch.randn(2, 1, 32, 32)
    before = represent(model, images)
    model.compile(backend="eager")
    model(images)
    torch.testing.assert_close(represent(model, images), before)
