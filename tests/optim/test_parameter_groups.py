import pytest
import timm
import torch
import torchvision
from conftest import groups_of, vit_options
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from vitlab.models import VisionTransformer, head_names


@pytest.fixture(params=["cls", "mean"])
def model(request):
    sizes = {"image_size": 8, "num_classes": 3, "embed_dim": 8, "depth": 3, "mlp_ratio": 2.0}
    return VisionTransformer(**vit_options(**sizes, pool=request.param))


def by_name(groups):
    return {name: group for group in groups for name in group["names"]}


@pytest.mark.parametrize("layer_decay", [1.0, 0.5])
def test_each_parameter_is_in_exactly_one_group_under_its_name(model, layer_decay):
    groups = groups_of(model, lr=1.0, weight_decay=0.1, layer_decay=layer_decay)
    pairs = [pair for group in groups for pair in zip(group["names"], group["params"], strict=True)]
    parameters = dict(model.named_parameters())
    assert sorted(name for name, _ in pairs) == sorted(parameters)
    assert all(parameter is parameters[name] for name, parameter in pairs)
    assert len({group["name"] for group in groups}) == len(groups)


@pytest.mark.parametrize("layer_decay", [1.0, 0.5])
def test_only_weight_matrices_decay(model, layer_decay):
    groups = by_name(groups_of(model, lr=1.0, weight_decay=0.1, layer_decay=layer_decay))
    matrices = ("qkv.weight", "proj.weight", "fc1.weight", "fc2.weight", "head.weight")
    for name, group in groups.items():
        assert group["weight_decay"] == (0.1 if name.endswith(matrices) else 0.0), name


def test_without_layer_decay_there_are_two_groups_of_one_learning_rate(model):
    groups = groups_of(model, lr=0.3, weight_decay=0.1)
    assert [(group["name"], group["lr"]) for group in groups] == [("no decay", 0.3), ("decay", 0.3)]


def test_layers_learn_slower_the_further_they_are_from_the_head(model):
    groups = by_name(groups_of(model, lr=1.0, weight_decay=0.1, layer_decay=0.5))
    expected = {"pos_embed": 1 / 16, "patch_embed.proj.weight": 1 / 16, "head.weight": 1.0, "head.bias": 1.0}
    expected |= {f"blocks.{block}.mlp.fc1.weight": lr for block, lr in enumerate([1 / 8, 1 / 4, 1 / 2])}
    assert {name: groups[name]["lr"] for name in expected} == expected
    for name, group in groups.items():
        assert group["lr"] == 0.5 ** (model.depth + 1 - model.get_layer_id(name)), name


def test_layer_decay_scales_the_updates_under_any_scheduler(model):
    groups = groups_of(model, lr=0.1, weight_decay=0.0, layer_decay=0.5)
    optimizer = torch.optim.SGD([{key: group[key] for key in ("params", "lr", "weight_decay")} for group in groups])
    LambdaLR(optimizer, lambda step: 0.5)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    for name, parameter in model.named_parameters():
        size = 0.5 * 0.1 * 0.5 ** (model.depth + 1 - model.get_layer_id(name))
        torch.testing.assert_close(before[name] - parameter.detach(), torch.full_like(parameter, size), msg=name)


def test_frozen_parameters_are_left_out(model):
    model.patch_embed.requires_grad_(False)
    names = set(by_name(groups_of(model, lr=1.0, weight_decay=0.1)))
    assert set(dict(model.named_parameters())) - names == {"patch_embed.proj.weight", "patch_embed.proj.bias"}


def test_of_a_model_that_describes_nothing_only_matrices_decay():
    model = nn.Sequential(nn.Conv2d(3, 4, 2), nn.BatchNorm2d(4), nn.Linear(4, 2))
    groups = by_name(groups_of(model, lr=1.0, weight_decay=0.1))
    assert {name for name, group in groups.items() if group["weight_decay"]} == {"0.weight", "2.weight"}


def test_layer_decay_needs_a_model_that_names_its_layers():
    with pytest.raises(ValueError, match="layer_decay needs a model that names its layers, but Linear does not"):
        groups_of(nn.Linear(2, 2), lr=1.0, weight_decay=0.1, layer_decay=0.5)


TIMM_VIT = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 2, "num_classes": 10}
TIMM_SWIN = {"img_size": 32, "patch_size": 4, "window_size": 4, "embed_dim": 8, "depths": (1, 1), "num_heads": (1, 1)}
OTHERS = {
    "timm's ViT": lambda: timm.create_model("vit_tiny_patch16_224", **TIMM_VIT),
    "timm's Swin": lambda: timm.create_model("swin_tiny_patch4_window7_224", **TIMM_SWIN),
    "torchvision's ViT": lambda: torchvision.models.VisionTransformer(32, 8, 2, 2, 24, 48),
    "torchvision's Swin": lambda: torchvision.models.SwinTransformer([4, 4], 8, [1, 1], [1, 1], [4, 4]),
}


@pytest.mark.parametrize("name", OTHERS)
def test_in_models_of_other_libraries_too_only_matrices_decay(name):
    other = OTHERS[name]()
    groups = by_name(groups_of(other, lr=1.0, weight_decay=0.1))
    spared = ("bias", "token", "pos_embed", "pos_embedding", "relative_position_bias_table")
    for key, parameter in other.named_parameters():
        matrix = parameter.ndim > 1 and not key.endswith(spared)
        assert groups[key]["weight_decay"] == (0.1 if matrix else 0.0), key


@pytest.mark.parametrize("name", OTHERS)
def test_models_of_other_libraries_name_no_layers_and_have_attention(name):
    with pytest.raises(ValueError, match="layer_decay needs a model that names its layers"):
        groups_of(OTHERS[name](), lr=1.0, weight_decay=0.1, layer_decay=0.5)
    frozen = OTHERS[name]()
    groups_of(frozen, lr=1.0, weight_decay=0.1, trained="attention")
    learning = {key for key, parameter in frozen.named_parameters() if parameter.requires_grad}
    assert head_names(frozen) <= learning
    learning -= head_names(frozen)
    assert learning
    assert all("attn" in key or "self_attention" in key for key in learning)
