"""The model of a config: what its constructor sees, what is refused before memory is filled, and which weights it
starts from."""

import pytest
import torch
from conftest import refuses, vit_options
from torch import nn

from vitlab.config.nodes import make_node
from vitlab.errors import ConfigError, DataError
from vitlab.models import VisionTransformer
from vitlab.run.building import model as building
from vitlab.run.building.model import (
    build_model,
    compile_model,
    find_weights,
    load_pretrained,
    recompute_activations,
    remove_weights,
    try_out,
    try_pixels,
)

BLANK = torch.zeros(1, 1, 32, 32)


def vit_node(**keys):
    return make_node({"_target_": "vitlab.models.VisionTransformer", **vit_options(), **keys})


# -- what is built


def test_keys_of_the_run_and_of_a_teacher_are_not_the_models():
    node = {"depth": 2, "pretrained": "file", "published": None, "mean": [0.5], "std": [0.2]}
    assert remove_weights(node, "model") == {"depth": 2, "mean": [0.5], "std": [0.2]}
    assert remove_weights(node, "teacher") == {"depth": 2}


def test_weights_are_given_for_the_whole_model():
    encoder = {"_target_": "some", "depth": 1, "pretrained": None, "published": "timm:a"}
    assert remove_weights({"encoder": encoder}, "model") == {"encoder": {"_target_": "some", "depth": 1}}
    encoder["pretrained"] = "file"
    with pytest.raises(ConfigError, match=r"model\.encoder\.pretrained is not used; .* with model\.pretrained"):
        remove_weights({"encoder": encoder}, "model")


def test_a_model_that_does_not_fit_in_memory_is_refused_before_it_is_filled(monkeypatch):
    needed = sum(tensor.nbytes for tensor in build_model(vit_node()).state_dict().values())
    monkeypatch.setattr(building, "physical_memory", lambda: needed)
    assert isinstance(build_model(vit_node(pretrained="file")), VisionTransformer)
    monkeypatch.setattr(building, "physical_memory", lambda: needed - 1)
    build, devices = building.build, []
    monkeypatch.setattr(building, "build", lambda *args: devices.append(torch.get_default_device()) or build(*args))
    with pytest.raises(ConfigError, match="teacher has 0 GiB of weights, and this machine 0 GiB of memory"):
        build_model(vit_node(), "teacher")
    assert devices == [torch.device("meta")]


# -- whether it gives logits


@pytest.mark.parametrize("images", [BLANK, torch.zeros(3, 1, 32, 32)])
def test_logits_of_as_many_classes_as_the_data_has_are_taken(images):
    try_out(lambda images: torch.zeros(len(images), 10), images, 10, "the teacher")


def test_a_model_of_other_images_or_logits_is_refused():
    model = VisionTransformer(**vit_options()).eval()
    try_out(model, BLANK, 10, "the teacher")
    with pytest.raises(ConfigError, match=r"predicts 10 classes, but data\.num_classes is 7"):
        try_out(model, BLANK, 7, "the teacher")
    with pytest.raises(ConfigError, match="the teacher gives no logits for images of 3x32x32"):
        try_out(model, torch.zeros(1, 3, 32, 32), 10, "the teacher")


def test_of_an_error_elsewhere_the_first_line_is_told_and_of_ours_all():
    def fail(error):
        raise error

    with pytest.raises(ConfigError, match=r"for images of 1x32x32: too small$"):
        try_out(lambda images: fail(RuntimeError("too small\nat line 7")), BLANK, 10, "the model")
    with pytest.raises(DataError, match="as it is"):
        try_out(lambda images: fail(DataError("as it is")), BLANK, 10, "the model")


@pytest.mark.parametrize("training", [True, False])
def test_a_model_of_pixels_is_tried_in_evaluation_and_left_as_it_was(training):
    class Seen(nn.Module):
        def forward(self, images):
            assert not self.training
            return images.new_zeros(len(images), 10)

    model = Seen().train(training)
    try_pixels(model, 1, 32, 10)
    assert model.training is training


# -- how it computes


def test_blocks_are_recomputed_where_there_are_some():
    assert recompute_activations(VisionTransformer(**vit_options(depth=3))) == 3
    with pytest.raises(ConfigError, match="activation_checkpointing: Linear has no list"):
        recompute_activations(nn.Linear(1, 1))


@pytest.mark.parametrize(("by_block", "compiled"), [(False, ["VisionTransformer"]), (True, ["Block"] * 3)])
def test_a_shape_for_each_size_of_training_and_four_more_are_compiled_of_each_part(monkeypatch, by_block, compiled):
    calls = []
    monkeypatch.setattr(nn.Module, "compile", lambda self, **options: calls.append((type(self).__name__, options)))
    with torch._dynamo.config.patch(recompile_limit=8):
        compile_model(VisionTransformer(**vit_options(depth=3)), 2, by_block=by_block)
        assert torch._dynamo.config.recompile_limit == len(compiled) * 10
    assert calls == [(name, {"dynamic": False}) for name in compiled]


def test_a_larger_limit_of_shapes_stays():
    with torch._dynamo.config.patch(recompile_limit=99):
        compile_model(nn.Linear(1, 1), 1, by_block=True)
        assert torch._dynamo.config.recompile_limit == 99


# -- the weights it starts from


@pytest.mark.parametrize(
    ("keys", "name"),
    [
        ({"pretrained": None}, None),
        ({"pretrained": None, "published": "timm:a"}, None),
        ({"pretrained": "file.pth", "published": "timm:a"}, "file.pth"),
        ({"pretrained": 7}, "7"),
        ({"pretrained": "published", "published": "timm:a"}, "timm:a"),
        ({}, None),
    ],
)
def test_the_weights_that_a_model_starts_from(keys, name):
    assert find_weights(make_node(keys)) == name


def test_published_weights_that_are_not_known_are_refused():
    with pytest.raises(ConfigError, match=r"teacher\.pretrained=published: no published weights of this model"):
        find_weights(make_node({"pretrained": "published", "published": None}), "teacher")


def test_a_model_without_known_ones_says_so(cli):
    run = cli("train", "model=vit_mu4", "model.pretrained=published", "data=synthetic", tiny=False)
    assert refuses(run, "model.pretrained=published: no published weights of this model are known"), run.err


def test_weights_are_loaded_as_the_node_says(monkeypatch):
    asked = []
    monkeypatch.setattr("vitlab.weights.load", lambda model, name, **options: asked.append((name, options)) or "report")
    node = {"pretrained": "file.pth", "pretrained_partial": True}
    assert load_pretrained(nn.Identity(), make_node({**node, "pretrained": None})) is None
    assert load_pretrained(nn.Identity(), make_node(node)) == "report"
    load_pretrained(nn.Identity(), make_node({**node, "pretrained_head": False}), vocabularies={"vocabulary": 1})
    assert asked == [
        ("file.pth", {"partial": True, "head": True, "vocabularies": None}),
        ("file.pth", {"partial": True, "head": False, "vocabularies": {"vocabulary": 1}}),
    ]
