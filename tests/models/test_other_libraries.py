import sys

import pytest
import torch
import torchvision

from vitlab.models import small_resnet, timm_model, torchvision_model


def of_torchvision(**changes):
    torch.manual_seed(0)
    options = {"name": "resnet18", "patch_size": None, "in_chans": 3, "num_classes": 10}
    return torchvision_model(**options | {"small_images": False} | changes)


def of_small_resnet(**changes):
    return small_resnet(**{"depth": 8, "width": 4, "patch_size": None, "in_chans": 3, "num_classes": 10} | changes)


def of_timm(**changes):
    options = {"name": "test_resnet", "image_size": None, "patch_size": None, "in_chans": 3, "num_classes": 10}
    return timm_model(**options | {"drop_rate": 0.0, "drop_path_rate": None} | changes)


@pytest.mark.parametrize("in_chans", [1, 3])
@pytest.mark.parametrize(
    "build",
    [
        of_torchvision,
        lambda **k: of_torchvision(small_images=True, **k),
        lambda **k: of_torchvision(name="mobilenet_v3_small", **k),
        lambda **k: of_torchvision(name="squeezenet1_1", **k),
        of_small_resnet,
        of_timm,
        lambda **k: of_timm(name="test_vit", image_size=32, drop_path_rate=0.1, **k),
    ],
    ids=["resnet18", "resnet18 small", "mobilenet", "squeezenet", "small resnet", "timm resnet", "timm vit"],
)
def test_images_of_any_channels_give_logits(build, in_chans):
    model = build(in_chans=in_chans).eval()
    images = torch.randn(2, in_chans, 32, 32)
    logits = model(images)
    assert logits.shape == (2, 10)
    assert not torch.equal(model(-images), logits)
    assert all(parameter.isfinite().all() for parameter in model.parameters())


def test_three_channels_are_torchvisions_own_model():
    ours = of_torchvision()
    torch.manual_seed(0)
    theirs = torchvision.models.resnet18(weights=None, num_classes=10)
    for (name, a), (other, b) in zip(ours.state_dict().items(), theirs.state_dict().items(), strict=True):
        assert name == other
        assert torch.equal(a, b)


@pytest.mark.parametrize("in_chans", [1, 3])
def test_small_images_keep_their_size_through_the_stem(in_chans):
    model = of_torchvision(small_images=True, in_chans=in_chans)
    stem = torch.nn.Sequential(model.conv1, model.bn1, model.relu, model.maxpool)
    assert stem(torch.randn(2, in_chans, 32, 32)).shape == (2, 64, 32, 32)
    assert model.conv1.weight.shape == (64, in_chans, 3, 3)
    assert model.conv1.weight.std().item() == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.1)  # He et al.


@pytest.mark.parametrize("name", ["googlenet", "inception_v3"])
def test_auxiliary_heads_give_no_tuples_in_training(name):
    model = of_torchvision(name=name).train()
    size = 32 if name == "googlenet" else 75
    assert model(torch.randn(2, 3, size, size)).shape == (2, 10)


@pytest.mark.parametrize(
    ("build", "changes", "message"),
    [
        (of_torchvision, {"name": "resnet19"}, "torchvision has no classification model 'resnet19'; it has .*resnet18"),
        (of_torchvision, {"name": "raft_small"}, "torchvision has no classification model 'raft_small'"),
        (of_torchvision, {"patch_size": 4}, "resnet18 takes images, not patches; leave patch_size null"),
        (of_torchvision, {"name": "squeezenet1_1", "small_images": True}, "needs a ResNet, but .* squeezenet1_1"),
        (of_timm, {"name": "resnet_of_mine"}, "timm has no model 'resnet_of_mine'; it has for instance .*resnet"),
        (of_timm, {"name": "resnet18x"}, "timm has no model 'resnet18x'"),
        (of_timm, {"name": "vgg"}, "timm has no model 'vgg'; it has for instance .*vgg"),
        (of_timm, {"patch_size": 4}, "a model of timm takes images, not patches; leave patch_size null"),
        (
            of_timm,
            {"image_size": 32},
            "timm's test_resnet refuses an argument .*img_size.* are null for models without",
        ),
        (of_timm, {"name": "vgg11", "drop_path_rate": 0.1}, "timm's vgg11 refuses an argument .*drop_path_rate"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_what_they_do_not_have_is_refused(build, changes, message):
    with pytest.raises(ValueError, match=message):
        build(**changes)


def test_a_missing_timm_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ValueError, match=r"model=timm needs timm: pip install timm"):
        of_timm()


def test_a_small_resnet_has_6n_and_2_layers_with_weights_and_shortcuts_without():
    model = of_small_resnet(depth=20, width=16)
    layers = [m for m in model.modules() if isinstance(m, torch.nn.Conv2d | torch.nn.Linear)]
    assert len(layers) == 20
    assert [conv.weight.shape[0] for conv in layers[1:-1]] == [16] * 6 + [32] * 6 + [64] * 6
    stage = model.layer2[0]
    torch.nn.init.zeros_(stage.bn2.weight)  # the branch gives nothing: what is left is the shortcut
    x = torch.rand(1, 16, 8, 8)
    out = stage(x)
    assert torch.equal(out[:, :16], x[:, :, ::2, ::2])
    assert not out[:, 16:].any()


@pytest.mark.parametrize(("changes", "words"), [({"depth": 18}, "depth 18 is not"), ({"patch_size": 4}, "not patches")])
def test_what_a_small_resnet_cannot_be_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        of_small_resnet(**changes)
