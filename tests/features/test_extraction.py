"""Features are what the head of a model sees, whatever library it is of, each image's once and in its place."""

import pytest
import timm
import torch
import torchvision
from conftest import vit_options

from vitlab.data.batches.batch import Batch, View
from vitlab.errors import DataError
from vitlab.features import extract, join_features
from vitlab.models import VisionTransformer, timm_model, torchvision_model

SIZES = {"patch_size": None, "in_chans": 3, "num_classes": 7}


def batches(images, order, size=3):
    """Finished batches of images in some order; the class of each is its place, modulo 5."""
    for some in torch.as_tensor(order).split(size):
        yield Batch((View(images[some]),), some % 5, some)


def features_of(model, images, order=None):
    return join_features(extract(model.eval(), batches(images, list(range(len(images))) if order is None else order)))


def noise(n=8, size=32):
    return torch.randn(n, 3, size, size, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("name", "size"), [("test_resnet", None), ("test_vit", 32), ("test_convnext", None)])
def test_features_of_a_timm_model_are_those_before_its_classifier(name, size):
    model = timm_model(name=name, image_size=size, drop_rate=0.0, drop_path_rate=None, **SIZES).eval()
    assert type(model).__module__.startswith(timm.__name__)
    images = noise()
    with torch.no_grad():
        expected = model.forward_head(model.forward_features(images), pre_logits=True)
    torch.testing.assert_close(features_of(model, images).values, expected.flatten(1))


def test_features_of_a_torchvision_resnet_are_its_pooled_maps():
    model = torchvision_model(name="resnet18", small_images=False, **SIZES).eval()
    assert isinstance(model, torchvision.models.ResNet)
    pooled = []
    hook = model.avgpool.register_forward_hook(lambda module, given, made: pooled.append(made.flatten(1)))
    found = features_of(model, noise())
    hook.remove()
    assert torch.equal(found.values, torch.cat(pooled))
    assert found.values.shape == (8, 512)


@pytest.mark.parametrize("pool", ["cls", "mean", "map"])
def test_features_of_our_own_give_the_logits_by_the_head_alone(pool):
    torch.manual_seed(0)
    model = VisionTransformer(**vit_options(in_chans=3, pool=pool)).eval()
    images = noise()
    found = features_of(model, images)
    assert found.values.dtype == torch.float32
    with torch.no_grad():
        torch.testing.assert_close(model.head(found.values), model(images))


def test_images_come_in_the_order_of_the_split_whatever_order_they_were_read_in():
    model, images = torchvision_model(name="resnet18", small_images=True, **SIZES), noise()
    straight, mixed_up = features_of(model, images), features_of(model, images, order=[5, 2, 7, 0, 1, 6, 3, 4])
    assert mixed_up.places.tolist() == list(range(8))
    assert mixed_up.target.tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
    torch.testing.assert_close(mixed_up.values, straight.values)


def test_targets_of_several_classes_stay_what_they_are():
    model, images = torchvision_model(name="resnet18", small_images=True, **SIZES).eval(), noise(2)
    hot = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    found = join_features(extract(model, [Batch((View(images.flip(0)),), hot.flip(0), torch.tensor([1, 0]))]))
    assert torch.equal(found.target, hot)


def test_reduced_precision_gives_float32_and_training_mode_is_refused():
    model = VisionTransformer(**vit_options(in_chans=3)).eval()
    exact = features_of(model, noise())
    with torch.autocast("cpu", torch.bfloat16):
        reduced = features_of(model, noise())
    assert reduced.values.dtype == torch.float32
    assert 0 < (reduced.values - exact.values).abs().max() < 0.1
    with pytest.raises(AssertionError):
        extract(model.train(), batches(noise(), [0]))


def test_no_image_at_all_is_said():
    with pytest.raises(DataError, match="no image can be read"):
        join_features([])
