"""The teacher of a config: how it wants images, as its node or the origin of its weights says, and what teaches
nothing."""

from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from vitlab.errors import ConfigError
from vitlab.run.inference.teacher import (
    TeacherInput,
    build_teacher,
    check_complete,
    choose_norm,
    find_stated,
    find_stated_by_run,
    load_run_model,
)
from vitlab.tasks.teacher import Norm
from vitlab.weights.transfer_table import Entry, Report

FROZEN = str(Path(__file__).parents[2] / "earlier_version" / "run")
DATA = {"mean": [0.5], "std": [0.5], "image_size": 16, "in_chans": 1, "num_classes": 10}


def config(data=None, **teacher):
    return OmegaConf.create({"teacher": {"pretrained": FROZEN} | teacher, "data": DATA | (data or {})})


def test_a_run_teaches_at_its_own_size_and_in_its_own_normalisation():
    teacher = build_teacher(config())
    model, stated = load_run_model(FROZEN)
    assert (teacher.image_size, stated.image_size) == (32, 32)
    assert teacher.class_names == [str(number) for number in range(10)]
    images = torch.rand(2, 1, 32, 32)  # pixels from 0 to 1
    given, wanted = ((images - norm.mean[0]) / norm.std[0] for norm in (Norm([0.5], [0.5]), stated.norm))
    torch.testing.assert_close(teacher(given), model.eval()(wanted), atol=1e-4, rtol=1e-4)


def test_what_the_node_states_comes_first():
    teacher = build_teacher(config(image_size=None, mean=[0.5], std=[0.5]))
    assert teacher.factor is None  # the images come as it wants them
    assert teacher.image_size == 32


@pytest.mark.parametrize(
    ("cfg", "sentence"),
    [
        (config(pretrained=None), "teacher.pretrained is null; give the weights of the teacher"),
        (config({"num_classes": 7}), r"the teacher predicts 10 classes, but data\.num_classes is 7"),
        (config({"in_chans": 3, "mean": [0.5] * 3, "std": [0.5] * 3}), "gives no logits for images of 3x32x32"),
        (config(mean=[0.5]), "teacher.mean and teacher.std must both be given"),
    ],
)
def test_what_cannot_teach_is_refused(cfg, sentence):
    with pytest.raises(ConfigError, match=sentence):
        build_teacher(cfg)


def test_images_are_normalised_as_stated():
    stated, own = Norm([0.1], [0.2]), {"mean": [0.3], "std": [0.4]}
    node = {"pretrained": "file.pth"}
    assert choose_norm(OmegaConf.create(node), TeacherInput(stated)) == stated
    assert choose_norm(OmegaConf.create(node | own), TeacherInput(stated)) == Norm([0.3], [0.4])
    for one in own:
        with pytest.raises(ConfigError, match="must both be given"):
            choose_norm(OmegaConf.create(node | {one: own[one]}), TeacherInput(stated))
    with pytest.raises(ConfigError, match=r"teacher\.pretrained=file\.pth does not state how its images"):
        choose_norm(OmegaConf.create(node), TeacherInput())


def test_weights_that_leave_a_tensor_random_teach_nothing():
    whole = Report("file.pth", "plain", [Entry("a", "copied", "2", "2"), Entry("b", "left over", "2", "")])
    check_complete(whole)
    whole.entries.append(Entry("head.weight", "initialised anew", "", "2", "missing"))
    with pytest.raises(ConfigError, match=r"file.pth leaves head.weight random \(missing\); give weights of a model"):
        check_complete(whole)


def test_what_weights_state_of_their_images():
    timm = find_stated(Report("timm:vit_tiny_patch16_224.augreg_in21k_ft_in1k", "timm"))
    assert (timm.norm, timm.image_size) == (Norm([0.5, 0.5, 0.5], [0.5, 0.5, 0.5]), 224)
    assert find_stated(Report("weights.pth", "plain")).norm is None
    data = {"mean": [0.1], "std": [0.2], "image_size": 48}
    own = find_stated_by_run({"data": data}, {"run": {"class_names": ["a"]}})
    assert (own.norm, own.image_size, own.class_names) == (Norm([0.1], [0.2]), 48, ["a"])
