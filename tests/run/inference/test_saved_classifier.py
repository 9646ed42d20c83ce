"""The classifier of a finished run, and its images: what is opened, and what is refused."""

from types import SimpleNamespace

import pytest
import torch
from omegaconf import OmegaConf
from torch import nn

from vitlab.errors import ConfigError
from vitlab.models import VisionTransformer
from vitlab.run.inference.saved_classifier import open_classifier, open_images
from vitlab.run.inference.saved_run import SavedRun
from vitlab.tasks.classification import Classification
from vitlab.tasks.multilabel import MultilabelClassification


@pytest.fixture
def saved(short_run):
    return SavedRun.open(str(short_run))


def test_the_classifier_of_a_run_is_opened_for_evaluation(saved):
    task = open_classifier(saved, "run", "compress", one_class=True)
    assert not task.training
    assert isinstance(task.model, VisionTransformer)
    weights = saved.checkpoint["state_dict"]
    assert all(torch.equal(value, weights[name]) for name, value in task.state_dict().items())


def test_its_images_are_pixels_of_each_split(saved):
    datamodule = open_images(saved)
    assert {split: len(datamodule.splits[split]) for split in ("val", "test")} == {"val": 180, "test": 359}
    image = datamodule.get_evaluation_split("test")[(0, 0)].image
    assert image.shape == (1, 32, 32)


def stand_in(kind, model, crop=None):
    """A run whose task is of that kind."""
    task = object.__new__(kind)
    nn.Module.__init__(task)
    task.model = model
    data = {"images": {"eval_crop": crop or {}}, "in_chans": 1}
    return SimpleNamespace(config=OmegaConf.create({"data": data}), task=lambda: task)


@pytest.mark.parametrize(
    ("run", "one_class", "told"),
    [
        (stand_in(Classification, None, {"max_tokens": 64}), True, "takes images of different sizes; explain needs"),
        (
            stand_in(MultilabelClassification, None),
            True,
            "trained without one class for each image .*classification or distillation",
        ),
        (stand_in(nn.Module, None), False, "trained without classes .*classification, multilabel or distillation"),
        (stand_in(Classification, nn.Identity()), True, "needs a Vision Transformer of vitlab, .* is Identity"),
        (
            stand_in(MultilabelClassification, nn.Identity()),
            False,
            "needs a Vision Transformer of vitlab, .* is Identity",
        ),
    ],
)
def test_what_is_no_such_classifier_is_refused_in_one_sentence(run, one_class, told):
    with pytest.raises(ConfigError, match=told):
        open_classifier(run, "runs/a", "explain", one_class=one_class)
